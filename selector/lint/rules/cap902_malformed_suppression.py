"""CAP902: a comment for lint that cannot be read, or says no code or no reason."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP902",
    name="malformed-suppression",
    severity=Severity.WARNING,
    what=(
        "A comment for lint must name the codes that it switches off and say why. Errors found "
        "while reading (CAP0xx) cannot be switched off."
    ),
    why="A comment that switches everything off hides faults that nobody has seen yet.",
    bad='capability: ">=10.0"  # attnsel: ignore',
    good='capability: ">=10.0"  # attnsel: ignore[CAP105] measured on all of them',
)
