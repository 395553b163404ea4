"""CAP105: a range of architectures without an upper end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from selector.domains import Domain
from selector.fields import capability_text, parse_capability, parse_capability_set
from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.statements import Place, Stated, accepted, atoms, known_in, predicates
from selector.manifest import Entry
from selector.values import Finding, Severity
from selector.words import listed_and

_SPECIFIC = parse_capability("9.0")
"""From here on kernels are built for exact architectures (``sm_90a``, ``sm_100a``, ``sm_120a``)."""

_QUIET = (Place.CLAIMED, Place.CONSTRAINT, Place.REFUSAL)
"""Where an open range refuses more than it must, or only repeats what somebody else says."""


def _check(context: Context) -> Iterator[Finding]:
    reached = _reached(context)
    for stated in predicates(context):
        if stated.field != "capability" or stated.place in _QUIET:
            continue
        for value, at in atoms(stated.value, stated.at):
            floor = _floor(value)
            if floor is None or not _matters(stated, floor, context, reached):
                continue
            now = known_in(Domain.between(floor, None))
            today = f"today it takes {listed_and(now)}" if now else "no known device is in it"
            yield RULE.finding(
                at,
                f"capability {value} has no upper end; {today}, tomorrow whatever comes",
                f"list what it was made for, or close it: {_closed(floor)}",
            )


def _floor(value: Any) -> int | None:
    """Where an open range begins; ``None``: it is none."""
    if not isinstance(value, str) or not value.startswith(">="):
        return None
    return parse_capability_set(value).spans[0].low


def _closed(floor: int) -> str:
    """A range with an end: today's, or from Hopper on as far as the family is known."""
    last = known_in(Domain.between(floor, None if floor < _SPECIFIC else floor // 100 * 100 + 99))
    begin = capability_text(floor)
    return f'"{begin}..{last[-1]}"' if last and last[-1] != begin else f'"{begin}"'


def _matters(stated: Stated, floor: int, context: Context, reached: Callable[[str], bool]) -> bool:
    if stated.place is Place.ACCEPTS:
        return True
    if floor < _SPECIFIC:
        return False
    if stated.place is Place.DERIVE:
        return reached(stated.name)
    if stated.place is Place.PRIORITY:
        listed = (name for k in ("order", "prefill", "decode") for name in stated.owner.get(k, ()))
        return any(_is_open(context.manifest.entries[name]) for name in listed)
    return _is_open(context.manifest.entries[stated.name])


def _is_open(entry: Entry) -> bool:
    """Whether an entry accepts architectures without end."""
    takes = accepted(entry, "capability")
    return takes is None or any(span.high is None for span in takes.spans)


def _reached(context: Context) -> Callable[[str], bool]:
    """Tells whether a derived value is read for a device that an entry accepts without end."""
    manifest = context.manifest
    used: set[str] = set()
    closed = {name for name, entry in manifest.entries.items() if not _is_open(entry)}
    for stated in predicates(context):
        if stated.place is not Place.DERIVE and stated.name not in closed:
            used.add(stated.field)
    pending = [name for name in used if name in manifest.derive]
    while pending:
        for rule in manifest.derive[pending.pop()].rules:
            more = {n for n in rule.when.reads if n in manifest.derive} - used
            used |= more
            pending += more
    return used.__contains__


RULE = Rule(
    code="CAP105",
    name="open-architectures",
    severity=Severity.WARNING,
    what=(
        'A range of compute capabilities without an upper end, such as ">=10.0", where it makes a '
        "claim for devices that nobody has looked at. What an entry accepts must always have an "
        "end. A condition (of a case, path, coercion, priority list, derived value, or in a "
        "constraint's `require`) may be open where it cannot matter: where the entries that it is "
        "for list their own capabilities, or where it begins below 9.0, because what Ampere and "
        "Ada brought stayed, while kernels from Hopper on are built for one architecture each "
        "(sm_90a, sm_100a, sm_120a). Open ranges that refuse (`deny`, `invariants`, `space`, "
        "`joint`, `dense_prefill_except`, the `when` of a constraint) are never a finding, nor is "
        "`any`, which says itself what it is, nor what an engine's own code claims."
    ),
    why=(
        "The commonest wrong claim in public reports. 10.0 is B200, and 12.0 is no bigger B200: it "
        "has less than half the shared memory and other matrix units. `major >= 10` gave RTX PRO "
        "6000 a kernel that asserts at most 11 (vLLM PR #46002), and has_device_capability(90) let "
        "10.x have sinks that only 9.0 has (vLLM PR #22933)."
    ),
    bad="""accepts: {capability: ">=10.0"}
""",
    good="""accepts: {capability: ["10.0", "10.3"]}
""",
    check=_check,
)
