"""CAP024: a sparse entry with an open range of capabilities."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP024",
    name="capability-not-listed",
    severity=Severity.ERROR,
    what=(
        'A sparse entry must list exact capabilities or whole majors (`"12.0"`, `12.x`), once and '
        "for both phases: no `any`, no ranges, no cases."
    ),
    why="An open range such as `>=10.0` takes 12.x along, and with it the pinned case, unseen.",
    bad="""mla: true
sparse: true
dense_prefill: false
rationale: The kernels have the top-k path only.
evidence: [https://github.com/vllm-project/vllm/pull/51395]
accepts:
  capability: [">=10.0"]
prefill_paths: [{path: sparse_mqa, reason: Each query attends to its own top-k tokens.}]
""",
    good="""mla: true
sparse: true
dense_prefill: false
rationale: The kernels have the top-k path only.
evidence: [https://github.com/vllm-project/vllm/pull/51395]
accepts:
  capability: ["10.0", "10.3", 12.x]
prefill_paths: [{path: sparse_mqa, reason: Each query attends to its own top-k tokens.}]
""",
)
