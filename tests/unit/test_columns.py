"""How the columns of a table are read where the manifest says so."""

from __future__ import annotations

from typing import Any

import pytest

from selector import Selector
from selector.domains import Domain
from selector.errors import ManifestError
from selector.tables.answers import ANSWER_COLUMNS
from selector.tables.rows import RowReader

from .sparse import BY_ANOTHER, DENSE, Build, Tree, dense, sparse

ROW: Tree = {
    "arch": "9.0",
    "head_size": 128,
    "dtype": "bfloat16",
    "kv_cache_dtype": "auto",
    "attn_type": "decoder",
    "query_len": 5,
    "seq_len": 9,
}
PROBE = {"probe": {"type": "boolean", "description": "A switch."}}


def reader(
    build: Build, columns: Tree, *entries: Tree, closed_world: bool = False, **sections: Any
) -> RowReader:
    selector: Selector = build.selector(*entries, columns=columns, **sections)
    return RowReader(selector, closed_world=closed_world)


def changed(**values: Any) -> Tree:
    """The row with these columns set; a column set to ``...`` is left out."""
    return {k: v for k, v in (ROW | values).items() if v is not ...}


def asked(rows: RowReader, name: str, **values: Any) -> Any:
    """What a row says of a field: its value, or the set of possible ones."""
    question = rows.bind(changed(**values)).question
    known = question.known(name)
    return question.possible(name) if known is None else known


def error(rows: RowReader, **values: Any) -> str:
    answer = rows.answer(changed(**values))
    assert all(answer[k] is None for k in ANSWER_COLUMNS if k != "error")
    assert isinstance(answer["error"], str)
    return answer["error"]


def answer(rows: RowReader, *names: str, **values: Any) -> tuple[Any, ...]:
    found = rows.answer(changed(**values))
    assert found["error"] is None
    return tuple(found[name] for name in names)


# -- a column that holds a field -----------------------------------------------------------------

PAGES: Tree = {"pages": {"field": "block_size"}, "size": {"field": "head_size"}}
PAGES |= {"on": {"field": "probe"}, "topk": {"field": "index_topk"}}


@pytest.mark.parametrize(
    ("name", "values", "value"),
    [
        ("block_size", {"pages": 16}, 16),
        ("block_size", {"pages": "16"}, 16),
        ("block_size", {"pages": "unset"}, "unset"),
        ("block_size", {"pages": 16, "block_size": 16}, 16),
        ("block_size", {"pages": None, "block_size": 16}, 16),
        ("block_size", {"block_size": 16, "pages": None}, 16),
        ("block_size", {"pages": None}, "unset"),
        ("index_topk", {"topk": None}, "absent"),
        ("index_topk", {"topk": 64}, 64),
        ("head_size", {"size": 64, "head_size": ...}, 64),
        ("head_size", {"size": None}, 128),
        ("probe", {"on": "true"}, True),
        ("probe", {"probe": None, "on": False}, False),
        ("probe", {"on": None}, Domain.of(True, False)),
    ],
    ids=str,
)
def test_a_column_holds_a_field(build: Build, name: str, values: Tree, value: Any) -> None:
    rows = reader(build, PAGES, facts=PROBE)
    assert asked(rows, name, **values) == value
    assert rows.ignored == set()


def test_a_null_where_a_field_has_no_symbol_says_nothing(build: Build) -> None:
    rows = reader(build, PAGES, facts=PROBE)
    anything = asked(rows, "head_size", size=None, head_size=...)
    assert anything == Domain.between(1, None)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"pages": 32, "block_size": 16}, "block_size is 32 in pages and 16 in block_size"),
        ({"size": 64}, "head_size is 128 in head_size and 64 in size"),
        ({"size": "many", "head_size": ...}, "head_size many is not a whole number of at least 1"),
    ],
    ids=str,
)
def test_a_column_and_its_field_must_agree(build: Build, values: Tree, said: str) -> None:
    assert said in error(reader(build, PAGES, facts=PROBE), **values)


