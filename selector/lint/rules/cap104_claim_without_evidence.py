"""CAP104: a claim that was verified on no hardware."""

from __future__ import annotations

import re
from collections.abc import Iterator

from selector.document import Mapping
from selector.fields import parse_capability, show_domain
from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.statements import accepted, entries, known_in, union_of
from selector.manifest import Entry
from selector.values import Finding, Severity
from selector.words import listed_and

_RUN = re.compile(r"(?P<where>[0-9]{1,2}\.[0-9]{1,2})-[0-9]{4}-[0-9]{2}-[0-9]{2}(?:-|$)")
"""An evidence id of ``attnsel certify``: the compute capability, the day, and more."""


def _check(context: Context) -> Iterator[Finding]:
    kept = any(entry.verified_on for _, entry in entries(context))
    for raw, entry in entries(context):
        if entry.evidence:
            continue
        if entry.verified_on:
            yield from _elsewhere(raw, entry)
            continue
        wider = list(_wider(context, raw, entry))
        yield from wider
        if kept and not wider:
            yield RULE.finding(
                raw.values_at["name"],
                f"nothing says that {entry.name} was ever run, and of others it is said",
                "name the run of `attnsel certify` in `verified_on`, or a report in `evidence`",
                Severity.NOTE,
            )


def _wider(context: Context, raw: Mapping, entry: Entry) -> Iterator[Finding]:
    """The first field of which an entry accepts what the engine's own code refuses."""
    fields = context.manifest.vocabulary.fields
    claimed = entry.claimed.accepts if entry.claimed else {}
    for name, rules in claimed.items():
        takes, says = accepted(entry, name), union_of([rules])
        every = context.manifest.vocabulary.universes[name]
        more = None if takes is None or says is None else (takes & every) - says
        if more is not None and not more.is_empty():
            place = raw["claimed"]["accepts"].values_at[name]
            yield RULE.finding(
                raw["accepts"].values_at.get(name, raw.values_at["accepts"]),
                f"{name} {show_domain(fields[name], more)} is accepted, the engine's own code "
                f"refuses it ({place.file}:{place.line}), and nothing says that it was run",
                "link in `evidence` what shows it",
            )
            return


def _elsewhere(raw: Mapping, entry: Entry) -> Iterator[Finding]:
    """An entry that was run on some of the architectures that it accepts."""
    matches = [_RUN.match(run) for run in entry.verified_on]
    run = sorted({match["where"] for match in matches if match}, key=parse_capability)
    takes = accepted(entry, "capability")
    if takes is None or not all(matches):
        return  # ids of another kind: what they say of devices is not known
    left = [text for text in known_in(takes) if text not in run]
    if left:
        yield RULE.finding(
            raw.values_at["verified_on"],
            f"{entry.name} was run on {listed_and(run)}, and also accepts {listed_and(left)}",
            "run `attnsel certify` there too, or link a report in `evidence`",
            Severity.NOTE,
        )


RULE = Rule(
    code="CAP104",
    name="claim-without-evidence",
    severity=Severity.WARNING,
    what=(
        "A claim that was verified on no hardware, once an entry. A warning: the entry accepts "
        "what the engine's own code (`claimed:`) refuses, and names neither `evidence` nor "
        "`verified_on`. A note: it names neither, in a manifest that keeps runs of other entries "
        "in `verified_on`; or its runs (ids of `attnsel certify`, which begin with the compute "
        "capability) were on some only of the architectures that it accepts. A manifest that "
        "keeps no runs at all is left alone."
    ),
    why=(
        "A switch that is turned to yes makes a backend start, not work: with the check for batch "
        "invariance lifted, results still differed between batches (vLLM issue #48613); sparse MLA "
        "was claimed for 12.1 on the word of the check itself (vLLM PR #46055)."
    ),
    bad="""accepts: {capability: ["9.0", "12.1"]}
claimed: {source: "vLLM 0.33.0, FlashMLABackend", accepts: {capability: "9.0"}}
""",
    good="""accepts: {capability: ["9.0", "12.1"]}
evidence: ["https://example.org/a-run-on-12.1"]
claimed: {source: "vLLM 0.33.0, FlashMLABackend", accepts: {capability: "9.0"}}
""",
    check=_check,
)
