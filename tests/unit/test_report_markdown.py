"""Text that others wrote, within Markdown."""

from __future__ import annotations

import pytest

from selector.report.counts import percent_words
from selector.report.markdown import code, prose


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a.yaml:1", "`a.yaml:1`"),
        ("we|rd `x`", "`` we|rd `x` ``"),
        ("a``b", "```a``b```"),
    ],
)
def test_code_holds_any_backticks(text: str, shown: str) -> None:
    assert code(text) == shown


def test_prose_names_nobody_and_no_issue() -> None:
    assert prose("see #1 and @name") == "see #<!-- -->1 and @<!-- -->name"
    assert prose("a < b `c`") == r"a &lt; b \`c\`"
    assert prose("50 % at 3 # 4") == "50 % at 3 # 4"


@pytest.mark.parametrize(
    ("share", "words"), [(1.0, "100 %"), (0.9989, "100 %"), (0.123, "12 %"), (0.00015, "0.015 %")]
)
def test_a_bound_in_per_cent(share: float, words: str) -> None:
    assert percent_words(share) == words
