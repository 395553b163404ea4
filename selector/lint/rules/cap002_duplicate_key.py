"""CAP002: one key twice."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP002",
    name="duplicate-key",
    severity=Severity.ERROR,
    what=(
        "A key is given twice in one mapping. Two keys that some YAML version takes for one are a "
        "duplicate too: `12.10` and `12.1` are one number, `yes` and `true` one boolean, `010` "
        'and `8` one number in YAML 1.1; `1` and `"1"` are one key here and in JSON.'
    ),
    why="Parsers keep the last one without a word, so what stands above it is lost.",
    bad="""dtype: [bfloat16]
head_size: [64, 128]
head_size: [256]
""",
    good="""dtype: [bfloat16]
head_size: [64, 128, 256]
""",
)
