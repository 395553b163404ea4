"""CAP113: evidence that is about an older version, or about another claim."""

from __future__ import annotations

from collections.abc import Iterator

from selector.evidence import Evidence, entry_digest
from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.statements import entries
from selector.manifest import Entry
from selector.values import Finding, Severity


def _check(context: Context) -> Iterator[Finding]:
    for raw, entry in entries(context):
        if not entry.verified_on or context.evidence is None:
            continue
        for name, at in zip(entry.verified_on, raw["verified_on"].items_at, strict=True):
            run = context.evidence.get(name)
            if run is None or entry.name not in run.entries:
                continue
            stale = _other_claim(entry, run) or _other_version(entry, run)
            if stale:
                yield RULE.finding(at, stale, "run `attnsel certify` again, and name that run")


def _other_claim(entry: Entry, run: Evidence) -> str:
    if run.entries[entry.name] == entry_digest(entry):
        return ""
    return f"the claims of {entry.name} changed since {run.id} was recorded ({run.date[:10]})"


def _other_version(entry: Entry, run: Evidence) -> str:
    """Which version the entry asks for that the evidence is not about."""
    from packaging.specifiers import SpecifierSet

    for need in entry.requires:
        seen = run.facts.get(need.fact)
        if need.specifier is None or not isinstance(seen, str):
            continue
        if not SpecifierSet(need.specifier).contains(seen, True):
            return (
                f"{run.id} was recorded with {need.fact} {seen}, "
                f"and {entry.name} asks for {need.specifier}"
            )
    return ""


RULE = Rule(
    code="CAP113",
    name="stale-evidence",
    severity=Severity.WARNING,
    what=(
        "A run in `verified_on` whose evidence is about something else: the entry claims something "
        "else than when it was recorded, or asks in `requires` for another version than was "
        "installed there. Evidence is read from the folder `evidence` beside the manifest; where "
        "there is none, nothing is said."
    ),
    why=(
        "A kernel that was right in one release is another kernel in the next, and a claim that "
        "was widened since was never run. An id that stays after either change says that somebody "
        "looked, when nobody did."
    ),
    bad="""requires: {flashinfer-python: ">=0.7.4"}
verified_on: ["9.0-2026-06-02-0a1b2c3d"]  # its evidence says flashinfer-python 0.6.14
""",
    good="""requires: {flashinfer-python: ">=0.7.4"}
verified_on: ["9.0-2026-11-30-4e5f6a7b"]  # its evidence says flashinfer-python 0.7.4
""",
    check=_check,
)
