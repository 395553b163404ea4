"""CAP121: priority lists name a backend that is never chosen."""

from collections.abc import Iterator

from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.reaching import Reach, Reaching
from selector.lint.rules.cap202_forced_never_runs import forced_in_vain
from selector.lint.solving import Way
from selector.values import Finding, Phase, Severity
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
    accepts: &accepted
      platform: [cuda]
      capability: ["9.0"]
      dtype: [bfloat16]
      kv_cache_dtype: [auto]
      head_size: any
      block_size: any
      attn_type: [decoder]
    phases: {prefill: {}, decode: {}}
    decode_threshold: 1
    prefill_paths: [{path: mha, reason: The only way.}]
backends:
  - {<<: *common, name: general}
  - {<<: *common, name: fast, accepts: {<<: *accepted, head_size: [64, 128]}}
priorities:
  - {order: [general, fast], reason: The general one first.}
"""


def check(context: Context) -> Iterator[Finding]:
    """Yields a finding for every entry that is never chosen in a phase that lists name it for."""
    reaching = context.reaching
    if reaching is None:
        yield RULE.undecided(context.start, "which backends are ever chosen")
        return
    said = {
        name
        for promise in context.manifest.invariants
        if not promise.when.tests
        for name in promise.never_backends
    }
    for name in context.manifest.entries:
        if name not in said:
            yield from _of_entry(context, reaching, name)


def _of_entry(context: Context, reaching: Reaching, name: str) -> Iterator[Finding]:
    found: dict[Reach, list[Phase]] = {}
    for phase in Phase:
        if reaching.lists_of(name, phase):
            reach = _reach(context, reaching, name, phase)
            if reach is not Reach.YES:
                found.setdefault(reach, []).append(phase)
    for reach, phases in found.items():
        index = min(reaching.lists_of(name, phases[0]))
        at = context.name_at(index, phases[0], name)
        if not context.is_own(at) or index in {one for one, _, _ in forced_in_vain(context)}:
            continue  # CAP202 says more
        if reach is Reach.NO and _is_told_as_joint(reaching, name, phases[0]):
            continue
        where = "" if len(phases) == len(Phase) else f" for {phases[0]}"
        if reach is Reach.OPEN:
            yield RULE.undecided(at, f"whether {name} is ever chosen{where}")
            continue
        why = _why(reaching, name, phases[0])
        yield RULE.finding(
            at,
            f"{name} is never chosen{where}: {why}",
            "put it before, take it out, or say in an invariant that it is never chosen",
        )


def _reach(context: Context, reaching: Reaching, name: str, phase: Phase) -> Reach:
    """Whether an entry is ever chosen, as the lists say alone or with what is denied."""
    found = reaching.chosen(name, phase)
    policed = context.reaching_policed
    if found is Reach.YES or policed is reaching:
        return found
    return Reach.OPEN if policed is None else policed.chosen(name, phase)


def _without_partner(reaching: Reaching, name: str, phase: Phase) -> bool:
    """Whether an entry could be the first of some list, were it not for the other phase."""
    questions = reaching.questions
    for index in reaching.lists_of(name, phase):
        names = questions.names(phase, index)
        before = (questions.refused(one, phase) for one in names[: names.index(name)])
        first = questions.decides(phase, index) & questions.alive(name, phase)
        if reaching.can_be(first & Way((), tuple(before))) is Reach.YES:
            return True
    return False


def _is_told_as_joint(reaching: Reaching, name: str, phase: Phase) -> bool:
    """Whether CAP127 says more: no two backends share what they must."""
    number = len(reaching.manifest.joint)
    return _without_partner(reaching, name, phase) and any(
        reaching.pairs_meet(joint)[0] is Reach.NO for joint in range(number)
    )


def _why(reaching: Reaching, name: str, phase: Phase) -> str:
    """What keeps an entry from being chosen."""
    questions = reaching.questions
    alive = questions.alive(name, phase)
    if reaching.can_be(alive) is Reach.NO:
        return "its own rules exclude each other"
    if _without_partner(reaching, name, phase):
        return "no backend of the other phase shares with it what it must (`joint`)"
    before: dict[str, None] = {}
    for index in reaching.lists_of(name, phase):
        here = questions.decides(phase, index) & alive
        if reaching.can_be(here) is Reach.NO:
            continue
        names = questions.names(phase, index)
        earlier = names[: names.index(name)]
        hiding = [
            one
            for one in earlier
            if reaching.can_be(here & Way((), (questions.refused(one, phase),))) is Reach.NO
        ]
        before |= dict.fromkeys(hiding[:1] or earlier)
    if not before:
        return "no list that names it decides about what it accepts"
    if len(before) == 1:
        return f"{next(iter(before))} stands before it and runs all that it runs"
    return f"{listed_and(before)} stand before it and run all that it runs"


RULE = Rule(
    code="CAP121",
    name="never-chosen",
    severity=Severity.WARNING,
    what=(
        "A priority list names a backend that is never chosen in that phase, in no list: others "
        "that stand before it run all that it runs, no list that names it decides about what it "
        "accepts, or its own rules exclude each other. All questions are looked at; a backend that "
        "an invariant without `when` says is never chosen is left alone."
    ),
    why=(
        "Who reads the list believes that it can be chosen. A default meant for it goes to another "
        "backend, and nothing says so."
    ),
    bad=BAD,
    good=BAD.replace("order: [general, fast]", "order: [fast, general]").replace(
        "The general one", "The fast one"
    ),
    check=check,
)
