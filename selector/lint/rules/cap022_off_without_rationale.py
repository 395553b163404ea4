"""CAP022: something is off, and nobody says why."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP022",
    name="off-without-rationale",
    severity=Severity.ERROR,
    what=(
        "`dense_prefill: false`, or a phase that is `disabled: true`, without a `rationale`, or "
        "with a blank one."
    ),
    why=(
        "Something that is off without a reason is turned on again by the next person who "
        "measures that it would be faster."
    ),
    bad="""phases: {prefill: {}, decode: {disabled: true}}
""",
    good="""phases:
  prefill: {}
  decode:
    disabled: true
    rationale: The decode kernel of mylib 1.2 reads past the last page.
    evidence: [https://example.org/mylib/issues/7]
""",
)
