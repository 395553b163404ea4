"""What a problem says: what was seen, and what was meant."""

from __future__ import annotations

import pytest

from tests.unit.service.conftest import Served


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the body is empty"),
        (" ", "the body is empty"),
        ("{x}", "the body is no JSON: JSON is malformed"),
        ('{"device": "H200", "modle": "x"}', 'unknown field "modle"; did you mean model?'),
        (
            '{"device": "H200", "request": {"query_length": 1}}',
            'unknown field "query_length" - at "$.request"; did you mean query_len?',
        ),
        ('{"device": "H200", "facts": {"cuda": 12.8}}', 'a version is a text: "12.8"'),
        ('{"device": "H200", "model": "qwen3-9b"}', "did you mean qwen3-8b?"),
    ],
)
def test_a_problem_says_what_was_meant(served: Served, text: str, words: str) -> None:
    assert words in served.client.post("/v1/resolve", content=text).json()["detail"]
