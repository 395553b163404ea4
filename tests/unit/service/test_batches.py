"""Tables of questions: the same lines as ``attnsel batch`` writes, in three forms."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from selector.service.batches import Readers
from selector.tables.rows import RowReader
from tests.unit.service.conftest import Serve, Served

ROW = {"arch": "9.0", "head_size": 128, "dtype": "bfloat16", "kv_cache_dtype": "auto"}
ROWS: list[dict[str, Any]] = [
    ROW | {"attn_type": "decoder", "query_len": 5, "seq_len": 5, "own": "a"},
    ROW | {"attn_type": "decoder", "query_len": 1, "seq_len": 50, "own": "b"},
    ROW | {"head_size": 0},
    ROW | {"error": "mine"},
    {},
]
LINES = {"content-type": "application/jsonl"}
ARROW = {"content-type": "application/vnd.apache.arrow.stream"}


def as_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def printed(served: Served, text: str, *options: str) -> str:
    """What the command writes."""
    arguments = ["batch", "-", "--manifest", str(served.file), *options]
    return CliRunner().invoke(app, arguments, input=text).stdout


def test_lines(served: Served) -> None:
    text = f"{as_lines(ROWS)}\n{{nonsense\n[]\n" + "x" * 50
    answer = served.client.post("/v1/resolve:batch", content=text, headers=LINES)
    assert (answer.status_code, answer.text) == (200, printed(served, text))
    assert answer.headers["attnsel-generation"] == "1"


def test_an_array(served: Served) -> None:
    answer = served.client.post("/v1/resolve:batch", json=ROWS)
    lines = printed(served, as_lines(ROWS)).splitlines()
    assert answer.json() == [json.loads(line) for line in lines]
    assert answer.headers["content-type"] == "application/json"
    assert served.client.post("/v1/resolve:batch", json=[]).json() == []
    for bad in ({}, [1], "x"):
        assert served.client.post("/v1/resolve:batch", json=bad).status_code == 422


def test_an_arrow_stream(served: Served) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    ipc = pytest.importorskip("pyarrow.ipc")
    rows = [row for row in ROWS if row] * 3
    names = dict.fromkeys(name for row in rows for name in row)
    table = pyarrow.Table.from_pylist([{n: row.get(n) for n in names} for row in rows])
    sink = io.BytesIO()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    answer = served.client.post("/v1/resolve:batch", content=sink.getvalue(), headers=ARROW)
    assert answer.status_code == 200, answer.text
    found = ipc.open_stream(io.BytesIO(answer.content)).read_all().to_pylist()
    lines = printed(served, as_lines([{n: row.get(n) for n in names} for row in rows]))
    for row, line in zip(found, lines.splitlines(), strict=True):
        expected = json.loads(line)
        if expected["rejections"] is not None:
            expected["rejections"] = json.dumps(expected["rejections"])
        assert row == expected


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 100, 300])
def test_what_is_no_arrow_stream(served: Served, cut: int) -> None:
    pytest.importorskip("pyarrow")
    answer = served.client.post("/v1/resolve:batch", content=b"\xff" * cut, headers=ARROW)
    assert (answer.status_code, answer.json()["code"]) == (400, "NOT_ARROW")


def test_parameters(served: Served) -> None:
    text = as_lines([{k: v for k, v in row.items() if k != "arch"} for row in ROWS])
    url = "/v1/resolve:batch?device=8.0&closed_world=true&manifest=engine"
    answer = served.client.post(url, content=text, headers=LINES)
    assert answer.text == printed(served, text, "--arch", "8.0", "--closed-world")
    url = "/v1/resolve:batch?closed_world=yes"
    assert served.client.post(url, content=text, headers=LINES).json()["code"] == "PARAMETER"


def test_most_rows(serve: Serve) -> None:
    served = serve(batch_rows=2)
    row = as_lines([ROW])
    for media, two, three in (
        ("application/jsonl", row * 2 + "\n\n", row * 3),
        ("application/json", json.dumps([ROW] * 2), json.dumps([ROW] * 3)),
    ):
        headers = {"content-type": media}
        answer = served.client.post("/v1/resolve:batch", content=two, headers=headers)
        assert answer.status_code == 200
        answer = served.client.post("/v1/resolve:batch", content=three, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (413, "TOO_MANY_ROWS")


def test_longest_batch(serve: Serve) -> None:
    text = as_lines(ROWS)
    served = serve(batch_bytes=len(text), body_bytes=1)
    assert served.client.post("/v1/resolve:batch", content=text, headers=LINES).status_code == 200
    answer = served.client.post("/v1/resolve:batch", content=text + "\n", headers=LINES)
    assert (answer.status_code, answer.json()["code"]) == (413, "TOO_LONG")


def test_a_line_that_is_too_deep_is_an_error_of_its_row(serve: Serve) -> None:
    served = serve(depth=3)
    text = '{"a": {"b": {}}}\n{"a": {"b": {"c": {}}}}\n'
    answer = served.client.post("/v1/resolve:batch", content=text, headers=LINES)
    first, second = map(json.loads, answer.text.splitlines())
    assert "names no device" in first["error"]
    assert second["error"] == "line 2 is nested more than 3 deep"


def test_a_row_names_a_preset_and_never_a_path(served: Served, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "qwen3"}')
    rows = [{"arch": "9.0", "model": str(config)}, {"arch": "9.0", "model": "qwen3-8b"}]
    answer = served.client.post("/v1/resolve:batch", content=as_lines(rows), headers=LINES)
    first, second = map(json.loads, answer.text.splitlines())
    assert "no preset is called" in first["error"]
    assert second["error"] is None


def test_a_table_like_one_before_gets_the_same_answers(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What read the first one reads the next; the snapshot that replaces it starts anew."""
    made: list[object] = []
    begin = RowReader.__init__
    monkeypatch.setattr(
        RowReader, "__init__", lambda self, *a, **k: made.append(self) or begin(self, *a, **k)
    )
    first = served.client.post("/v1/resolve:batch", content=as_lines(ROWS), headers=LINES)
    again = served.client.post("/v1/resolve:batch", content=as_lines(ROWS), headers=LINES)
    claimed = served.client.post("/v1/resolve:batch?as_claimed=true", json=ROWS)
    assert again.content == first.content
    assert len(made) == 2
    assert claimed.status_code == 200
    served.file.write_text(served.file.read_text().replace('version: "1"', 'version: "2"'))
    served.service.live["engine"].reload()
    after = served.client.post("/v1/resolve:batch", content=as_lines(ROWS), headers=LINES)
    assert (after.content, after.headers["attnsel-generation"]) == (first.content, "2")
    assert len(made) == 3


