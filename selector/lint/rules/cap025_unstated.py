"""CAP025: what an entry must state and does not."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP025",
    name="unstated",
    severity=Severity.ERROR,
    what=(
        "An entry does not state a core field in `accepts`, or its paths where it serves prefill, "
        "or its decode threshold where it serves decode."
    ),
    why=(
        'Silence would have to mean "all" or "none", and engines differ in which. `any` says all.'
    ),
    bad="""accepts: {platform: [cuda], capability: ["9.0"], dtype: [bfloat16],
  kv_cache_dtype: [auto], block_size: any, attn_type: [decoder]}
""",
    good="""accepts: {platform: [cuda], capability: ["9.0"], dtype: [bfloat16],
  kv_cache_dtype: [auto], head_size: any, block_size: any, attn_type: [decoder]}
""",
)
