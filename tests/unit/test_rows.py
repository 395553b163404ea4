"""Every row gets its answer or its own error; none is lost, none disturbs another."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.main import main
from selector.binding import Selector
from selector.devices import find_device
from selector.tables.answers import ANSWER_COLUMNS
from selector.tables.rows import RowReader
from selector.values import Facts, Layer

MANIFEST = """\
attnsel: 1
name: small
version: "1"
facts:
  mylib: {type: version, description: My library.}
  jit: {type: boolean, description: Whether kernels can be compiled.}
space:
  - when: {mla: false}
    require: {kv_lora_rank: [absent]}
    reason: Only MLA layers have a KV latent.
backends:
  - &paged
    name: paged
    source: https://example.org/paged
    mla: false
    sparse: false
    requires: {mylib: ">=1.2"}
    accepts:
      platform: [cuda, cpu]
      capability: any
      dtype: [float16, bfloat16]
      kv_cache_dtype: [auto]
      head_size: [64, 128]
      block_size: any
      attn_type: [decoder]
      sliding_window: {max: 4096, or: [unset]}
    phases: {prefill: {}, decode: {}}
    decode_threshold: 1
    prefill_paths: [{path: mha, reason: The only way.}]
  - <<: *paged
    name: sinks
    requires: {jit: true}
    accepts:
      platform: [cuda]
      capability: [9.x, 12.x]
      dtype: [bfloat16]
      kv_cache_dtype: [auto]
      head_size: [128]
      block_size: any
      attn_type: [decoder]
      sink: any
  - name: latent
    source: https://example.org/latent
    mla: true
    sparse: false
    accepts:
      platform: [cuda]
      capability: ["9.0"]
      dtype: [bfloat16]
      kv_cache_dtype: [auto]
      head_size: [576]
      block_size: any
      attn_type: [decoder]
    phases: {decode: {}}
    decode_threshold: 1
priorities:
  - {order: [paged, sinks, latent], reason: That is the order.}
