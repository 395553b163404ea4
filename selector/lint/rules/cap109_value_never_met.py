"""CAP109: a value that its field never has, as far as is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from selector.devices import known_capabilities
from selector.domains import Domain
from selector.fields import capability_text, parse_capability, parse_capability_set
from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.statements import Place, Stated, atoms, known_in, predicates
from selector.values import Finding, Position, Severity
from selector.words import listed_and


def _check(context: Context) -> Iterator[Finding]:
    derived = _derived_numbers(context)
    done: set[Position] = set()
    for stated in predicates(context):
        for value, at in atoms(stated.value, stated.at):
            if at in done:
                continue
            found = None
            if stated.field == "capability":
                found = _unknown_device(stated, value, at)
            elif stated.field in derived:
                found = _never_derived(stated, value, at, derived[stated.field])
            if found is not None:
                done.add(at)
                yield found


def _derived_numbers(context: Context) -> dict[str, Domain]:
    """Derived values that are numbers → every value that their rules give."""
    return {
        name: Domain.of(*(rule.result for rule in match.rules))
        for name, match in context.manifest.derive.items()
        if context.manifest.vocabulary.fields[name].type == "integer"
    }


def _never_derived(stated: Stated, value: Any, at: Position, known: Domain) -> Finding | None:
    if isinstance(value, dict):
        low, high = value.get("min"), value.get("max")
        if isinstance(low, dict) or isinstance(high, dict) or not {*value} - {"or"}:
            return None
        meant = Domain.between(low, high, value.get("multiple_of", 1))
        meant |= Domain.of(*value.get("or", ()))
        shown = "no value of this range"
    else:
        meant, shown = Domain.of(value), str(value)
    if value == "any" or not (meant & known).is_empty():
        return None
    numbers = sorted(n for span in known.spans for n in (span.low,) if n is not None)
    texts = [*map(str, numbers), *sorted(str(name) for name in known.names)]
    verb = "is" if isinstance(value, dict) else "is never"
    return RULE.finding(
        at,
        f"{stated.field} {verb} {shown}; its rules give {listed_and(texts)}",
        f"compare with one of these, or add a rule to `derive: {stated.field}`",
    )


def _unknown_device(stated: Stated, value: Any, at: Position) -> Finding | None:
    """A capability that no known device has; of ranges that refuse, tomorrow's are meant."""
    if not isinstance(value, str) or value in ("any", "absent", "unset"):
        return None
    if value.startswith(("<", ">=")) or stated.place is Place.CLAIMED:
        return None
    meant = parse_capability_set(value)
    if known_in(meant) or (stated.place is Place.REFUSAL and meant.only() is None):
        return None
    code = meant.spans[0].low or 0
    if code < parse_capability(known_capabilities()[0]):
        return None  # older than what is listed: real, and of no use today
    near = min(map(parse_capability, known_capabilities()), key=lambda c: (abs(c - code), c))
    return RULE.finding(
        at,
        f"no known device has capability {value}",
        f"did you mean {capability_text(near)}? `attnsel info --gpus` lists all",
        Severity.NOTE,
    )


RULE = Rule(
    code="CAP109",
    name="value-never-met",
    severity=Severity.WARNING,
    what=(
        "A value that its field never has, wherever it stands: a derived value that is compared "
        "with a number which none of its rules gives; or, as a note, a capability that no known "
        "device has, such as 9.5 or 13.x (`attnsel info --gpus` lists the known ones). Ranges "
        "such as `<9.0` are no finding, nor is a family that is only refused. Names outside a "
        "field's list are errors already when the manifest is read (CAP011)."
    ),
    why="The rule never holds, or the claim never helps anybody, and nothing else says so.",
    bad="""derive:
  fa_version:
    source: "vLLM 0.33.0, fa_utils.get_flash_attn_version"
    first_match: [{when: {capability: 9.x}, value: 3}, {value: 2}]
priorities:
  - {when: {fa_version: 4}, order: [paged], reason: FlashAttention 4 first.}
""",
    good="""priorities:
  - {when: {fa_version: 3}, order: [paged], reason: FlashAttention 3 first.}
""",
    check=_check,
)
