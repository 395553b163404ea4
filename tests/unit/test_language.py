"""Every form of the language becomes the typed value it should, or a finding."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.document import Mapping, Sequence, read_text
from selector.domains import ANY, EMPTY, Domain
from selector.errors import ManifestError
from selector.loading import load, loads, read
from selector.manifest import Column, Entry, Manifest, PhaseSpec
from selector.rules import Bound, FirstMatch, Test
from selector.values import Phase, Position, Severity

GOOD = Path(__file__).parent.parent / "manifests" / "good"
EVERYTHING = (GOOD / "everything.yaml").read_text("utf-8")
SMALLEST = (GOOD / "smallest.yaml").read_text("utf-8")
SPARSE = (GOOD / "sparse-pinned.yaml").read_text("utf-8")


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return loads(EVERYTHING, "m.yaml")


@pytest.fixture(scope="module")
def paged(manifest: Manifest) -> Entry:
    return manifest.entries["paged"]


def at(text: str, within: str = EVERYTHING) -> Position:
    """Where a text first stands."""
    before = within[: within.index(text)].split("\n")
    return Position("m.yaml", len(before), len(before[-1]) + 1)


def only(match: FirstMatch[Test]) -> Domain:
    """The fixed set of a statement without cases."""
    (rule,) = match.rules
    assert rule.when.tests == ()
    return rule.result.allowed.fixed


# -- what is read -------------------------------------------------------------------------------


def test_identity(manifest: Manifest) -> None:
    assert (manifest.ref.name, manifest.ref.version) == ("everything", "2026.11")
    assert manifest.ref.file == "m.yaml"
    assert re.fullmatch("[0-9a-f]{64}", manifest.ref.digest)
    assert manifest.description == "Every form of the language at once."
    names = ["paged", "paged_without_decode", "latent_prefill", "sparse_mla_9", "sparse_mla"]
    assert list(manifest.entries) == names
    assert dict(manifest.facts) == {"mylib": "version", "jit": "boolean"}


def test_entry(paged: Entry) -> None:
    assert paged.position == at("&paged")
    assert (paged.library, paged.adapter) == ("mylib", "mylib.adapters:paged")
    assert paged.kv_layout == {"NHD", "HND"}
    assert [(r.fact, r.specifier) for r in paged.requires] == [("mylib", ">=1.2,<3"), ("jit", None)]
    assert paged.requires[0].position == at('">=1.2,<3"')
    assert paged.uniform_decodes
    assert paged.verified_on == ("run-1",)


def test_the_pinned_entry(manifest: Manifest) -> None:
    entry = manifest.entries["sparse_mla"]
    assert (entry.mla, entry.sparse, entry.dense_prefill) == (True, True, False)
    assert entry.dense_prefill_at == at("dense_prefill: false")
    assert entry.rationale == "Only the top-k path exists on 12.x."
    assert entry.evidence == ("https://example.org/51395",)
    assert entry.revisit_when == "a dense path for 12.x ships."
    assert entry.pinned == {"dense_prefill", "accepts"}
    assert manifest.entries["paged"].dense_prefill is None
    assert manifest.entries["paged"].dense_prefill_at is None


def test_values_lists_ranges_and_symbols(paged: Entry) -> None:
    accepts = paged.accepts
    assert only(accepts["platform"]) == Domain.of("cuda")
    assert only(accepts["dtype"]) == Domain.of("float16", "bfloat16")
    assert only(accepts["block_size"]) == Domain.between(None, None, 16) | Domain.of("unset")
    assert only(accepts["depth"]) == Domain.of("unset") | Domain.between(2, 4)
    assert only(accepts["switch"]) == Domain.of("on_", "unset")
    assert only(accepts["sliding_window"]) == ANY
    capability = only(accepts["capability"])
    assert all(capability.admits(c) for c in (800, 900, 905, 1000, 1003, 1200, 9900))
    assert not any(capability.admits(c) for c in (700, 806, 1004, 1100))
    assert accepts["block_size"].rules[0].result.position == at("block_size: {multiple_of")


@pytest.mark.parametrize(
    ("form", "domain"),
    [
        ("any", ANY),
        ("128", Domain.of(128)),
        ("[]", EMPTY),
        ("[64, any]", ANY),
        ("[64, {min: 100, max: 110, multiple_of: 5}]", Domain.of(64, 100, 105, 110)),
        ("{min: 64}", Domain.between(64, None)),
        ("{max: 64}", Domain.between(None, 64)),
        ("{multiple_of: 8}", Domain.between(None, None, 8)),
        ("{multiple_of: 8, max: 256}", Domain.between(None, 256, 8)),
        ("{min: 64, max: 64}", Domain.of(64)),
    ],
)
def test_each_form_of_a_set(form: str, domain: Domain) -> None:
    entry = loads(SMALLEST.replace("[64, 128]", form)).entries["paged"]
    assert only(entry.accepts["head_size"]) == domain


def test_symbols_alone_may_be_said_with_or() -> None:
    entry = loads(SMALLEST.replace("block_size: any", "block_size: {or: [unset]}")).entries["paged"]
    assert only(entry.accepts["block_size"]) == Domain.of("unset")


def test_bounds_taken_from_a_field(paged: Entry) -> None:
    (rule,) = paged.accepts["num_kv_heads"].rules
    assert rule.result.allowed.fixed == EMPTY
    assert rule.result.allowed.bounds == (Bound(None, "num_heads"),)


def test_cases(paged: Entry) -> None:
    first, last = paged.accepts["head_size"].rules
    assert first.when.tests[0].field == "version_of_fa"
    assert first.result.allowed.fixed == Domain.between(None, 512, 8)
    assert first.reason == "FA3 has more."
    assert first.position == at("{when: {version_of_fa: 3}, allow")
    assert last.when.tests == ()
    assert last.result.allowed.fixed == Domain.of(64, 128)


def test_features_unstated_are_off_and_context_unstated_is_free(paged: Entry) -> None:
    assert only(paged.accepts["sink"]) == Domain.of(False)
    assert paged.accepts["sink"].rules[0].reason == "not stated"
    assert paged.accepts["sink"].rules[0].position == at("accepts:\n      <<: *decoders")
    assert only(paged.accepts["mla"]) == Domain.of(False)
    assert paged.accepts["mla"].rules[0].position == at("mla: false\n    sparse: false")
    assert "tp_size" not in paged.accepts
    assert list(paged.accepts)[:3] == ["platform", "capability", "mla"]


def test_kinds_bind_an_entry_to_its_layers(manifest: Manifest) -> None:
    entry = manifest.entries["sparse_mla"]
    for spec in entry.phases.values():
        assert only(spec.accepts["mla"]) == Domain.of(True)
        assert only(spec.accepts["sparse"]) == Domain.of(True)


def test_a_phase_replaces_fields_and_adds_constraints(paged: Entry) -> None:
    prefill, decode = paged.phases[Phase.PREFILL], paged.phases[Phase.DECODE]
    assert "gqa_group" not in prefill.accepts
    assert only(decode.accepts["gqa_group"]) == Domain.between(None, 16)
    assert decode.accepts["dtype"] == prefill.accepts["dtype"] == paged.accepts["dtype"]
    assert [c.code for c in prefill.constraints] == ["HALF_128", "GROUP"]
    assert [c.code for c in decode.constraints] == ["HALF_128", "GROUP", "PAGE"]


def test_a_phase_may_say_something_else_than_its_entry() -> None:
    own = "phases: {prefill: {accepts: {head_size: [512]}}, decode: {}}"
    entry = loads(SMALLEST.replace("phases: {prefill: {}, decode: {}}", own)).entries["paged"]
    assert only(entry.phases[Phase.PREFILL].accepts["head_size"]) == Domain.of(512)
    assert only(entry.phases[Phase.DECODE].accepts["head_size"]) == Domain.of(64, 128)
    assert only(entry.accepts["head_size"]) == Domain.of(64, 128)


def test_a_phase_may_be_switched_off(manifest: Manifest) -> None:
    spec = manifest.entries["paged_without_decode"].phases[Phase.DECODE]
    assert isinstance(spec, PhaseSpec)
    assert (spec.disabled, spec.rationale) == (True, "It hangs.")
    assert spec.position == at("{disabled: true")
    assert not manifest.entries["paged"].phases[Phase.DECODE].disabled


def test_constraints(paged: Entry) -> None:
    never, either = paged.phases[Phase.PREFILL].constraints
    assert [t.field for t in never.when.tests] == ["sink", "dtype", "head_size"]
    assert (never.require.tests, never.any_of) == ((), ())
    assert never.reason == "No kernel."
    assert never.position == at("{when: {sink: false, dtype: float16")
    assert either.when.tests == either.require.tests == ()
    assert [[t.field for t in when.tests] for when in either.any_of] == [
        ["gqa_group"],
        ["head_size"],
    ]


def test_coercions_thresholds_and_paths(manifest: Manifest, paged: Entry) -> None:
    assert [rule.result for rule in paged.coerce["block_size"].rules] == [16, "same"]
    assert paged.decode_threshold is not None
    assert [rule.result for rule in paged.decode_threshold.rules] == [8, 1]
    assert [(p.path, p.batch) for p in paged.prefill_paths] == [("mha", True), ("mqa", False)]
    masked = manifest.entries["sparse_mla"].prefill_paths[1]
    assert masked.steps is not None
    assert (masked.steps.over, masked.steps.least) == ("seq_len", "query_len")
    assert masked.steps.table == ((2048, 512), (8192, 4096))
    plain = loads(SMALLEST).entries["paged"].decode_threshold
    assert plain is not None
    assert [rule.result for rule in plain.rules] == [1]


def test_derived_values_come_after_those_they_read(manifest: Manifest) -> None:
    assert list(manifest.derive) == ["version_of_fa", "page"]
    assert [rule.result for rule in manifest.derive["page"].rules] == [64, 16]
    assert manifest.vocabulary.fields["version_of_fa"].type == "integer"
    assert manifest.vocabulary.field("deep").name == "depth"


@pytest.mark.parametrize(
    ("values", "kind", "names"),
    [
        (("true", "false"), "boolean", ()),
        (("NHD", "HND"), "name", ("NHD", "HND")),
        (("1", "2"), "integer", ()),
        (("1", "none"), "integer", ("none",)),
    ],
)
def test_the_type_of_a_derived_value_is_that_of_its_results(
    values: tuple[str, str], kind: str, names: tuple[str, ...]
) -> None:
    rules = f"[{{when: {{mla: true}}, value: {values[0]}}}, {{value: {values[1]}}}]"
    field = loads(f"{SMALLEST}derive: {{own: {{first_match: {rules}}}}}\n").vocabulary.fields["own"]
    assert field.type == kind
    assert (field.values or field.symbols) == names


def test_space_joint_policy_measures_and_invariants(manifest: Manifest) -> None:
    assert [r.code for r in manifest.space] == ["CONTRADICTION", "CONTRADICTION"]
    assert [j.same for j in manifest.joint] == [("kv_layout",), ("backend",)]
    first, second, last = manifest.priorities
    assert dict(first.orders) == {Phase.PREFILL: ("latent_prefill", "sparse_mla", "sparse_mla_9")}
    assert dict(second.orders) == {Phase.DECODE: ("sparse_mla", "sparse_mla_9")}
    assert last.orders[Phase.PREFILL] == ("paged_without_decode", "paged")
    assert last.orders[Phase.DECODE] == ("paged",)
    assert [(d.backend, len(d.when.tests)) for d in manifest.deny] == [("paged", 2)]
    (measure,) = manifest.measures
    assert (measure.name, measure.small_tile, measure.word_align) == ("mask_words", 128, 4)
    promise, other = manifest.invariants
    assert promise.never_paths == {"dense_mha", "masked_mha"}
    assert other.never_backends == {"paged"}


def test_what_an_engine_takes_for_granted_and_how_its_tables_are_read(manifest: Manifest) -> None:
    switch, heads = manifest.defaults["switch"], manifest.defaults["num_kv_heads"]
    assert (switch.value, switch.field, switch.source) == ("unset", None, "the code")
    assert (heads.value, heads.field) == (None, "num_heads")
    columns = manifest.columns
    assert columns["pages"].field == "block_size"
    assert columns["mode"].values == {
        "plain": {"switch": "on_"},
        "blind": {"num_heads": None, "sink": False},
    }
    assert (columns["what_if"].dense, columns["ran"].given) == (True, True)
    assert columns["model"] == Column()
    assert manifest.standard == {"jit"}


def test_sources(manifest: Manifest) -> None:
    latent, sparse = manifest.entries["latent_prefill"], manifest.entries["sparse_mla_9"]
    assert set(latent.sources) == {"head_size", "platform"}
    assert latent.sources["head_size"] == "LatentPrefill.supports_head_size"
    assert latent.prefill_paths[0].source == "the code"
    (case,) = sparse.dense_prefill_except
    assert (case.reason, case.source) == ("Its cache has another layout.", "the code")
    assert sparse.decode_threshold is not None
    assert sparse.decode_threshold.source == "the code"
    assert [rule.by_dense_backend for rule in sparse.prefill_paths] == [True, False]


def test_an_order_for_both_phases_leaves_out_what_an_entry_does_not_serve() -> None:
    text = SMALLEST.replace("phases: {prefill: {}, decode: {}}", "phases: {prefill: {}}")
    both = text + "priorities: [{order: [paged], reason: x}]\n"
    orders = loads(both).priorities[0].orders
    assert (orders[Phase.PREFILL], orders[Phase.DECODE]) == (("paged",), ())


def test_what_an_engine_claims_is_kept_apart(manifest: Manifest) -> None:
    true, claimed = manifest.entries["sparse_mla"], manifest.as_claimed().entries["sparse_mla"]
    assert (true.dense_prefill, claimed.dense_prefill) == (False, True)
    for entry, admits in ((true, False), (claimed, True)):
        for accepts in (entry.accepts, *(spec.accepts for spec in entry.phases.values())):
            assert only(accepts["capability"]).admits(1100) is admits
    assert only(claimed.accepts["dtype"]) == only(true.accepts["dtype"])
    assert manifest.as_claimed().entries["paged"] == manifest.entries["paged"]


# -- digests ------------------------------------------------------------------------------------


def digest(text: str) -> str:
    return loads(text).ref.digest


def turned(node: Any) -> Any:
    """The same with the keys of every mapping in reverse order."""
    if isinstance(node, dict):
        return {k: turned(v) for k, v in reversed(node.items())}
    return [turned(item) for item in node] if isinstance(node, list) else node


def test_digests_see_what_is_meant_and_not_how_it_is_written() -> None:
    same = digest(EVERYTHING)
    assert (
        digest(
            EVERYTHING,
        )
        == same
    )
    assert digest("# more words\n" + EVERYTHING.replace("\n", "  # a comment\n", 1)) == same
    assert digest(EVERYTHING.replace("\n", "\r\n")) == same
    assert digest(re.sub(r"([&*])(sizes|decoders|paged)\b", r"\1other_\2", EVERYTHING)) == same
    tree = read_text(EVERYTHING, "m.yaml").tree
    assert tree is not None
    assert digest(json.dumps(turned(tree))) == same
    assert digest(json.dumps({k: v for k, v in tree.items() if k != "definitions"})) == same


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[64, 128]", "[64, 256]"),
        ("[64, 128]", "[128, 64]"),
        ("mla: true\n    sparse: true", "mla: false\n    sparse: true"),
        ("decode: {}", "decode: {disabled: true, rationale: x}"),
        ('">=1.2,<3"', '">=1.3,<3"'),
        ("max: 16}", "max: 17}"),
        ("The fastest first.", "The slowest first."),
        ("prefill: [paged_without_decode, paged]", "prefill: [paged, paged_without_decode]"),
        ("pinned: [dense_prefill, accepts]", "pinned: [dense_prefill]"),
    ],
)
def test_digests_change_with_the_meaning(old: str, new: str) -> None:
    assert old in EVERYTHING
    assert digest(EVERYTHING.replace(old, new, 1)) != digest(EVERYTHING)


# -- errors -------------------------------------------------------------------------------------


def test_an_error_lists_all_findings_and_is_one_line() -> None:
    wrong = SMALLEST.replace("mla: false", "mla: no").replace("[64, 128]", "[064]")
    with pytest.raises(ManifestError) as raised:
        loads(wrong, "m.yaml")
    error = raised.value
    assert isinstance(error, ValueError)
    assert error.code == "MANIFEST"
    assert [str(f)[:21] for f in error.findings] == [
        "m.yaml:7:10: CAP005 n",
        "m.yaml:14:19: CAP005 ",
    ]
    assert str(error) == f"{error.findings[0]} (and 1 more)"
    with pytest.raises(
        ManifestError, match=r"^m.yaml:1:1: CAP001 file is empty; write a manifest$"
    ):
        loads("", "m.yaml")


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(SMALLEST, "utf-8")
    assert load(file).entries == load(str(file)).entries
    assert load(file).ref.file == str(file)
    assert load(file).ref.digest == digest(SMALLEST)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.yaml")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
    file.write_bytes(bytes(range(256)))
    with pytest.raises(ManifestError, match="CAP007 byte 0x80 is not UTF-8"):
        load(file)


def test_notes_do_not_make_a_manifest_unusable() -> None:
    manifest, document = read(read_text("%YAML 1.2\n---\n" + SMALLEST, "m.yaml"))
    assert [f.severity for f in document.findings] == [Severity.NOTE]
    assert manifest is not None


# -- whatever the text --------------------------------------------------------------------------


def check_reading(data: bytes | str) -> None:
    """Reading ends: in a manifest without errors, or in findings that point into the text."""
    manifest, document = read(read_text(data, "m.yaml"))
    assert (manifest is None) == any(f.severity is Severity.ERROR for f in document.findings)
    assert document.findings == sorted(document.findings)
    for finding in document.findings:
        assert finding.line >= 1
        assert finding.column >= 1
        assert len(str(finding).splitlines()) == 1


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_read_to_an_end(data: bytes) -> None:
    check_reading(data)


YAML = st.text(st.sampled_from(list("ab01 \n\t:-?[]{},&*!|>'\"%@`#.~<_xno\r\x85é\ud800\0")))


@given(YAML | st.text())
def test_text_of_any_kind_is_read_to_an_end(text: str) -> None:
    check_reading(text)


STRANGE = [
    *("no", "9:0", "016", "12.10", "1_000", "~", "''", "' '", "any", "[]", "{}", "[[]]", "{a: b}"),
    *("-1", "0", "128", "true", "unset", "absent", "paged", '"12.0"', '">=8.0"', "12.x", "same"),
    *("{min: 9, max: 1}", "{max: {field: seq_len}}", "{cases: []}", "[any, {or: [x]}]", "*sizes"),
    *("{when: {}, value: 1}", "[{when: {mla: true}}]", "{any_of: [{}]}", "{first_match: []}"),
]
TEXTS = [path.read_text("utf-8") for path in sorted(GOOD.glob("*.yaml"))]


def json_nodes(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of every node below the root."""
    steps = node.items() if isinstance(node, dict) else enumerate(node)
    found: list[tuple[Any, ...]] = []
    for step, child in steps:
        found.append((*path, step))
        if isinstance(child, dict | list):
            found += json_nodes(child, (*path, step))
    return found