@pytest.mark.parametrize(
    "name", ["sink", "use_sparse", "arch", "cap_major", "query_len", "query_lens", "deny"]
)
@pytest.mark.parametrize(
    "form", [{"field": "alibi"}, {"ignore": True}, {"suppose": "dense_prefill"}]
)
def test_a_column_of_its_own_meaning_keeps_it(build: Build, name: str, form: Tree) -> None:
    """Else a manifest could answer a sparse layer, or a device, that the row does not speak of."""
    with pytest.raises(ManifestError, match=f'CAP015 "{name}" is a column of its own meaning'):
        reader(build, {name: form})


def test_a_models_name_can_be_ignored(build: Build) -> None:
    rows = reader(build, {"model": {"ignore": True}})
    found = rows.answer(changed(gpu="H200", model="nonsense"))
    assert (found["error"], found["prefill_backend"]) == (None, "one")


def test_an_ignored_column_is_passed_through_in_silence(build: Build) -> None:
    rows = reader(build, {"note": {"ignore": True}})
    found = rows.answer(changed(note=[1], other=2))
    assert (found["note"], found["prefill_backend"]) == ([1], "one")
    assert rows.ignored == {"other"}


# -- a column whose values say something ---------------------------------------------------------

MODE: Tree = {
    "mode": {
        "values": {
            "plain": {},
            "wide": {"head_size": 256, "sink": True},
            "true": {"sink": True},
            "2": {"tp_size": 2},
            "blind": {"num_heads": "unknown", "sink": "unknown", "head_size": "unknown"},
        }
    }
}


@pytest.mark.parametrize(
    ("values", "size", "sink", "ranks"),
    [
        ({"mode": "plain"}, 128, False, 1),
        ({"mode": None}, 128, False, 1),
        ({"mode": "wide", "head_size": ...}, 256, True, 1),
        ({"mode": "wide", "head_size": 256, "sink": True}, 256, True, 1),
        ({"mode": "wide", "head_size": None, "sink": None}, 256, True, 1),
        ({"mode": True}, 128, True, 1),
        ({"mode": "true"}, 128, True, 1),
        ({"mode": 2}, 128, False, 2),
        ({"mode": "2", "tp_size": 2}, 128, False, 2),
    ],
    ids=str,
)
def test_a_value_of_a_column_says_something_of_fields(
    build: Build, values: Tree, size: int, sink: bool, ranks: int
) -> None:
    rows = reader(build, MODE)
    assert [asked(rows, n, **values) for n in ("head_size", "sink", "tp_size")] == [
        size,
        sink,
        ranks,
    ]


@pytest.mark.parametrize(
    ("value", "seen"), [("plane", "plane"), (False, "False"), (3, "3"), ([1], "[1]"), ("", "")]
)
def test_a_value_that_is_not_listed_is_an_error_that_names_the_known_ones(
    build: Build, value: Any, seen: str
) -> None:
    said = f"mode {seen} is not known; write one of plain, wide, true, 2, blind"
    assert error(reader(build, MODE), mode=value) == said


def test_a_value_of_a_column_and_a_field_must_agree(build: Build) -> None:
    said = "head_size is 128 in head_size and 256 in mode"
    assert error(reader(build, MODE), mode="wide") == said
    columns = {**MODE, "kind": {"values": {"small": {"tp_size": 1}}}}
    said = "tp_size is 2 in mode and 1 in kind"
    assert error(reader(build, columns), mode=2, kind="small") == said


def test_a_column_with_a_meaning_of_its_own_keeps_it_for_other_values(build: Build) -> None:
    rows = reader(build, {"model": {"values": {"mine": {"head_size": 64}, "true": {}}}})
    unsaid = dict.fromkeys(("head_size", "dtype", "attn_type"), ...)
    assert asked(rows, "head_size", model="mine", **unsaid) == 64
    assert asked(rows, "head_size", model=True) == 128
    assert asked(rows, "num_heads", model="llama-3.1-8b", **unsaid) == 32
    assert asked(rows, "head_size", model=None) == 128
    assert error(rows, model="yours", **unsaid) == 'no preset is called "yours"'