"""
ROW: dict[str, Any] = {
    "arch": "9.0",
    "mla": False,
    "head_size": 128,
    "dtype": "bfloat16",
    "kv_cache_dtype": "auto",
    "attn_type": "decoder",
    "query_len": 5,
    "seq_len": 9,
}


@pytest.fixture(scope="module")
def selector() -> Selector:
    return Selector.loads(MANIFEST)


@pytest.fixture
def reader(selector: Selector) -> RowReader:
    return RowReader(selector)


def changed(**values: Any) -> dict[str, Any]:
    """The row with these columns set; a column set to ``...`` is left out."""
    return {k: v for k, v in (ROW | values).items() if v is not ...}


def chosen(reader: RowReader, **values: Any) -> tuple[str | None, str | None]:
    answer = reader.answer(changed(**values))
    assert answer["error"] is None
    return answer["prefill_backend"], answer["decode_backend"]


def error(reader: RowReader, **values: Any) -> str:
    """The error of a bad row, which keeps its columns and has no answer."""
    row = changed(**values)
    answer = reader.answer(row)
    assert {k: answer[k] for k in row} == row
    assert all(answer[k] is None for k in ANSWER_COLUMNS if k != "error")
    said = answer["error"]
    assert isinstance(said, str)
    assert "\n" not in said
    return said


def test_a_row_is_answered_as_the_library_answers(selector: Selector, reader: RowReader) -> None:
    answer = reader.answer(changed(mylib="1.3"))
    layer = Layer.of(mla=False, head_size=128, dtype="bfloat16", kv_cache_dtype="auto")
    bound = selector.bind("9.0", layer.replace(attn_type="decoder"), Facts({"mylib": "1.3"}))
    same = bound.resolve(5, 9)
    rejections = answer["rejections"]
    assert set(rejections) == {"latent"}
    assert "MLA" in rejections["latent"]
    assert {k: answer[k] for k in ANSWER_COLUMNS} == {
        "decode_backend": same.decode.backend,
        "prefill_backend": same.prefill.backend,
        "prefill_path": "mha",
        "prefill_by": None,
        "phase": "prefill",
        "num_decodes": 0,
        "decode_threshold": 1,
        "candidates": ["paged", "sinks", "latent"],
        "missing": [],
        "conditions": [],
        "rejections": rejections,
        "error": None,
    }


@pytest.mark.parametrize(
    "values",
    [
        {"head_size": ..., "head_dim": 128},
        {"dtype": "torch.bfloat16", "attn_type": "AttentionType.DECODER"},
        {"mla": ..., "use_mla": False, "has_sink": False, "use_sparse": False},
        {"arch": ..., "cap_major": 9, "cap_minor": 0},
        {"arch": ..., "cap_major": "9", "cap_minor": "0"},
        {"arch": ..., "cap_major": 9.0, "cap_minor": 0.0},
        {"arch": ..., "gpu": "NVIDIA H100 80GB HBM3"},
        {"arch": ..., "capability": "sm90"},
        {"arch": ..., "compute_capability": "sm_90a"},
        {"arch": 9.0},
        {"arch": "9.0", "cap_major": 9, "cap_minor": 0, "gpu": "H200", "platform": "cuda"},
        {"arch": "9.0", "gpu": None, "platform": None},
        {"query_len": 5.0, "seq_len": 9.0},
        {"sliding_window": None, "has_sliding_window": False},
        {"sliding_window": 1024, "has_sliding_window": True},
        {"sliding_window": None, "has_sliding_window": True},
        {"use_mla": None, "mla": False},
        {"head_dim": 128, "head_size": 128},
        {"head_dim": None},
        {"backend": None, "deny": None},
        {"deny": []},
    ],
    ids=str,
)
def test_spellings_and_nulls(reader: RowReader, values: dict[str, Any]) -> None:
    assert chosen(reader, **values) == ("paged", "paged")


def test_a_null_says_nothing_whatever_the_order_of_columns(reader: RowReader) -> None:
    bare = changed(mla=..., head_size=...)
    one = reader.answer({"mla": True, "head_size": 576, "use_mla": None, **bare})
    other = reader.answer({"use_mla": None, **bare, "mla": True, "head_size": 576})
    assert one["decode_backend"] == other["decode_backend"] == "latent"
    assert one["missing"] == ["prefill"]


def test_the_narrower_of_two_statements_counts(reader: RowReader) -> None:
    assert chosen(reader, sliding_window=9000, has_sliding_window=True) == (None, None)
    assert chosen(reader, has_sliding_window=True, sliding_window=4096) == ("paged", "paged")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"use_mla": True}, "mla is False in mla and True in use_mla"),
        ({"head_dim": 64}, "head_size is 128 in head_size and 64 in head_dim"),
        (
            {"sliding_window": 4096, "has_sliding_window": False},
            "sliding_window is 4096 in sliding_window and False in has_sliding_window",
        ),
        ({"cap_major": 12, "cap_minor": 0}, "arch is 9.0, cap_major and cap_minor 12.0"),
        ({"gpu": "RTX 5090"}, "gpu is RTX 5090 (12.0), arch 9.0"),
        ({"platform": "cpu"}, "the device 9.0 is not of platform cpu"),
        ({"platform": "gpu"}, "the device 9.0 is not of platform gpu"),
        ({"kv_lora_rank": 512}, "Only MLA layers have a KV latent."),
        ({"num_heads": 7, "num_kv_heads": 2}, "num_heads 7 is not a multiple of num_kv_heads 2"),
        ({"query_len": 10}, "query_len 10 is longer than seq_len 9"),
    ],
    ids=str,
)
def test_contradictory_rows(reader: RowReader, values: dict[str, Any], said: str) -> None:
    assert said in error(reader, **values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"arch": ...}, 'the row names no device; give "arch", or a device for all rows'),
        ({"arch": ..., "platform": "cuda"}, "the row names no device"),
        ({"arch": "hopper"}, 'unknown architecture or GPU "hopper"'),
        ({"arch": ""}, 'unknown architecture or GPU ""'),
        ({"arch": ["9.0"]}, "unknown architecture or GPU"),
        ({"arch": ..., "gpu": "RTX 6000"}, "say which"),
        ({"arch": ..., "cap_major": 9}, "cap_major and cap_minor go together"),
        ({"arch": ..., "cap_minor": 0}, "cap_major and cap_minor go together"),
        (
            {"arch": ..., "cap_major": "nine", "cap_minor": 0},
            "cap_major nine is not a whole number",
        ),
        ({"arch": ..., "cap_major": 9.5, "cap_minor": 0}, "cap_major 9.5 is not a whole number"),
        ({"arch": ..., "cap_major": [9], "cap_minor": 0}, "cap_major [9] is not a whole number"),
        ({"arch": ..., "cap_major": -9, "cap_minor": 0}, "unknown architecture or GPU"),
        ({"query_len": float("inf")}, "query_len inf is not a whole number"),
        ({"query_len": float("nan")}, "query_len nan is not a whole number"),
        ({"query_len": "5"}, "query_len 5 is not a whole number"),
        ({"query_len": True}, "query_len True is not a whole number"),
        ({"query_len": [1]}, "query_len [1] is not a whole number"),
        ({"query_len": 2.5}, "query_len 2.5 is not a whole number"),
        ({"query_len": 0}, "query_len 0 is not at least 1"),
        ({"seq_len": -1, "query_len": None}, "seq_len -1 is not at least 1"),
        ({"speculative_tokens": -1}, "speculative_tokens -1 is negative"),
        ({"head_size": "many"}, "head_size many is not a whole number of at least 1"),
        ({"head_size": float("inf")}, "head_size inf is not a whole number"),
        ({"head_size": {"a": 1}}, "head_size {'a': 1} is not a whole number"),
        ({"dtype": "bfloat17"}, "did you mean bfloat16?"),
        ({"dtype": ["bfloat16"]}, "dtype ['bfloat16'] is not float16"),
        ({"sink": "maybe"}, "sink maybe is not true or false"),
        ({"backend": "pagd"}, 'no backend is called "pagd"; did you mean paged?'),
        ({"backend": 5}, "backend 5 is not the name of a backend"),
        ({"backend": ["paged", "sinks"]}, "is not the name of a backend"),
        ({"deny": 5}, "deny 5 is not the name of a backend"),
        ({"deny": [["paged"]]}, "deny [['paged']] is not the name of a backend"),
        ({"deny": {"paged": 1}}, "is not the name of a backend"),
        ({"deny": ["pagd"]}, 'no backend is called "pagd"; did you mean paged?'),
        ({"mylib": "new"}, 'mylib "new" is not a version such as '),
        ({"mylib": 2.10}, 'mylib "2.1" is not a version such as '),
        ({"jit": "yes"}, 'jit "yes" is not true, false or None'),
        ({"model": "llama-9"}, 'no preset is called "llama-9"'),
        ({"model": "llama-3.1-8b", "tp_size": "x"}, "tp_size x is not a whole number"),
        ({"model": "llama-3.1-8b", "tp_size": float("inf")}, "tp_size inf is not a whole number"),
        ({"model": "llama-3.1-8b", "tp_size": [2]}, "tp_size [2] is not a whole number"),
        ({"model": "llama-3.1-8b", "tp_size": 3}, "cannot be divided"),
        ({"model": "gpt-oss-20b"}, 'layers of kind sliding, full; name one in "layer"'),
    ],
    ids=str,
)
def test_bad_rows_say_why(reader: RowReader, values: dict[str, Any], said: str) -> None:
    assert said in error(reader, **values)


def test_the_default_device_is_for_rows_that_name_none(selector: Selector) -> None:
    reader = RowReader(selector, find_device("sm90"))
    assert chosen(reader, arch=...) == ("paged", "paged")
    assert chosen(reader, arch=..., platform="cuda", head_size=576, mla=True) == (None, "latent")
    assert chosen(reader, arch=..., platform="cpu") == ("paged", "paged")
    assert chosen(reader, arch="12.0", has_sink=True) == ("sinks", "sinks")
    assert "is not of platform rocm" in error(reader, platform="rocm")


def test_facts_and_policy_of_a_row(reader: RowReader) -> None:
    assert chosen(reader, mylib="1.1") == ("sinks", "sinks")
    assert chosen(reader, mylib="none") == ("sinks", "sinks")
    assert chosen(reader, mylib=None) == ("paged", "paged")  # the row does not say
    assert chosen(reader, mylib="1.1", jit=False) == (None, None)
    assert chosen(reader, mylib="1.1", jit="true") == ("sinks", "sinks")
    assert chosen(reader, deny="paged") == ("sinks", "sinks")
    assert chosen(reader, deny=["paged", "sinks"]) == (None, None)
    assert chosen(reader, backend="sinks") == ("sinks", "sinks")
    assert chosen(reader, backend=["sinks"]) == ("sinks", "sinks")


def test_what_is_unknown_is_said_or_taken_not_to_be_there(selector: Selector) -> None:
    assert RowReader(selector).answer(ROW)["conditions"] == ["mylib >=1.2"]
    closed = RowReader(selector, closed_world=True).answer(ROW)
    assert closed["prefill_backend"] is None
    assert closed["missing"] == ["prefill", "decode"]


def test_a_row_may_name_a_model(reader: RowReader) -> None:
    bare = dict.fromkeys(("mla", "head_size", "dtype", "attn_type"), ...)
    assert chosen(reader, **bare, model="llama-3.1-8b", tp=2) == ("paged", "paged")
    wide = {**bare, "head_size": 256}
    assert chosen(reader, **wide, model="llama-3.1-8b") == (None, None)


def test_unknown_columns_pass_through_and_are_named(reader: RowReader) -> None:
    answer = reader.answer(changed(note="kept", **{"": 1, "hed_size": 3}))
    assert (answer["note"], answer[""], answer["hed_size"]) == ("kept", 1, 3)
    assert answer["prefill_backend"] == "paged"
    assert reader.ignored == {"note", "", "hed_size"}


def test_columns_called_as_an_answer_are_kept(reader: RowReader) -> None:
    row = changed(error="boom", input_error="older", rejections=[1], phase="warm-up")
    answer = reader.answer(row)
    assert answer["error"] is None
    assert answer["phase"] == "prefill"
    assert answer["input_error"] == "older"
    assert answer["input_input_error"] == "boom"
    assert answer["input_rejections"] == [1]
    assert answer["input_phase"] == "warm-up"
    bad = reader.answer(changed(arch="x", error="boom"))
    assert bad["input_error"] == "boom"
    assert "unknown architecture" in bad["error"]


def test_answers_do_not_depend_on_the_rows_before(selector: Selector) -> None:
    rows = [
        changed(**values)
        for values in (
            {},
            {"sink": True},
            {"sink": "true"},
            {"sink": False},
            {"head_size": 64},
            {"head_size": "64"},
            {"arch": "12.0"},
            {"arch": "x"},
            {"mylib": "1.1"},
            {"mylib": None},
            {"jit": False, "mylib": None},
            {"deny": "paged"},
            {"backend": "sinks"},
            {"query_len": 1},
            {"query_len": 1, "speculative_tokens": 3},
            {"query_len": 99},
            {"head_size": None},
            {"mla": True},
        )
    ]
    alone = [RowReader(selector).answer(row) for row in rows]
    order = list(range(len(rows))) * 3
    random.Random(1).shuffle(order)
    shared = RowReader(selector)
    assert [shared.answer(rows[i]) for i in order] == [alone[i] for i in order]


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["9.0", "12.0", "decoder", "bfloat16", "true", "unset", "absent", "paged"]),
    st.lists(st.integers() | st.text(max_size=3), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=1),
)
COLUMNS = st.sampled_from(
    [
        *ROW,
        *("gpu", "cap_major", "cap_minor", "platform", "capability", "backend", "deny", "model"),
        *("layer", "tp_size", "use_mla", "has_sink", "sliding_window", "has_sliding_window"),
        *("num_heads", "num_kv_heads", "mylib", "jit", "kv_lora_rank", "soft_cap", "error", "x"),
        *("block_size", "index_topk", "speculative_tokens", "sparse", "dense_prefill"),
    ]
)


@given(st.dictionaries(COLUMNS, SCALARS, max_size=6))
def test_no_row_is_lost_whatever_it_holds(values: dict[str, Any]) -> None:
    row = ROW | values
    answer = READER.answer(row)
    assert set(ANSWER_COLUMNS) <= answer.keys()
    assert len(answer) == len(row) + len(ANSWER_COLUMNS)
    assert answer["error"] is None or "\n" not in answer["error"]


READER = RowReader(Selector.loads(MANIFEST))


# -- the command --------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "manifest.yaml").write_text(MANIFEST, "utf-8")
    return tmp_path


def batch(folder: Path, file: Path | str, *more: str) -> int:
    return main(["batch", str(file), "--manifest", str(folder / "manifest.yaml"), *more])


def test_lines_that_are_not_json_keep_their_number(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "rows.jsonl"
    deep = b"[" * 100_000
    lines = [json.dumps(ROW).encode(), b"{broken", b"", b"[1]", b"7", b"\xff\xfe", deep]
    file.write_bytes(b"\n".join([*lines, json.dumps(changed(arch="x")).encode()]))
    assert batch(folder, file) == 1
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert [r.get("line") for r in rows] == [None, 2, 4, 5, 6, 7, None]
    assert rows[0]["error"] is None
    assert rows[1]["error"].startswith("line 2 is not JSON: ")
    assert rows[2]["error"] == "line 4 is not a JSON object"
    assert all(row["error"] for row in rows[1:])
    assert err == "attnsel: 7 rows, 0 without a backend, 6 with an error\n"


def test_infinite_lengths_are_errors_of_their_row(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "rows.jsonl"
    file.write_text(json.dumps(changed(query_len=float("inf"))) + "\n" + json.dumps(ROW), "utf-8")
    assert batch(folder, file) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["error"] == "query_len inf is not a whole number"
    assert rows[1]["prefill_backend"] == "paged"


def test_an_empty_file_has_no_rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "rows.jsonl"
    file.write_bytes(b"")
    assert batch(folder, file) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "attnsel: 0 rows, 0 without a backend, 0 with an error\n"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("missing.jsonl", None, "no such file or directory"),
        ("missing.parquet", None, "no such file or directory"),
        ("bad.parquet", b"PAR1 this is not Parquet", "is not readable Parquet: "),
        ("empty.parquet", b"", "is not readable Parquet: "),
        ("folder.jsonl", ..., "is a directory"),
        ("folder.parquet", ..., "is a directory"),
    ],
)
def test_tables_that_cannot_be_read(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, content: Any, said: str
) -> None:
    file = folder / name
    if content is ...:
        file.mkdir()
    elif content is not None:
        file.write_bytes(content)
    assert batch(folder, file) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.startswith("attnsel: ")
    assert err.count("\n") == 1
    assert str(file) in err


def test_columns_that_nothing_reads_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "rows.jsonl"
    file.write_text(json.dumps(changed(b=1, a=2)) + "\n", "utf-8")
    assert batch(folder, file) == 0
    err = capsys.readouterr().err
    assert err.endswith("attnsel: columns passed through unread: a, b\n")


def test_parquet_gives_the_same_answers_as_json_lines(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [changed(has_sink=True, arch="12.0"), changed(has_sink=None), changed(has_sink=False)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
    parquet.write_table(arrow.Table.from_pylist(rows), folder / "rows.parquet")
    assert batch(folder, folder / "rows.jsonl") == 0
    plain = capsys.readouterr().out
    assert batch(folder, folder / "rows.parquet") == 0
    assert capsys.readouterr().out == plain
    out = folder / "out.parquet"
    assert batch(folder, folder / "rows.parquet", "--out", str(out)) == 0
    answers = parquet.read_table(out).to_pylist()
    assert [a["prefill_backend"] for a in answers] == ["sinks", "paged", "paged"]
