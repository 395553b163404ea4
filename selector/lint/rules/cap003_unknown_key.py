"""CAP003: a key that the language does not have."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP003",
    name="unknown-key",
    severity=Severity.ERROR,
    what="A key that the language does not have; the nearest known one is named.",
    why=(
        "Where unknown keys are ignored, a misspelt negative claim falls back to a default that "
        "says the opposite. That is the fault of vLLM PR #51395 in another spelling."
    ),
    bad="""dense_prefil: false
rationale: Only the top-k path exists.
evidence: [https://github.com/vllm-project/vllm/pull/51395]
""",
    good="""dense_prefill: false
rationale: Only the top-k path exists.
evidence: [https://github.com/vllm-project/vllm/pull/51395]
""",
)
