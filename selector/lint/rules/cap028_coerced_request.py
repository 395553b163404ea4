"""CAP028: a backend that changes the request."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP028",
    name="coerced-request",
    severity=Severity.ERROR,
    what=(
        "`coerce` changes what the request is: the device, the kind of layer, dense prefill, "
        "lengths, facts or derived values."
    ),
    why=(
        "A backend chooses its cache type or page size; to change the request is to answer "
        "another question, and to step around what is pinned."
    ),
    bad="""coerce: {capability: [{value: "9.0"}]}
""",
    good="""coerce: {kv_cache_dtype: [{value: same}]}
""",
)
