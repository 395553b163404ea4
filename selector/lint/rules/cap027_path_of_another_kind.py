"""CAP027: a path of the other kind of entry."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP027",
    name="path-of-another-kind",
    severity=Severity.ERROR,
    what=(
        "A sparse entry states a path of an entry that is not sparse (`mha`, `mqa`), or the "
        "reverse; or `by: dense_backend` for another path than a dense one."
    ),
    why=(
        "`mha` of a sparse entry would be a dense path under another name, which `dense_prefill` "
        "and the invariants do not see."
    ),
    bad="""mla: true
sparse: true
dense_prefill: false
rationale: The kernels have the top-k path only.
evidence: [https://github.com/vllm-project/vllm/pull/51395]
prefill_paths: [{path: mha, reason: Each query attends to its own top-k tokens.}]
""",
    good="""mla: true
sparse: true
dense_prefill: false
rationale: The kernels have the top-k path only.
evidence: [https://github.com/vllm-project/vllm/pull/51395]
prefill_paths: [{path: sparse_mqa, reason: Each query attends to its own top-k tokens.}]
""",
)