def plain(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {k: plain(v) for k, v in node.items()}
    return [plain(v) for v in node] if isinstance(node, Sequence) else node


@st.composite
def mutants(draw: st.DrawFn) -> str:
    """A good manifest with a few nodes dropped, replaced, moved, renamed or given twice."""
    tree = plain(read_text(draw(st.sampled_from(TEXTS)), "m.yaml").tree)
    for _ in range(draw(st.integers(1, 3))):
        paths = json_nodes(tree)
        *way, last = draw(st.sampled_from(paths))
        node = tree
        for step in way:
            node = node[step]
        match draw(st.sampled_from(["drop", "replace", "move", "rename", "twice"])):
            case "drop":
                del node[last]
            case "replace":
                node[last] = draw(st.sampled_from([None, True, -1, 0, 7, "x", "", [], {}, [[1]]]))
            case "move":
                *_, name = draw(st.sampled_from(paths))
                value = json.loads(json.dumps(node[last]))
                if isinstance(node, dict):
                    node[str(name)] = value
                else:
                    node.append(value)
            case "rename" if isinstance(node, dict):
                node[draw(st.sampled_from(["x", "when", "any_of", "cases", "<<"]))] = node.pop(last)
            case _ if isinstance(node, list):
                node.append(node[last])
        if not tree:
            break
    return json.dumps(tree)


@given(mutants())
def test_mutants_of_good_manifests_are_read_to_an_end(text: str) -> None:
    check_reading(text)


@given(st.sampled_from(TEXTS), st.data())
def test_good_manifests_with_a_strange_value_are_read_to_an_end(
    text: str, data: st.DataObject
) -> None:
    places = [m.span(1) for m in re.finditer(r": ([^\s{}\[\],]+)(?=[\n},])", text)]
    start, end = data.draw(st.sampled_from(places))
    check_reading(text[:start] + data.draw(st.sampled_from(STRANGE)) + text[end:])


@given(st.sampled_from(TEXTS), st.data())
def test_good_manifests_with_lines_lost_or_given_twice_are_read_to_an_end(
    text: str, data: st.DataObject
) -> None:
    lines = text.splitlines(keepends=True)
    for _ in range(data.draw(st.integers(1, 3))):
        i = data.draw(st.integers(0, len(lines) - 1))
        j = data.draw(st.integers(0, len(lines) - 1))
        lines[i] = data.draw(st.sampled_from(["", lines[i] * 2, lines[j], " " + lines[i]]))
    check_reading("".join(lines))