def test_what_has_seen_very_many_columns_is_not_kept(served: Served) -> None:
    """It remembers each of them, and a client may send others in every table."""
    readers = Readers()
    query: dict[str, str] = {}
    for count, is_kept in ((1, True), (2000, False)):
        reader = readers.take(served.service.live.current(None), query)
        reader.columns(ROW | {f"own column {n}": n for n in range(count)})
        readers.give_back(query, reader)
        taken = readers.take(served.service.live.current(None), query)
        assert (taken is reader) == is_kept


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('[{"arch": "9.0"}, 5]', "BODY"),
        ('[{"arch": "9.0", "arch": "9.0"}]', "BODY"),
        ('[{"a": {"b": {"c": {}}}}]', "TOO_DEEP"),
        ('[{"arch": "9.0"}, {"arch": 9.x}]', "NOT_JSON"),
        ('[{"arch": "9.0"}', "NOT_JSON"),
        ('{"arch": "9.0"}', "BODY"),
    ],
)
def test_an_array_is_refused_as_a_whole(serve: Serve, text: str, code: str) -> None:
    answer = serve(depth=4).client.post("/v1/resolve:batch", content=text)
    assert answer.json()["code"] == code


def test_a_table_without_rows_has_the_columns_of_others(served: Served) -> None:
    pyarrow = pytest.importorskip("pyarrow")

    def asked(table: Any) -> Any:
        sink = io.BytesIO()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        answer = served.client.post("/v1/resolve:batch", content=sink.getvalue(), headers=ARROW)
        return pyarrow.ipc.open_stream(answer.content).read_all()

    table = pyarrow.Table.from_pylist([ROW | {"query_len": 5, "error": "mine"}])
    empty = asked(table.slice(0, 0))
    assert (empty.num_rows, empty.schema) == (0, asked(table).schema)


