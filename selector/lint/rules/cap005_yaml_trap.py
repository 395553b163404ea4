"""CAP005: what YAML versions read differently."""

from selector.lint.catalogue import Rule
from selector.lint.fixes import say_plainly
from selector.values import Severity

RULE = Rule(
    code="CAP005",
    name="yaml-trap",
    severity=Severity.ERROR,
    what=(
        "A scalar that YAML versions, or a person and a parser, read differently. Boolean words: "
        "`no`, `off`, `y` are booleans in YAML 1.1 and text in 1.2. Base 60: `9:0` is 540 in 1.1. "
        "Octal: `016` is 14 in 1.1 and 16 in 1.2. Numbers that were versions or capabilities: "
        "`12.10` is 12.1. Also dates, `0x10`, `1_000`, `1e3`, `.inf`, `=`. A `%YAML` directive is "
        "noted, because parsers do not heed it."
    ),
    why=(
        "The same file then means different things to different tools, and nobody is told: "
        "capability 12.10 becomes 12.1, a page of 016 tokens one of 14."
    ),
    bad="""capability: [12.0, 12.10]
""",
    good="""capability: ["12.0", "12.10"]
""",
    fix=say_plainly,
)
