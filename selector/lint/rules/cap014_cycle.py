"""CAP014: derived values that need each other."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP014",
    name="cycle",
    severity=Severity.ERROR,
    what="Derived values need each other, so none can be worked out first.",
    why="There is no order in which they have values.",
    bad="""derive:
  one:
    source: https://example.org/mylib/versions
    first_match: [{when: {two: 2}, value: 1}, {value: 2}]
  two:
    source: https://example.org/mylib/versions
    first_match: [{when: {one: 1}, value: 2}, {value: 1}]
""",
    good="""derive:
  one:
    source: https://example.org/mylib/versions
    first_match: [{when: {capability: 9.x}, value: 1}, {value: 2}]
  two:
    source: https://example.org/mylib/versions
    first_match: [{when: {one: 1}, value: 2}, {value: 1}]
""",
)
