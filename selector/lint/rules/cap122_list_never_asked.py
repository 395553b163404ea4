"""CAP122: a priority list that is never the first to hold."""

from collections.abc import Iterator

from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.reaching import Reach, Reaching
from selector.values import Finding, Severity

BAD = """\
attnsel: 1
name: example
version: "1"
backends:
  - name: paged
    source: https://example.org/engine
    mla: false
    sparse: false
    accepts:
      platform: [cuda]
      capability: ["9.0", "12.0"]
      dtype: [bfloat16]
      kv_cache_dtype: [auto]
      head_size: any
      block_size: any
      attn_type: [decoder]
    phases: {prefill: {}, decode: {}}
    decode_threshold: 1
    prefill_paths: [{path: mha, reason: The only way.}]
priorities:
  - {when: {platform: cuda}, order: [paged], reason: There is only one.}
  - {when: {capability: "12.0"}, order: [paged], reason: Another order on 12.0.}
"""


def check(context: Context) -> Iterator[Finding]:
    """Yields a finding for every list that never decides anything."""
    reaching = context.reaching
    if reaching is None:
        return  # CAP121 says so
    for index, one in context.own_lists():
        reached = [reaching.list_reached(phase, index) for phase in one.orders]
        if Reach.YES in reached:
            continue
        if Reach.OPEN in reached:
            yield RULE.undecided(one.position, "whether this list is ever the first to hold")
            continue
        yield RULE.finding(
            one.position, f"this list is never asked: {_why(reaching, index)}", "move it or drop it"
        )


def _why(reaching: Reaching, index: int) -> str:
    questions = reaching.questions
    one = reaching.manifest.priorities[index]
    if reaching.can_be(questions.all_hold(one.when)) is Reach.NO:
        return "no layer meets its `when`"
    (phase, *_) = one.orders
    lines = [
        str(other.position.line)
        for place, other in enumerate(reaching.manifest.priorities[:index])
        if phase in other.orders and _takes_all(reaching, index, place)
    ]
    return (
        f"the list on line {lines[0]} takes all of it" if lines else "those before take all of it"
    )


def _takes_all(reaching: Reaching, index: int, place: int) -> bool:
    """Whether an earlier list alone holds wherever a list does."""
    questions = reaching.questions
    lists = reaching.manifest.priorities
    both = questions.all_hold(lists[index].when)
    fails = questions.unless(lists[place].when)
    return reaching.can_be(both & fails) is Reach.NO


RULE = Rule(
    code="CAP122",
    name="list-never-asked",
    severity=Severity.WARNING,
    what=(
        "A priority list is never the first to hold: those before it take everything, or no layer "
        "meets its `when`."
    ),
    why="Only the first list that holds is asked. What this one prefers never happens.",
    bad=BAD,
    good=BAD.replace("{when: {platform: cuda}, order", '{when: {capability: "9.0"}, order'),
    check=check,
)
