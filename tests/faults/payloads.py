"""Bodies that are wrong: bombs, halves, other types and other encodings, for each path."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pyarrow
import pyarrow.ipc

from tests.conftest import PLAIN
from tests.faults import manifests

__all__ = ["MARK", "QUESTION", "Body", "any_body", "request"]

MARK = b"CONFIDENTIAL-7F3A9"
"""Stands in bodies; a log never has it."""

JSON, LINES = "application/json", "application/jsonl"
ARROW = "application/vnd.apache.arrow.stream"

QUESTION = json.dumps({"device": "9.0", "layer": PLAIN, "request": {"query_len": 7}}).encode()


class Body(NamedTuple):
    """A body.

    Attributes:
        kind: what is wrong with it.
        data: its bytes.
        may_be_good: it may have an answer: what is wrong may be passed over, or said in one.
        media: its type; empty: that which its path takes first.
        headers: more of them, as lines.
    """

    kind: str
    data: bytes
    may_be_good: bool = False
    media: str = ""
    headers: bytes = b""


def request(path: str, body: Body) -> bytes:
    """A whole request with a body."""
    media = (
        f"content-type: {body.media}\r\n".encode("utf-8", "surrogateescape") if body.media else b""
    )
    head = b"POST %s HTTP/1.1\r\nhost: x\r\n%s%scontent-length: %d\r\n\r\n"
    return head % (path.encode(), media, body.headers, len(body.data)) + body.data


def any_body(dice: random.Random) -> tuple[str, Body]:
    """A path and a body for it."""
    path = dice.choices(("/v1/resolve", "/v1/resolve:batch", "/v1/explain", "/v1/lint", "/v1/diff"),
                        (45, 30, 8, 9, 8))[0]  # fmt: skip
    return path, dice.choice(_MAKERS[path])(dice)


# -- JSON ----------------------------------------------------------------------------------------


def _bomb(dice: random.Random) -> Body:
    """JSON that grows, is too deep, or says what JSON cannot."""
    deep = dice.choice((33, 200, 2000, 100_000, 1_000_000))
    number = dice.choice(
        ("1e400", "-1e400", "NaN", "Infinity", "-", "1" * 5000, "0x1", "01", "1e-400")
    )
    text = dice.choice(
        (
            "[" * deep, "[" * deep + "]" * deep, '{"a":' * deep, '{"a":' * deep + "1" + "}" * deep,
            f'{{"device": {number}}}', f'{{"device": "9.0", "request": {{"query_len": {number}}}}}',
            f'{{"device": "9.0", "layer": {{"head_size": {number}}}, "nonsense": 1}}',
            '{"device": "9.0", "device": "9.0"}', '{"device": "9.0", "dev\\u0069ce": "9.0"}',
            '{"device": "\\ud800"}', '{"device": "9.0", "layer": {"dtype": "\\udfff"}}',
            '{"device": "9.0", "model": "\\ud800/../../etc/passwd"}', '{"\\ud800": 1}',
            '{"device": "\\u0000"}',
            '{"device": "9.0", "manifest": "\\ud83d"}',
            '{"device": "9.0", "facts": {"\\ud800": "\\ud800"}}',
            '{"device": "9.0", "policy": {"deny": ["\\ud800"]}}',
            '{"device":"9.0","policy":{"backend":"\\ud800"}}',
            "[]", "null", "7", '"text"', "", " ", "{", "}", "{}", '{"device": "9.0",}',
            "{'device': '9.0'}",
            '{"device": "9.0"} {"device": "9.0"}', '{"device": "9.0"}\0',
            "[" + "0," * 500_000 + "0]",
            '{"device": "' + "9" * 1_000_000 + '"}',
            '{"device": "9.0", "model": {"model_type": "' + "x" * 90_000 + '"}}',
            '{"device": "9.0", "layer": {' + ",".join(f'"k{n}": {n}' for n in range(20_000)) + "}}",
            '{"device": "9.0", "model": {"num_hidden_layers": 100000000000, "model_type": "a"}}',
            '{"device": "9.0", "facts": {"torch": "' + "1." * 20_000 + '1"}}',
            '{"device": "9.0", "facts": {"torch": "' + "9" * 10_000 + '"}}',
            '{"device": "9.0", "layer": {"head_size": 1e19}}',
            '{"device": "9.0", "layer": {"head_size": 9007199254740993}}',
            '{"device": {"platform": "cuda", "capability": "' + "9" * 5000 + '.0"}}',
            '{"device": "9.0", "request": {"query_len": ' + str(2**63) + "}}",
            '{"device": "9.0", "request": {"query_len": ' + str(2**80) + "}}",
            '{"device": "9.0", "request": {"speculative_tokens": -' + str(2**63) + "}}",
        )
    )  # fmt: skip
    return Body("bomb", text.encode("utf-8", "surrogatepass"), may_be_good=True)


def _broken_question(dice: random.Random) -> Body:
    """A question that cannot be read."""
    marked = QUESTION.replace(b'"9.0"', b'"%s"' % MARK)
    data = dice.choice(
        (
            marked, marked[: dice.randrange(1, len(marked) - 1)], b"\xef\xbb\xbf" + QUESTION,
            QUESTION.decode().encode("utf-16"), QUESTION.decode().encode("utf-16-le"),
            QUESTION.decode().encode("utf-32"), QUESTION.replace(b"9.0", b"\xff\xfe"),
            QUESTION.replace(b"128", b'"%s"' % MARK), QUESTION.replace(b"layer", MARK),
            QUESTION.replace(b'"head_size"', b'"%s"' % MARK), QUESTION.replace(b"bfloat16", MARK),
            gzip.compress(QUESTION), QUESTION.replace(b"}}", b'}, "%s": 1}' % MARK),
        )
    )  # fmt: skip
    return Body("no question", data)


def _typed_wrong(dice: random.Random) -> Body:
    """A good question under a type or an encoding that is not read."""
    media = dice.choice(
        ("text/plain", "text/html", "multipart/form-data; boundary=x", "a", "/", "é")
    )
    packed = b"content-encoding: %s\r\n" % dice.choice(
        (b"gzip", b"br", b"x", b"\xff", b"identity, gzip")
    )
    if dice.random() < 0.5:
        return Body("media type", QUESTION, media=media)
    return Body("encoding", gzip.compress(QUESTION), headers=packed)


def _mutated(make: Callable[[], bytes], media: str = "") -> Callable[[random.Random], Body]:
    """A good body with some of its bytes or bits changed, or cut."""

    def mutate(dice: random.Random) -> Body:
        data = bytearray(make())
        roll = dice.random()
        if roll < 0.3:
            del data[dice.randrange(len(data)) :]
        for _ in range(dice.randrange(1, 8) if roll > 0.2 else 0):
            if data:
                data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        return Body("mutated", bytes(data), may_be_good=True, media=media)

    return mutate


# -- tables --------------------------------------------------------------------------------------


@cache
def _rows() -> list[dict[str, object]]:
    notes = MARK.decode()
    return [{"arch": "9.0", **PLAIN, "query_len": n + 1, "note": notes} for n in range(40)]


@cache
def _array() -> bytes:
    return json.dumps(_rows()).encode()


@cache
def _lines() -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in _rows()).encode()


@cache
def _arrow() -> bytes:
    table, sink = pyarrow.Table.from_pylist(_rows()), io.BytesIO()
    table = table.append_column("kind", pyarrow.array(["a", "b"] * 20).dictionary_encode())
    with pyarrow.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, max_chunksize=15)
    return sink.getvalue()


def _table(dice: random.Random) -> Body:
    """Rows that cannot be read, or a table that is none; what is wrong with a row is said in it."""
    row = dice.choice(
        (
            "7", "null", "[]", '"x"', "{", "", "{}", '{"arch": [1]}', '{"arch": {"a": {"b": []}}}',
            '{"arch": "9.0", "query_len": 1e400}', '{"arch": "9.0", "query_len": NaN}',
            '{"a": "\\ud800"}',
            '{"arch": "9.0", "query_len": ' + "9" * 400 + "}", "[" * 100_000,
            '{"arch": "9.0", "arch": "8.0"}',
            '{"model": "../../etc/passwd"}', '{"decode_backend": 1, "error": 2}', '{"": 1}',
            '{"\\u0000": 1}',
            '{"arch": "9.0", "seq_len": -1}', '{"arch": "9.0", "seq_len": "x"}',
            '{"a": ' + '{"a":' * 50 + "1" + "}" * 51,
            '{"arch": "' + "a" * 100_000 + '"}',
        )
    )  # fmt: skip
    media = dice.choice((JSON, LINES, "application/x-ndjson"))
    rows = [row, json.dumps(_rows()[0]), row]
    text = f"[{','.join(rows)}]" if media == JSON else "\n".join(rows)
    return Body("table", text.encode(), may_be_good=True, media=media)


def _no_arrow(dice: random.Random) -> Body:
    data = dice.choice(
        (
            b"", b"ARROW1\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\xff\xff\xff\x7f",
            dice.randbytes(300),
            b"\xff\xff\xff\xff\0\0\1\0" + dice.randbytes(200), _array(),
            _arrow()[: dice.randrange(8, 300)],
        )
    )  # fmt: skip
    return Body("no Arrow stream", data, media=ARROW)


# -- documents -----------------------------------------------------------------------------------


def _document(dice: random.Random) -> bytes:
    """A manifest that is none: bombs, other encodings, traps."""
    whole = manifests.good(7).replace(b"The reference of torch.", MARK)
    laughs = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    return dice.choice(
        (
            f"a0: &a0 [lol]\n{laughs}".encode(), b"a: &a [*a]\n", b"a: *none\n", b"<<: [*a]\n",
            b"? ? ? ? x\n",
            b"[" * 5000, b"{a: " * 5000, b"- " * 20_000, b"a: |\n" + b" x\n" * 100_000, b"\0",
            b"\xff\xfe\0a",
            whole.decode().encode("utf-16"), b"\xef\xbb\xbf" + whole,
            whole[: dice.randrange(len(whole))],
            b"!!python/object/apply:os.system ['id']\n", b"a: !!binary x\n",
            b"%YAML 9.9\n---\na: 1\n",
            b"a: 1\n---\nb: 2\n", b"a: 1e999\nb: .nan\nc: 0o9\n", b"\t- a\n", b"a: 'x\n",
            b"&a " * 5000, whole * 3,
            b"a: " + b"9" * 100_000 + b"\n", b"k%d: 1\n" % 1 * 50_000, dice.randbytes(2000), b"",
            b"".join(b"k%d: [%d]\n" % (n, n) for n in range(20_000)),
            whole.replace(b"128", b"1" * 5000),
            whole.replace(b"backends:", b"include: /etc/passwd\nbackends:"), b"x: &x {<<: *x}\n",
        )
    )  # fmt: skip


def _linted(dice: random.Random) -> Body:
    return Body("document", _document(dice), may_be_good=True)


def _compared(dice: random.Random) -> Body:
    document = _document(dice).decode("utf-8", "replace")
    sides = {"old": "engine", "new": {"document": document}}
    return Body("document", json.dumps(sides).encode(), may_be_good=True)


def _sides(dice: random.Random) -> Body:
    text = dice.choice(
        (
            "{}", '{"old": 1, "new": 2}', '{"old": "engine"}',
            '{"old": "/etc/passwd", "new": "engine"}',
            '{"old": {"name": "engine", "document": "a"}, "new": "engine"}',
            '{"old": {}, "new": {}}',
            '{"old": "engine", "new": "engine", "limit": 0}',
            '{"old": "engine", "new": "engine", "limit": 1e9}',
            '{"old": "engine", "new": {"document": "\\ud800"}}',
            '{"old": "\\ud800", "new": "engine"}',
        )
    )  # fmt: skip
    return Body("sides", text.encode())


_BEGUN = "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig("


def _logged(dice: random.Random) -> Body:
    text = dice.choice(
        (
            {"log": ""}, {"log": MARK.decode() * 1000}, {"log": "\0\n" * 1000}, {"log": 7},
            {"log": None},
            {"log": "x", "device": "none"}, {"log": "x", "query_len": 1},
            {"log": "\x1b[31m" * 9000},
            {"log": _BEGUN},
            {"log": _BEGUN + "a=" * 9000},
        )
    )  # fmt: skip
    return Body("log", json.dumps(text).encode(), may_be_good=True)


_MAKERS: dict[str, tuple[Callable[[random.Random], Body], ...]] = {
    "/v1/resolve": (_bomb, _bomb, _broken_question, _typed_wrong, _mutated(lambda: QUESTION)),
    "/v1/resolve:batch": (
        _bomb,
        _table,
        _no_arrow,
        _mutated(_array),
        _mutated(_lines, LINES),
        _mutated(_arrow, ARROW),
        _mutated(_arrow, ARROW),
    ),
    "/v1/explain": (_bomb, _broken_question, _typed_wrong, _logged),
    "/v1/lint": (_linted, _mutated(lambda: manifests.good(7))),
    "/v1/diff": (_sides, _compared, _bomb, _typed_wrong),
}
"""Bodies of each path."""
