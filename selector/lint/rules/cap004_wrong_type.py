"""CAP004: a value of another type."""

from selector.lint.catalogue import Rule
from selector.lint.fixes import quote
from selector.values import Severity

RULE = Rule(
    code="CAP004",
    name="wrong-type",
    severity=Severity.ERROR,
    what=(
        "A value of another type than the key has, or outside its list of words: text for a "
        "number, a mapping for a list, a blank `reason`, a path that does not exist."
    ),
    why=(
        "Engines that convert such values do so each in its own way, and a manifest should say "
        "the same to everybody who reads it."
    ),
    bad="""decode_threshold: "1"
""",
    good="""decode_threshold: 1
""",
    fix=quote,
)
