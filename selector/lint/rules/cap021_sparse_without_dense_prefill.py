"""CAP021: a sparse entry that says nothing of dense prefill."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP021",
    name="sparse-without-dense-prefill",
    severity=Severity.ERROR,
    what="An entry with `sparse: true` does not say whether it may compute prefill densely.",
    why=(
        'A sparse MLA backend of vLLM inherited "supports dense prefill" by one missing line, and '
        "every prompt past the decode threshold crashed on compute capability 12.0 (vLLM PR "
        "#51395). Here the answer must be written down."
    ),
    bad="""mla: true
sparse: true
prefill_paths: [{path: sparse_mqa, reason: Each query attends to its own top-k tokens.}]
""",
    good="""mla: true
sparse: true
dense_prefill: false
rationale: The kernels have the top-k path only.
evidence: [https://github.com/vllm-project/vllm/pull/51395]
prefill_paths: [{path: sparse_mqa, reason: Each query attends to its own top-k tokens.}]
""",
)
