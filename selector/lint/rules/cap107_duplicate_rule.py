"""CAP107: a rule that is stated twice."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.statements import meaning
from selector.rules import Constraint
from selector.values import Finding, Position, Severity


def _check(context: Context) -> Iterator[Finding]:
    manifest = context.manifest
    for entry in manifest.entries.values():
        for spec in entry.phases.values():
            yield from _twice(spec.constraints, "constraint")
        if entry.claimed and entry.claimed.constraints:
            yield from _twice(entry.claimed.constraints, "constraint")
    yield from _twice(manifest.space, "space rule")
    joints = ((one.position, (meaning(one.when), frozenset(one.same))) for one in manifest.joint)
    yield from _repeated(joints, "joint rule")
    denials = ((one.position, (meaning(one.when), one.backend)) for one in manifest.deny)
    yield from _repeated(denials, "denial")


def _twice(constraints: Iterable[Constraint], what: str) -> Iterator[Finding]:
    return _repeated(
        (
            (
                one.position,
                (
                    meaning(one.when),
                    meaning(one.require),
                    frozenset(map(meaning, one.any_of)),
                ),
            )
            for one in constraints
        ),
        what,
    )


def _repeated(stated: Iterable[tuple[Position, Hashable]], what: str) -> Iterator[Finding]:
    first: dict[Hashable, tuple[int, Position]] = {}
    for number, (at, means) in enumerate(stated):
        earlier, known = first.setdefault(means, (number, at))
        if earlier != number:
            where = f"line {known.line}" if known.file == at.file else f"{known.file}:{known.line}"
            yield RULE.finding(at, f"this {what} says what that of {where} says", "remove one")


RULE = Rule(
    code="CAP107",
    name="duplicate-rule",
    severity=Severity.WARNING,
    what=(
        "A constraint of an entry, or a rule of `space`, `joint` or `deny`, that says what another "
        "one beside it says: the same conditions on the same fields, however they are written, "
        "and whatever their codes and reasons are."
    ),
    why=(
        "An answer then gives two reasons for one fact, and whoever corrects one of them leaves "
        "the other in force."
    ),
    bad="""constraints:
  - {when: {sink: true, head_size: [64, 80]}, code: SMALL_SINK, reason: No kernel.}
  - {when: {head_size: [80, 64], sink: true}, code: NO_SINK, reason: Not built.}
""",
    good="""constraints:
  - {when: {sink: true, head_size: [64, 80]}, code: SMALL_SINK, reason: No kernel.}
""",
    check=_check,
)
