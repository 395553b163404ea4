"""CAP015: one name for two things."""

from selector.lint.catalogue import Rule
from selector.lint.fixes import drop_repeated
from selector.values import Severity

RULE = Rule(
    code="CAP015",
    name="name-taken",
    severity=Severity.ERROR,
    what=(
        "A name is given to two things: two entries, a declared field and a built-in one or its "
        "alias, a word of the language, one entry twice in a list."
    ),
    why="Whoever reads the name cannot know which is meant, and one of the two is lost.",
    bad="""fields:
  sink: {type: boolean, role: feature, description: Whether the layer has sinks.}
""",
    good="""fields:
  two_sinks: {type: boolean, role: feature, description: Whether the layer has two sinks.}
""",
    fix=drop_repeated,
)
