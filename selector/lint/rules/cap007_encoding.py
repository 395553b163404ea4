"""CAP007: what is not UTF-8 text."""

from selector.lint.catalogue import Rule
from selector.lint.fixes import drop_mark
from selector.values import Severity

RULE = Rule(
    code="CAP007",
    name="encoding",
    severity=Severity.ERROR,
    what=(
        "The file is not UTF-8 text: another encoding such as UTF-16 or Latin-1, a byte order "
        "mark, a control character (raw or behind an escape), a character that only looks like a "
        "space, or line ends that not every tool takes for one. Files whose lines end with "
        "carriage returns only are read, with a warning."
    ),
    why=(
        "Such text looks right and is read otherwise, its lines are counted differently by "
        "editors, or it steers the terminal on which a finding is shown."
    ),
    bad="""description: "Paged attention of \\e[31mmylib."
""",
    good="""description: Paged attention of mylib.
""",
    fix=drop_mark,
)
