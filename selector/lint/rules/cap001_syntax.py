"""CAP001: text that is no YAML."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP001",
    name="syntax",
    severity=Severity.ERROR,
    what=(
        "The text is no YAML, or YAML that manifests do not use: a bracket or quote that is not "
        "closed, a tab in the indentation, no space after a colon or a dash, a tag such as "
        "`!!str`, an alias without an anchor, a second document, nothing at all. The finding "
        "stands where the mistake is, which is often lines above the place where a parser gives "
        "up."
    ),
    why=(
        "What cannot be read says nothing. Worse is what can be read otherwise than it was meant: "
        "`{path:mha}` is valid YAML for a key `path:mha` without a value."
    ),
    bad="""prefill_paths: [{path:mha, reason: The only way.}]
""",
    good="""prefill_paths: [{path: mha, reason: The only way.}]
""",
)
