"""CAP114: a run that no evidence beside the manifest records."""

from __future__ import annotations

import re
from collections.abc import Iterator

from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.statements import entries
from selector.values import Finding, Severity

_RUN = re.compile(r"[0-9a-z.]+-[0-9]{4}-[0-9]{2}-[0-9]{2}-[0-9a-f]{8}")
"""An id as ``attnsel certify`` gives it; ids of another kind are of somebody else's records."""


def _check(context: Context) -> Iterator[Finding]:
    for raw, entry in entries(context):
        if not entry.verified_on or context.evidence is None:
            continue
        for name, at in zip(entry.verified_on, raw["verified_on"].items_at, strict=True):
            run = context.evidence.get(name)
            if run is None and _RUN.fullmatch(name):
                yield RULE.finding(
                    at,
                    f"no file in the folder evidence records the run {name}",
                    "put the file that `attnsel certify` wrote there",
                )
            elif run is not None and entry.name not in run.entries:
                yield RULE.finding(
                    at, f"{name} ran no claim of {entry.name}", "name a run that did"
                )


RULE = Rule(
    code="CAP114",
    name="unknown-evidence",
    severity=Severity.WARNING,
    what=(
        "A run in `verified_on`, named as `attnsel certify` names them, that no file in the folder "
        "`evidence` beside the manifest records; or one that ran no claim of this entry. Where "
        "there is no such folder, nothing is said."
    ),
    why="An id that leads nowhere can be checked by nobody, and looks as if somebody had.",
    bad="""verified_on: ["9.0-2026-11-30-4e5f6a7b"]  # evidence/ holds no such run
""",
    good="""verified_on: ["9.0-2026-11-30-4e5f6a7b"]  # evidence/h200-2026-11-30.json
""",
    check=_check,
)