def test_values_say_what_the_device_is(build: Build) -> None:
    columns = {"host": {"values": {"hopper": {"capability": "9.0"}, "cpu": {"platform": "cpu"}}}}
    rows = reader(build, columns)
    assert asked(rows, "capability", arch=..., host="hopper") == 900
    assert asked(rows, "platform", arch=..., host="cpu") == "cpu"
    assert "capability 9.0" in error(rows, arch="12.0", host="hopper")


# -- what a column says nobody knows -------------------------------------------------------------


def test_what_is_unknown_can_be_anything(build: Build) -> None:
    rows = reader(build, MODE)
    assert asked(rows, "sink", mode="blind") == Domain.of(True, False)
    assert asked(rows, "num_heads", mode="blind") == Domain.between(1, None) | Domain.of("unset")
    assert asked(rows, "head_size", mode="blind", head_size=...) == Domain.between(1, None)
    entry = build.entry(accepts={"num_heads": {"max": 16}})
    found = reader(build, MODE, entry).answer(changed(mode="blind"))
    assert found["conditions"] == ["sink false", "num_heads up to 16"]


def test_in_a_closed_world_what_is_unknown_is_not_there(build: Build) -> None:
    """Symbols where the field has one, off where it is a flag; else it stays unknown."""
    columns = {"mode": {"values": {"blind": dict.fromkeys(CLOSED, "unknown")}}}
    rows = reader(build, columns, closed_world=True)
    unsaid = dict.fromkeys(("dtype", "head_size"), ...)
    for name, value in CLOSED.items():
        assert asked(rows, name, mode="blind", **unsaid) == value


CLOSED = {
    "num_heads": "unset",
    "index_topk": "absent",
    "kv_lora_rank": "absent",
    "sink": False,
    "mla": False,
    "dense_prefill": False,
    "sliding_window": "unset",
    "head_size": Domain.between(1, None),
    "dtype": Domain.of("float16", "bfloat16", "float32", "fp8_e4m3", "fp8_e5m2"),
}


@pytest.mark.parametrize("closed_world", [False, True])
def test_what_is_unknown_is_what_another_column_says(build: Build, closed_world: bool) -> None:
    rows = reader(build, MODE, closed_world=closed_world)
    for order in ({"mode": "blind", "num_heads": 8}, {"num_heads": 8, "mode": "blind"}):
        assert asked(rows, "num_heads", **order) == 8
    assert asked(rows, "sink", mode="blind", has_sink=True) is True
    assert asked(rows, "head_size", mode="blind") == 128


def test_a_null_does_not_make_the_unknown_known(build: Build) -> None:
    rows = reader(build, MODE)
    for order in ({"mode": "blind", "num_heads": None}, {"num_heads": None, "mode": "blind"}):
        assert isinstance(asked(rows, "num_heads", **order), Domain)


def test_what_is_unknown_of_a_row_with_a_model_is_not_what_the_model_says(build: Build) -> None:
    rows = reader(build, MODE)
    unsaid = dict.fromkeys(("head_size", "dtype", "attn_type"), ...)
    assert asked(rows, "num_heads", model="llama-3.1-8b", **unsaid) == 32
    assert isinstance(
        asked(rows, "num_heads", model="llama-3.1-8b", mode="blind", **unsaid), Domain
    )


def test_a_default_does_not_stand_in_for_what_a_column_says_nobody_knows(build: Build) -> None:
    rows = reader(build, MODE, defaults={"num_heads": {"value": 16}})
    assert asked(rows, "num_heads", mode="plain") == 16
    assert isinstance(asked(rows, "num_heads", mode="blind"), Domain)


@pytest.mark.parametrize("said", [{"probe": "unknown"}, {"capability": "unknown"}], ids=str)
def test_a_fact_or_a_device_that_is_unknown_is_a_finding_or_unknown(
    build: Build, said: Tree
) -> None:
    columns = {"mode": {"values": {"blind": said}}}
    if not build.findings(columns=columns, facts=PROBE):
        found = reader(build, columns, facts=PROBE).answer(changed(mode="blind"))
        assert "object at 0x" not in str(found["error"])
        assert found["error"] is None or "capability" in said


