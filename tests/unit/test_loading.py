"""What a manifest means, and the mistakes in it that the schema cannot see."""

from __future__ import annotations

from typing import Any

import pytest

from selector import Facts, Layer, Phase, Policy, Selector
from selector.document import LIMITS, read_text
from selector.errors import AttnselError
from selector.loading import loads, read

Build = Any  # the fixture of tests/conftest.py


# -- what an entry states ------------------------------------------------------------------------


def test_what_is_not_stated(build: Build) -> None:
    """Core fields must be stated, features are off, sizes restrict nothing."""
    accepts = build.selector().manifest.entries["one"].phases[Phase.PREFILL].accepts
    assert {"platform", "head_size", "sink", "sliding_window", "mla", "sparse"} <= accepts.keys()
    assert not {"num_heads", "index_topk", "query_len", "dense_prefill"} & accepts.keys()
    answer = build.selector().bind("9.0", build.layer(sink=True, alibi=True)).resolve(1, 1)
    rejections = answer.candidates[0].decode.rejections
    assert [(r.code, r.allowed, r.reason) for r in rejections] == [
        ("SINK", "false", "not stated"),
        ("ALIBI", "false", "not stated"),
    ]


def test_fields_that_only_an_engine_has(build: Build) -> None:
    fields = {
        "mode": {
            "type": "name",
            "role": "context",
            "values": ["fast", "safe"],
            "symbols": ["unset"],
            "aliases": ["vllm_mode"],
            "description": "A switch.",
        },
        "depth": {"type": "integer", "role": "feature", "low": 2, "description": "How deep."},
        "quirk": {"type": "boolean", "role": "feature", "description": "Something odd."},
        "cap": {"type": "presence", "role": "context", "description": "Whether there is a cap."},
    }
    entry = build.entry(accepts={"mode": ["fast", "unset"], "depth": ["unset", {"min": 4}]})
    selector = build.selector(entry, fields=fields)

    def codes(**values: Any) -> list[str]:
        answer = selector.bind("9.0", build.layer(selector, **values)).resolve(1, 1)
        return [r.code for r in answer.candidates[0].decode.rejections]

    assert codes() == []
    assert codes(vllm_mode="safe") == ["MODE"]
    assert codes(mode=None, depth=4, cap=30.0) == []
    assert codes(depth=2, quirk=True) == ["DEPTH", "QUIRK"]


@pytest.mark.parametrize(
    ("values", "type_", "names"),
    [
        ([True, False], "boolean", ()),
        ([1, 2, 2], "integer", ()),
        ([1, "none"], "integer", ("none",)),
        (["a_", "b_", "a_"], "name", ("a_", "b_")),
    ],
)
def test_the_type_of_a_derived_value(
    build: Build, values: list[Any], type_: str, names: tuple[str, ...]
) -> None:
    rules = [{"when": {"tp_size": i}, "value": v} for i, v in enumerate(values[:-1], 1)]
    derive = {"derived": {"first_match": [*rules, {"value": values[-1]}]}}
    field = build.selector(derive=derive).manifest.vocabulary.fields["derived"]
    assert (field.type, field.values + field.symbols) == (type_, names)


@pytest.mark.parametrize("values", [[True, 1], [True, "a_"], ["3", 3], [False, 0]])
def test_a_derived_value_of_two_types_is_a_finding(build: Build, values: list[Any]) -> None:
    rules = [{"when": {"tp_size": 1}, "value": values[0]}, {"value": values[1]}]
    (found,) = build.findings(derive={"derived": {"first_match": rules}})
    assert found.startswith("CAP011 derived has values of two types")


# -- order and bounds ----------------------------------------------------------------------------


