"""CAP008: a key that must be there."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP008",
    name="missing-key",
    severity=Severity.ERROR,
    what=(
        "A key that must be there is not: an entry without `source`, a rule without `reason`, a "
        "fact without `description`, a constraint without a condition."
    ),
    why=(
        "Nothing is inherited and nothing is assumed. What a manifest does not say would have to "
        "be guessed by each reader."
    ),
    bad="""prefill_paths: [{path: mha}]
""",
    good="""prefill_paths: [{path: mha, reason: The only way.}]
""",
)