@pytest.mark.parametrize("name", ["query_len", "seq_len", "num_prefills", "has_context"])
def test_a_column_that_holds_a_length_is_a_finding_or_read(build: Build, name: str) -> None:
    columns = {"tokens": {"field": name}}
    if not build.findings(columns=columns):
        value = name == "has_context" or 3
        assert reader(build, columns).answer(changed(tokens=value))["error"] is None


# -- a column that supposes ----------------------------------------------------------------------

LATENT = {"mla": True, "sparse": True, "dense_prefill": True}
PINNED: Tree = {"dense_prefill": False, "rationale": "It crashes.", "pinned": ["dense_prefill"]}


@pytest.mark.parametrize(
    ("value", "path", "by"),
    [(True, "dense_mha", "flash"), (False, "sparse_mqa", None), (None, "sparse_mqa", None)],
)
def test_a_column_supposes_that_prefill_may_be_dense(
    build: Build, value: bool | None, path: str, by: str | None
) -> None:
    columns = {"what_if": {"suppose": "dense_prefill"}}
    rows = reader(build, columns, sparse(build, BY_ANOTHER, **PINNED), dense(build, "flash"))
    names = ("prefill_backend", "prefill_path", "prefill_by")
    assert answer(rows, *names, **LATENT, what_if=value) == ("sparse", path, by)
    # neither a row before nor one after is supposed to be so
    assert answer(rows, *names, **LATENT) == ("sparse", "sparse_mqa", None)
    assert rows.ignored == set()


def test_one_of_two_columns_is_enough_to_suppose(build: Build) -> None:
    columns = {name: {"suppose": "dense_prefill"} for name in ("a", "b")}
    rows = reader(build, columns, sparse(build, DENSE, **PINNED))
    for said in ({"a": True, "b": False}, {"a": False, "b": True}, {"a": True, "b": None}):
        assert answer(rows, "prefill_path", **LATENT, **said) == ("dense_mha",)


def test_what_is_supposed_of_one_layer_is_supposed_of_the_next(build: Build) -> None:
    columns = {"what_if": {"suppose": "dense_prefill"}}
    rows = reader(build, columns, sparse(build, DENSE, **PINNED))
    one, other = (rows.bind(changed(**LATENT, what_if=True, head_size=n)) for n in (64, 128))
    assert one is not other
    assert one.manifest is other.manifest is not rows.selector.manifest
    for contract, path in ((True, "dense_mha"), (False, "sparse_mqa")):
        latent = {**LATENT, "dense_prefill": contract}
        assert answer(rows, "prefill_path", **latent, what_if=True) == (path,)


@pytest.mark.parametrize("value", ["true", 1, "maybe"])
def test_a_supposition_that_is_not_true_or_false_is_read_or_an_error(
    build: Build, value: Any
) -> None:
    columns = {"what_if": {"suppose": "dense_prefill"}}
    rows = reader(build, columns, sparse(build, DENSE, **PINNED))
    found = rows.answer(changed(**LATENT, what_if=value))
    assert found["error"] or found["prefill_path"] == "dense_mha"


# -- a column that names the backend -------------------------------------------------------------

RAN: Tree = {"ran": {"given": True}}
MADE = ("prefill_path", "phase", "num_decodes", "decode_threshold")


def test_a_given_backend_is_taken(build: Build) -> None:
    rows = reader(build, RAN, build.entry("one"), build.entry("two", decode_threshold=8))
    names = ("prefill_backend", "decode_backend", "candidates")
    assert answer(rows, *names, ran="two") == ("two", "two", ["two"])
    assert answer(rows, *MADE, ran="two") == ("mha", "decode", 1, 8)
    assert answer(rows, *names, ran=None) == ("one", "one", ["one", "two"])


