"""CAP901: a comment switches off what is not there."""

from selector.lint.catalogue import Rule
from selector.lint.fixes import drop_comment
from selector.values import Severity

RULE = Rule(
    code="CAP901",
    name="unused-suppression",
    severity=Severity.WARNING,
    what="A comment switches a rule off where the rule finds nothing.",
    why="It hides the next real finding on that line.",
    bad="head_size: [64, 128]  # attnsel: ignore[CAP105] measured on 12.0 only",
    good="head_size: [64, 128]",
    fix=drop_comment,
)