@pytest.mark.parametrize("form", ["lines", "array", "arrow"])
def test_a_column_that_reads_like_a_known_one_is_an_error_of_its_row(
    served: Served, form: str
) -> None:
    rows = [ROW | {"query_lne": 5, "mine": 1}, ROW | {"query_lne": None, "query_len": 7}]
    if form == "arrow":
        pyarrow = pytest.importorskip("pyarrow")
        sink = io.BytesIO()
        table = pyarrow.Table.from_pylist(rows)
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        answer = served.client.post("/v1/resolve:batch", content=sink.getvalue(), headers=ARROW)
        found = pyarrow.ipc.open_stream(answer.content).read_all().to_pylist()
    elif form == "lines":
        answer = served.client.post("/v1/resolve:batch", content=as_lines(rows), headers=LINES)
        found = [json.loads(line) for line in answer.text.splitlines()]
    else:
        found = served.client.post("/v1/resolve:batch", json=rows).json()
    words = 'no column is called "query_lne"; did you mean query_len?'
    assert [row["error"] for row in found] == [words, None]


def test_a_line_that_says_something_twice_is_an_error_of_its_row(served: Served) -> None:
    text = '{"arch": "9.0", "arch": "8.0"}\n{"arch": "9.0", "own": {"a": 1, "a": 2}}\n'
    answer = served.client.post("/v1/resolve:batch", content=text, headers=LINES)
    assert [json.loads(line)["error"] for line in answer.text.splitlines()] == [
        'line 1 says "arch" twice in one object',
        'line 2 says "a" twice in one object',
    ]


def test_a_refusal_of_an_array_says_which_row(served: Served) -> None:
    answer = served.client.post("/v1/resolve:batch", content='[{"arch": "9.0"}, 5]')
    assert answer.json()["detail"] == 'row 2: expected "object", got "int"'


class Asking:
    """A client without a connection: says when it is gone, and lets pieces wait."""

    def __init__(self, served: Served, body: bytes) -> None:
        self.pieces: list[bytes] = []
        self.status = 0
        self.goes_on = asyncio.Event()
        self.gone = asyncio.Event()
        self._body: bytes | None = body
        self._served = served

    async def ask(self) -> None:
        headers = [(b"content-type", b"application/jsonl")]
        scope = {"type": "http", "method": "POST", "path": "/v1/resolve:batch"}
        scope |= {"headers": headers, "query_string": b""}
        await self._served.service(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if self._body is None:
            await self.gone.wait()
            return {"type": "http.disconnect"}
        body, self._body = self._body, None
        return {"type": "http.request", "body": body}

    async def _send(self, message: dict[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.pieces.append(message.get("body", b""))
        await self.goes_on.wait()


def test_a_batch_for_nobody_is_given_up(served: Served) -> None:
    async def leave() -> list[bytes]:
        asking = Asking(served, as_lines([ROW] * 20_000).encode())
        asking.goes_on.set()
        asking.gone.set()
        await asking.ask()
        return asking.pieces

    pieces = asyncio.run(leave())
    assert len(pieces) == 2  # the head, and what was ready when it left
    assert served.logged()[-1]["status"] == 499


def test_no_more_batches_at_once_than_may_be(serve: Serve) -> None:
    async def ask() -> tuple[int, int, int]:
        served = serve(at_once=1, deadline_s=0.2)
        first, second, third = (Asking(served, as_lines([ROW]).encode()) for _ in range(3))
        one = asyncio.create_task(first.ask())
        while not first.pieces:
            await asyncio.sleep(0)
        second.goes_on.set()
        await second.ask()
        first.goes_on.set()
        await one
        third.goes_on.set()
        await third.ask()
        return first.status, second.status, third.status

    assert asyncio.run(ask()) == (200, 503, 200)
