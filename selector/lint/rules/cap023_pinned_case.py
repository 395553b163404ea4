"""CAP023: dense prefill of a sparse entry on 12.x."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP023",
    name="pinned-case",
    severity=Severity.ERROR,
    what="A sparse entry that lists 12.x says `dense_prefill: true`.",
    why=(
        "No dense prefill path exists there: the kernels have the top-k path only (vLLM PR "
        "#51395). The case is pinned in the schema, so that lifting it takes a change of schema, "
        "invariant and rationale together."
    ),
    bad="""mla: true
sparse: true
dense_prefill: true
accepts:
  capability: ["12.0"]
prefill_paths: [{path: sparse_mqa, reason: Each query attends to its own top-k tokens.}]
""",
    good="""mla: true
sparse: true
dense_prefill: false
rationale: The kernels have the top-k path only.
evidence: [https://github.com/vllm-project/vllm/pull/51395]
accepts:
  capability: ["12.0"]
prefill_paths: [{path: sparse_mqa, reason: Each query attends to its own top-k tokens.}]
""",
)
