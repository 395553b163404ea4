"""Lines that are alike but for their lengths are answered as if each were the first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.binding import Selector
from selector.tables.lines import Lines, Written, answered, read_line
from selector.tables.rows import RowReader

SELECTORS = {
    "vllm-0.33.0": Selector.load("vllm-0.33.0"),
    "capabilities.yaml": Selector.load("capabilities.yaml"),
    "reads num_reqs": Selector.load(overlays=["tests/cases/many_requests.yaml"]),
}
LAYER = '"arch": "9.0", "head_size": 128, "dtype": "bfloat16"'

FORMS = {
    "plain": '{%s, "query_len": Q, "seq_len": S}',
    "close": '{%s,"query_len":Q,"seq_len":S}',
    "reversed": '{"seq_len": S, %s, "query_len": Q, "own": 1.50}',
    "first": '{"query_len": Q, "seq_len": S, %s}',
    "a space before the colon": '{%s, "query_len" : Q, "seq_len": S}',
    "ends in spaces": '{%s, "query_len": Q, "seq_len": S }  ',
    "drafts": '{%s, "query_len": Q, "seq_len": S, "speculative_tokens": 3}',
    "together": '{%s, "query_len": Q, "seq_len": S, "num_reqs": 40}',
    "letters": '{%s, "query_len": Q, "seq_len": S, "own": "ä"}',
    "escapes": '{%s, "query_len": Q, "seq_len": S, "own": "\\"seq_len\\": 5,"}',
    "deeper": '{%s, "own": {"query_len": Q, "seq_len": S}}',
    "deeper and not": '{%s, "own": {"query_len": 7}, "query_len" :Q, "seq_len": S}',
    "deeper, one": '{%s, "own": {"query_len": Q}, "seq_len": S}',
    "twice": '{%s, "query_len": 3, "query_len": Q, "seq_len": S}',
    "twice, not alike": '{%s, "query_len": Q, "query_len" :3, "seq_len": S}',
    "twice, not seen": '{%s, "query_len": Q, "seq_len": S, "query_l\\u0065n": 3}',
    "deeper and 3": '{%s, "own": {"query_len": Q}, "query_len" :3, "seq_len": S}',
    "one": '{%s, "query_len": Q}',
    "lists": '{%s, "query_len": Q, "seq_len": S, "query_lens": [1]}',
    "a name of an answer": '{%s, "phase": "mine", "query_len": Q, "seq_len": S}',
    "unknown layer": '{"arch": "9.0", "query_len": Q, "seq_len": S}',
    "no device": '{"head_size": 128, "query_len": Q, "seq_len": S}',
    "no layer": '{"arch": "9.0", "head_size": 0, "query_len": Q, "seq_len": S}',
    "texts": '{%s, "query_len": "Q", "seq_len": "S"}',
    "broken": '{%s, "query_len": Q, "seq_len": S',
    "an array": '[{"query_len": Q, "seq_len": S}]',
}
NUMBERS = st.sampled_from(
    ("0", "1", "2", "3", "16", "511", "512", "4096", "70000", "1" * 12, "1.5")
)


def plain(selector: Selector, line: bytes, number: int) -> str:
    """The line as it is answered alone."""
    row = read_line(line, number)
    return Written().line(*answered(RowReader(selector), row))


@pytest.mark.parametrize("selector", SELECTORS.values(), ids=SELECTORS)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_lines_of_one_form(form: str, selector: Selector) -> None:
    lines = Lines(RowReader(selector))
    both = ((3, 90), (1, 1), (5, 90), (4000, 4000), (9, 3), (1, 70_000))
    for number, lengths in enumerate(both, 1):
        text = form.replace("%s", LAYER).replace("Q", str(lengths[0])).replace("S", str(lengths[1]))
        line = text.encode()
        assert lines.answer(line, number)[0] == plain(selector, line, number)


@given(st.lists(st.tuples(st.sampled_from(sorted(FORMS)), NUMBERS, NUMBERS), max_size=12))
def test_lines_of_many_forms(rows: list[tuple[str, str, str]]) -> None:
    selector = SELECTORS["capabilities.yaml"]
    lines = Lines(RowReader(selector))
    for form, query, seq in rows:
        line = FORMS[form].replace("%s", LAYER).replace("Q", query).replace("S", seq).encode()
        assert lines.answer(line, 1)[0] == plain(selector, line, 1)


def test_a_line_like_others_is_not_read_again() -> None:
    read: list[bytes] = []

    def count(line: bytes, number: int) -> object:
        read.append(line)
        return read_line(line, number)

    lines = Lines(RowReader(SELECTORS["vllm-0.33.0"]), count)  # type: ignore[arg-type]
    for query in range(1, 50):
        lines.answer(b'{%s, "query_len": %d, "seq_len": 99}' % (LAYER.encode(), query), query)
    assert len(read) == 1


def test_the_answer_is_that_of_its_lengths() -> None:
    lines = Lines(RowReader(Selector.load(Path("tests/unit/cli/small.yaml"))))
    found = set()
    for query in (1, 2, 50):
        line = f'{{"arch": "9.0", "head_size": 128, "query_len": {query}, "seq_len": 60}}'
        found.add(json.loads(lines.answer(line.encode(), 1)[0])["phase"])
    assert len(found) > 1