def test_derived_values_are_computed_after_what_they_read(build: Build) -> None:
    """Stated last to first; one reads another only as a bound."""
    derive = {
        "third": {"first_match": [{"when": {"second": "yes_"}, "value": 3}, {"value": 0}]},
        "second": {
            "first_match": [
                {"when": {"head_size": {"max": {"field": "first"}}}, "value": "yes_"},
                {"value": "no_"},
            ]
        },
        "first": {"first_match": [{"when": {"capability": "9.x"}, "value": 128}, {"value": 64}]},
    }
    selector = build.selector(build.entry(accepts={"third": 3}), derive=derive)
    assert list(selector.manifest.derive) == ["first", "second", "third"]
    for capability, size, backend in (
        ("9.0", 128, "one"),
        ("9.0", 129, None),
        ("8.0", 128, None),
        ("8.0", 64, "one"),
    ):
        answer = selector.bind(capability, build.layer(head_size=size)).resolve(1, 1)
        assert answer.decode.backend == backend


def test_a_cycle_through_a_bound_is_a_cycle(build: Build) -> None:
    bound = {"head_size": {"max": {"field": "first"}}}
    derive = {
        "first": {"first_match": [{"when": {"second": 1}, "value": 1}, {"value": 2}]},
        "second": {"first_match": [{"when": bound, "value": 1}, {"value": 2}]},
    }
    (found,) = build.findings(derive=derive)
    assert found == "CAP014 first and second need each other; break the cycle"


MEASURE = {"kind": "mask_words", "small_tile": 128, "large_tile": 256, "word_align": 4}


@pytest.mark.parametrize("field", ["words", "longest", "query_len"])
def test_what_changes_with_the_request_is_no_bound(build: Build, field: str) -> None:
    derive = {
        "longest": {"first_match": [{"when": {"longer": 1}, "value": 64}, {"value": 128}]},
        "longer": {"first_match": [{"when": {"seq_len": {"min": 9}}, "value": 1}, {"value": 2}]},
    }
    entry = build.entry(accepts={"head_size": {"max": {"field": field}}})
    found = build.findings(entry, derive=derive, measures={"words": MEASURE})
    assert found == [
        f"CAP010 {field} is not a number that is fixed with the layer; "
        "bound by a field such as index_topk"
    ]


# -- facts ---------------------------------------------------------------------------------------


def test_a_version_is_asked_for_in_requires_and_nowhere_else(build: Build) -> None:
    """In a condition it would be compared as text, and never be known."""
    facts = {"mylib": {"type": "version", "description": "A library."}}
    rule = {"when": {"mylib": "1.2"}, "code": "OLD", "reason": "Too old."}
    (found,) = build.findings(build.entry(constraints=[rule]), facts=facts)
    assert found == (
        'CAP010 "mylib" is a version and no field; ask for it under `requires`, as in ">=1.2"'
    )


def test_a_probe_is_a_field(build: Build) -> None:
    facts = {"probe": {"type": "boolean", "description": "A switch."}}
    rule = {"when": {"probe": True}, "code": "ON", "reason": "Not with the switch."}
    assert build.findings(build.entry(constraints=[rule]), facts=facts) == []


# -- as claimed ----------------------------------------------------------------------------------


def test_what_an_engine_claims_instead(build: Build) -> None:
    truth = {"when": {"tp_size": 8}, "code": "TP", "reason": "Not on eight."}
    claim = {"source": "engine.py", "accepts": {"head_size": [64, 128]}, "constraints": []}
    dense = {"path": "dense_mha", "when": {"seq_len": {"max": 2048}}, "reason": "Short."}
    top_k = {"path": "sparse_mqa", "reason": "The rest."}
    honest = build.entry("honest", accepts={"head_size": [64]})
    sparse = {"mla": True, "sparse": True, "constraints": [truth], "prefill_paths": [dense, top_k]}
    bold = build.entry(
        "bold",
        accepts={"head_size": [64], "capability": ["12.0"]},
        phases={"prefill": {"accepts": {"head_size": [64]}}, "decode": {}},
        claimed={**claim, "dense_prefill": True},
        **sparse,
    )
    quiet = build.entry(
        "quiet",
        accepts={"head_size": [64], "capability": ["12.0"]},
        claimed={"source": "engine.py"},
        **sparse,
    )
    manifest = build.selector(honest, bold, quiet).manifest
    layer = build.layer(mla=True, sparse=True, dense_prefill=True, tp_size=8)
    true = Selector(manifest).bind("12.0", layer).resolve(9, 9)
    assert (true.prefill.backend, true.decode.backend) == (None, None)
    claimed = Selector(manifest.as_claimed()).bind("12.0", layer).resolve(9, 9)
    assert (claimed.prefill.backend, claimed.prefill.path) == ("bold", "dense_mha")
    assert claimed.decode.backend == "bold"
    assert claimed.off == ()
    unmoved = {c.backend: [r.code for r in c.prefill.rejections] for c in claimed.candidates}
    assert unmoved["honest"] == ["MLA", "SPARSE", "HEAD_SIZE"]
    assert unmoved["quiet"] == ["HEAD_SIZE", "TP"]