@pytest.mark.parametrize(
    ("lengths", "made"),
    [
        ({"query_len": 9}, ("dense_mha", "prefill", 0, 4)),
        ({"query_len": 4}, ("sparse_mqa", "decode", 1, 4)),
        ({"query_len": 4, "num_reqs": 3}, ("sparse_mqa", "decode", 3, 4)),
        ({"query_lens": [4, 9, 9], "seq_lens": [9, 9, 9]}, ("dense_mha", "prefill", 1, 4)),
        ({"query_lens": [4, 9, 9], "seq_lens": [9, 9, 90]}, ("sparse_mqa", "prefill", 1, 4)),
        ({"query_len": None}, (None, None, None, None)),
        ({"seq_len": None}, (None, None, None, None)),
    ],
    ids=str,
)
def test_what_a_given_backend_would_make_of_a_layer_that_it_refuses(
    build: Build, lengths: Tree, made: tuple[Any, ...]
) -> None:
    short = {**BY_ANOTHER, "when": {"seq_len": {"max": 64}}, "scope": "batch"}
    entry = sparse(build, short, accepts={"head_size": 64}, decode_threshold=4)
    rows = reader(build, RAN, entry, dense(build, "flash"))
    alone = {"query_len": None, "seq_len": None} if "query_lens" in lengths else {}
    row = {**LATENT, "ran": "sparse", **alone, **lengths}
    assert answer(rows, *MADE, **row) == made
    by = "flash" if made[0] == "dense_mha" else None
    refused = ("prefill_backend", "decode_backend", "prefill_by", "missing")
    assert answer(rows, *refused, **row) == (None, None, by, ["prefill", "decode"])
    found = rows.answer(changed(**row))
    assert found["rejections"]["sparse"] == ["HEAD_SIZE"]


def test_what_a_given_backend_runs_is_what_the_answer_says(build: Build) -> None:
    """It accepts the phase of the request; what it makes of the other is not asked."""
    phases = {"prefill": {"accepts": {"head_size": 64}}, "decode": {}}
    rows = reader(build, RAN, build.entry(phases=phases, decode_threshold=4))
    names = ("prefill_backend", "decode_backend", *MADE)
    assert answer(rows, *names, ran="one", query_len=4) == (None, "one", None, "decode", 1, 4)
    assert answer(rows, *names, ran="one") == (None, "one", "mha", "prefill", 0, 4)


def test_a_threshold_that_is_unknown_is_null(build: Build) -> None:
    cases = {"cases": [{"when": {"num_heads": {"max": 16}}, "value": 8}, {"value": 1}]}
    entry = build.entry(accepts={"head_size": 64}, decode_threshold=cases)
    rows = reader(build, RAN, entry)
    assert answer(rows, *MADE, ran="one") == ("mha", None, None, None)
    assert answer(rows, *MADE, ran="one", query_len=9) == ("mha", "prefill", 0, None)


def test_a_backend_that_is_forced_and_refuses_makes_nothing_of_it(build: Build) -> None:
    entry = build.entry(accepts={"head_size": 64})
    rows = reader(build, {"note": {"ignore": True}}, entry)
    assert answer(rows, *MADE, backend="one") == (None, None, None, None)
    assert answer(reader(build, RAN, entry), *MADE, ran="one") == ("mha", "prefill", 0, 1)
    given = reader(build, {"backend": {"given": True}}, entry)
    assert answer(given, *MADE, backend="one") == ("mha", "prefill", 0, 1)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("on", 'no backend is called "on"; did you mean one?'),
        (5, "backend 5 is not the name of a backend"),
        (["one", "one"], "is not the name of a backend"),
    ],
)
def test_a_given_backend_must_be_there(build: Build, value: Any, said: str) -> None:
    assert said in error(reader(build, RAN), ran=value)


def test_a_forced_backend_is_not_given_because_another_column_could_be(build: Build) -> None:
    rows = reader(build, RAN, build.entry(accepts={"head_size": 64}))
    assert answer(rows, *MADE, backend="one") == (None, None, None, None)


def test_a_null_does_not_take_a_given_backend_away(build: Build) -> None:
    rows = reader(build, RAN, build.entry("one"), build.entry("two"))
    assert answer(rows, "prefill_backend", ran="two", backend=None) == ("two",)


def test_a_given_and_a_forced_backend_must_agree(build: Build) -> None:
    rows = reader(build, RAN, build.entry("one"), build.entry("two"))
    assert error(rows, ran="two", backend="one")


def test_a_null_does_not_take_a_fact_away(build: Build) -> None:
    rows = reader(build, {"on": {"field": "probe"}}, facts=PROBE)
    assert asked(rows, "probe", on=False, probe=None) is False
