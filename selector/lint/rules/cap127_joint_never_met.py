"""CAP127: what prefill and decode must share is shared by no two backends."""

from collections.abc import Iterator

from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.covering import in_words
from selector.lint.reaching import Reach
from selector.lint.solving import OverBudgetError
from selector.values import Finding, Severity
from selector.words import listed_and

BAD = """\
attnsel: 1
name: example
version: "1"
definitions:
  common: &common
    source: https://example.org/engine
    mla: false
    sparse: false
    accepts:
      platform: [cuda]
      capability: ["9.0"]
      dtype: [bfloat16]
      kv_cache_dtype: [auto]
      head_size: any
      block_size: any
      attn_type: [decoder]
backends:
  - <<: *common
    name: prefiller
    kv_layout: [NHD]
    phases: {prefill: {}}
    prefill_paths: [{path: mha, reason: The only way.}]
  - {<<: *common, name: decoder, kv_layout: [HND], phases: {decode: {}}, decode_threshold: 1}
joint:
  - {same: [kv_layout], reason: Decode reads the pages that prefill wrote.}
priorities:
  - {prefill: [prefiller], decode: [decoder], reason: One of each.}
"""


def check(context: Context) -> Iterator[Finding]:
    """Yields a finding for every rule about two backends that no pair meets."""
    reaching = context.reaching
    if reaching is None:
        return  # CAP121 says so
    for index, joint in enumerate(context.manifest.joint):
        if not context.is_own(joint.position):
            continue
        when = reaching.can_be(reaching.questions.all_hold(joint.when))
        met, both = reaching.pairs_meet(index) if when is Reach.YES else (Reach.YES, Reach.YES)
        same = listed_and(joint.same)
        if when is Reach.NO:
            message = "this rule never applies: no layer meets its `when`"
            yield RULE.finding(joint.position, message, "correct its `when`, or drop it")
        elif Reach.OPEN in (when, met) and met is not Reach.YES:
            yield RULE.undecided(joint.position, f"whether any two backends share {same}")
        elif met is Reach.NO and (both is Reach.YES or reaching.both_serve(index)):
            together = "together " if both is Reach.YES else "run the same layer, so that none "
            yield RULE.finding(
                joint.position,
                f"no prefill and decode backend that lists give {together}share {same}",
                _FIX,
            )
        elif met is Reach.YES:
            yield from _by_device(context, index, same)


_FIX = "correct what the entries say, or list backends that go together"


def _by_device(context: Context, index: int, same: str) -> Iterator[Finding]:
    """Yields a finding where backends run on some devices, and no two of them agree there."""
    reaching, covering = context.reaching, context.covering
    position = context.manifest.joint[index].position
    if reaching is None or covering is None:
        return
    alone: set[str] = set()
    try:
        for runs, agreed in reaching.pairs_under(index):
            there = covering.devices(runs, covering.all)
            alone |= there - covering.devices(agreed, there)
    except OverBudgetError:
        yield RULE.undecided(position, f"whether two backends share {same} on every device")
        return
    if alone:
        message = (
            f"on {in_words(alone)}, no prefill and decode backend that lists give together "
            f"share {same}"
        )
        yield RULE.finding(position, message, _FIX)


RULE = Rule(
    code="CAP127",
    name="joint-never-met",
    severity=Severity.ERROR,
    what=(
        "A `joint` rule demands that the prefill and the decode backend share something, and no "
        "two that lists give for one layer do, anywhere or on some device; or its `when` never "
        "holds."
    ),
    why=(
        "Decode would read a cache that prefill wrote in another layout: no prefill backend is "
        "chosen then. SGLang 0.5 ended in a missing kernel when prefill and decode used pages of "
        "different sizes (SGLang issue 14439)."
    ),
    bad=BAD,
    good=BAD.replace("kv_layout: [HND]", "kv_layout: [NHD, HND]"),
    check=check,
)
