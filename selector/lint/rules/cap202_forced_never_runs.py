"""CAP202: an overlay forces a backend that never runs what it is forced for."""

from collections.abc import Iterator

from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.solving import OverBudgetError
from selector.values import Finding, Phase, Severity

BAD = """\
attnsel: 1
overlay: our-fleet
priorities:
  - {when: {sink: true}, order: [mylib_paged], reason: Measured faster on our cards.}
"""


def check(context: Context) -> Iterator[Finding]:
    """Yields a finding for every backend that an overlay forces and that never runs there."""
    if context.covering_policed is None:
        return
    for index, name, reach in forced_in_vain(context):
        (phase, *_) = context.manifest.priorities[index].orders
        at = context.name_at(index, phase, name)
        if not reach:
            yield RULE.undecided(at, f"whether {name} ever runs what it is forced for")
            continue
        denied = [one for one in context.manifest.deny if one.backend == name]
        why = f"; {denied[0].position} denies it" if denied else ""
        yield RULE.finding(
            at,
            f"{name} is forced here, and never runs anything that this list decides about{why}",
            "force another one, or narrow `when` to what it runs",
        )


def forced_in_vain(context: Context) -> Iterator[tuple[int, str, bool]]:
    """Yields the lists of overlays that name one entry only, which never runs; false: undecided."""
    covering = context.covering_policed
    for index, one in context.own_lists():
        names = {name for order in one.orders.values() for name in order}
        if covering is None or len(names) != 1 or not context.overlays:
            continue
        (name,) = names
        phases = [p for p in Phase if p in one.orders and covering.questions.names(p, index)]
        try:
            decided = any(covering.decided(phase, index) for phase in phases)
            if decided and not any(covering.runs(phase, index, name) for phase in phases):
                yield index, name, True
        except OverBudgetError:
            yield index, name, False


RULE = Rule(
    code="CAP202",
    name="forced-never-runs",
    severity=Severity.ERROR,
    what=(
        "A priority list of an overlay names one backend only, and that backend refuses everything "
        "that the list decides about, or is denied."
    ),
    why=(
        "The list comes before those of the manifest, and later lists are not asked: whatever it "
        "takes gets no backend at all."
    ),
    bad=BAD,
    good=BAD.replace("sink: true", "head_size: 128"),
    check=check,
)
