"""CAP016: rules that leave requests without an answer."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP016",
    name="no-last-rule",
    severity=Severity.ERROR,
    what=(
        "Rules of which the first that holds decides must end with one that has no condition, and "
        "only the last may have none. A constraint without any condition, and an exception that "
        "always holds, are mistakes of the same kind."
    ),
    why="Otherwise some requests have no answer, or rules stand where they are never reached.",
    bad="""decode_threshold: {cases: [{when: {capability: 9.x}, value: 4}]}
""",
    good="""decode_threshold: {cases: [{when: {capability: 9.x}, value: 4}, {value: 1}]}
""",
)
