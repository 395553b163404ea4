"""CAP006: a bound of the reader."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP006",
    name="limit",
    severity=Severity.ERROR,
    what=(
        "A bound of the reader is passed: 4 MiB of text, 40 levels, 200,000 nodes, 400,000 nodes "
        "once aliases are expanded, 1,024 items in one list of values, 200 findings; or an anchor "
        "contains itself. A manifest with 200 entries that share one anchor is far below them."
    ),
    why=(
        "A few lines of aliases can stand for billions of nodes. A limit that is passed is an "
        "error, never a document that is read in part."
    ),
    bad="""definitions:
  sizes: &sizes [64, *sizes]
""",
    good="""definitions:
  sizes: &sizes [64, 128]
""",
)
