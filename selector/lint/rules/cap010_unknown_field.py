"""CAP010: a field that does not exist."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP010",
    name="unknown-field",
    severity=Severity.ERROR,
    what=(
        "A rule asks about a field that does not exist, about one where the field cannot be "
        "asked, or by an alias. Fields are those of the vocabulary (`attnsel info --fields`) and "
        "those that the manifest declares."
    ),
    why=("A condition on a field that nobody sets never holds, so the rule below it does nothing."),
    bad="""constraints:
  - {when: {hed_size: 64, capability: "12.0"}, code: TOO_SMALL, reason: Two fit no tile.}
""",
    good="""constraints:
  - {when: {head_size: 64, capability: "12.0"}, code: TOO_SMALL, reason: Two fit no tile.}
""",
)