# -- many of everything --------------------------------------------------------------------------


def test_what_an_anchor_shares_is_read_once() -> None:
    text = """\
attnsel: 1
name: test
version: "1"
definitions: {sizes: &sizes [64, 128, {multiple_of: 256}]}
backends:
  - &one
    name: one
    source: test
    mla: false
    sparse: false
    accepts: {platform: any, capability: any, dtype: any, kv_cache_dtype: any, head_size: *sizes,
      block_size: any, attn_type: any, num_heads: *sizes}
    phases: {prefill: {}, decode: {accepts: {head_size: *sizes}}}
    decode_threshold: 1
    prefill_paths: [{path: mha, reason: The only way.}]
  - {<<: *one, name: two}
"""
    one, two = loads(text).entries.values()
    decode = one.phases[Phase.DECODE].accepts
    sizes = decode["head_size"].rules[0].result.allowed
    assert one.accepts["head_size"].rules[0].result.allowed is sizes
    assert two.accepts["head_size"] is one.accepts["head_size"]
    assert decode["num_heads"].rules[0].result.allowed == sizes  # of another field: read again


def test_no_more_is_looked_for_than_is_shown(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def count(word: str, *_: Any) -> list[str]:
        asked.append(word)
        return []

    monkeypatch.setattr("selector.fields.close_matches", count)
    wrong = {f"head_siz{i}": "any" for i in range(5000)}
    found = build.findings(build.entry(accepts=wrong))
    assert len(found) == LIMITS.findings + 1
    assert len(asked) <= LIMITS.findings + 1


def test_a_long_cycle_is_a_short_finding(build: Build) -> None:
    derive = {
        f"d{i}": {"first_match": [{"when": {f"d{(i + 1) % 500}": 1}, "value": 1}, {"value": 2}]}
        for i in range(500)
    }
    (found,) = build.findings(derive=derive)
    assert found == (
        "CAP014 d0 and d1 and d2 and d3 and d4 and 495 more need each other; break the cycle"
    )


# -- what could not be meant ---------------------------------------------------------------------


@pytest.mark.parametrize("word", ["any", "same"])
def test_words_of_the_language_are_no_values(build: Build, word: str) -> None:
    """``any`` would be every value wherever a rule asks for it."""
    said = f'CAP015 value "{word}" is a word of the language; rename it'
    field = {"type": "name", "role": "context", "values": ["a_", word], "description": "A field."}
    assert build.findings(fields={"mode": field}) == [said]
    rules = [{"when": {"tp_size": 1}, "value": "a_"}, {"value": word}]
    assert build.findings(derive={"mode": {"first_match": rules}}) == [said]


@pytest.mark.parametrize("section", ["fields", "derive"])
def test_words_of_the_language_are_no_fields(build: Build, section: str) -> None:
    field = {"type": "name", "role": "context", "description": "A field."}
    declared = {"fields": field, "derive": {"first_match": [{"value": 1}]}}
    (found,) = build.findings(**{section: {"any_of": declared[section]}})
    assert found == 'CAP015 field "any_of" is a word of the language; rename it'


@pytest.mark.parametrize(
    ("accepts", "said"),
    [
        ({"head_size": {"min": -5, "max": 0}}, "CAP011 no number is in this range"),
        ({"capability": "9.0..8.0"}, 'CAP011 no capability is in "9.0..8.0"'),
        ({"capability": "\uff18.0"}, 'CAP011 capability "\uff18.0" is not "9.0", 9.x'),
    ],
)
def test_sets_in_which_nothing_lies(build: Build, accepts: dict[str, Any], said: str) -> None:
    (found,) = build.findings(build.entry(accepts=accepts))
    assert found.startswith(said)


def test_a_rule_that_refuses_everything(build: Build) -> None:
    said = (
        "CAP016 this rule has no condition, so it refuses everything; "
        "say in `when` what must never occur"
    )
    rule = {"when": {}, "code": "NEVER", "reason": "Never."}
    assert build.findings(build.entry(constraints=[rule])) == [said]
    assert build.findings(space=[{"require": {}, "reason": "Nothing exists."}]) == [said]


MHA = {"path": "mha", "reason": "A way."}
TOP_K = {"path": "sparse_mqa", "reason": "A way."}
DENSE = {"path": "dense_mha", "reason": "A way."}


@pytest.mark.parametrize(
    ("sparse", "paths", "said"),
    [
        (False, [MHA, {**MHA, "path": "mqa"}], "this path is always taken"),
        (False, [{**MHA, "when": {}}, MHA], "this path is always taken"),
        (False, [{**MHA, "when": {}}], None),
        (True, [TOP_K, TOP_K], "this path is always taken"),
        (True, [DENSE, TOP_K], None),
        (True, [DENSE], "the last path is dense and `dense_prefill` is false"),
        (True, [{**DENSE, "when": {"tp_size": 8}}, TOP_K], None),
    ],
)
def test_paths_that_are_never_or_not_always_there(
    build: Build, sparse: bool, paths: list[dict[str, Any]], said: str | None
) -> None:
    found = build.findings(build.entry(sparse=sparse, mla=sparse, prefill_paths=paths))
    assert [f.split(" ", 1)[1].split(",")[0] for f in found if said] == ([said] if said else [])
    assert bool(found) == bool(said)


# -- what would steer a terminal -----------------------------------------------------------------


@pytest.mark.parametrize("escape", [r"\e[31m", r"\a", r"\0", r"\x9b", r"\u202e", r"\u2066"])
def test_control_characters_behind_an_escape_are_a_finding(escape: str) -> None:
    document = read_text(f'attnsel: 1\nname: "a{escape}b"\n', "m.yaml")
    (found,) = (f for f in document.findings if f.code == "CAP007")
    assert (found.line, found.column) == (2, 7)
    assert found.message.startswith("control character U+")
    assert all(str(f).isprintable() for f in read(document)[1].findings)


def test_text_of_other_languages_is_text() -> None:
    for text in ("größer", "日本語", "a b", "tab\\there", "two\\nlines", "👩\u200d🔬"):
        assert read_text(f'name: "{text}"\n', "m.yaml").findings == []


def test_errors_show_no_control_characters(build: Build) -> None:
    selector = build.selector(facts={"mylib": {"type": "version", "description": "A library."}})
    for wrong in (
        lambda: Layer.of(dtype="\x1b[31mred"),
        lambda: Layer.of(**{"\x1b[2J\nsink": True}),
        lambda: Layer.of(capability="\x9b1"),
        lambda: selector.bind("\x1b[2J", build.layer()),
        lambda: selector.bind("9.0", build.layer(), Facts({"mylib": "\x1b[2J"})),
        lambda: selector.bind("9.0", build.layer(), policy=Policy(backend="\u202e")).resolve(1, 1),
    ):
        with pytest.raises(AttnselError) as caught:
            wrong()
        assert str(caught.value).isprintable()
