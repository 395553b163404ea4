"""CAP013: a name of nothing."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP013",
    name="unknown-name",
    severity=Severity.ERROR,
    what=(
        "A list, a denial or an invariant names an entry that is not there, or that does not "
        "serve the phase; or `requires` names a fact that is not declared."
    ),
    why=(
        "A misspelt name in a priority list drops a backend silently; one in a denial denies "
        "nothing."
    ),
    bad="""priorities:
  - {order: [page], reason: There is only one.}
""",
    good="""priorities:
  - {order: [paged], reason: There is only one.}
""",
)
