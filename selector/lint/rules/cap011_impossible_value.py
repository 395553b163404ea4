"""CAP011: a value that its field cannot have."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP011",
    name="impossible-value",
    severity=Severity.ERROR,
    what=(
        "A value that its field cannot have: outside the field's words, of another type, an empty "
        "range, a capability or a version specifier that is spelled otherwise, a code that the "
        "resolver uses itself."
    ),
    why=(
        "It can never be asked for, so the statement is empty: `bfloat17` accepts nothing, and "
        "the entry is refused for a reason that nobody sees."
    ),
    bad="""dtype: [float16, bfloat17]
""",
    good="""dtype: [float16, bfloat16]
""",
)
