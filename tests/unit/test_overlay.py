"""An overlay changes what it may, where it says so, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from selector.document import Document, read_text
from selector.loading import load, read
from selector.manifest import Manifest
from selector.overlay import apply_overlay
from selector.values import Phase

BASE = """\
attnsel: 1
name: base
version: "1"
facts:
  mylib: {type: version, description: My library.}
backends:
  - name: paged
    source: https://example.org/paged
    mla: false
    sparse: false
    requires: {mylib: ">=1.2"}
    accepts: &accepts
      platform: [cuda]
      capability: ["9.0"]
      dtype: [bfloat16]
      kv_cache_dtype: [auto]
      head_size: [64, 128]
      block_size: any
      attn_type: [decoder]
    phases: {prefill: {}, decode: {}}
    decode_threshold: 1
    prefill_paths: [{path: mha, reason: The only way.}]
  - name: sparse_mla
    source: https://example.org/sparse
    mla: true
    sparse: true
    dense_prefill: false
    rationale: Only the top-k path exists on 12.x.
    pinned: [dense_prefill, requires]
    accepts: {<<: *accepts, capability: ["12.0"]}
    phases: {prefill: {}, decode: {}}
    decode_threshold: 1
    prefill_paths: [{path: sparse_mqa, reason: The only way.}]
priorities:
  - {order: [sparse_mla, paged], reason: That is the order.}
deny:
  - {backend: paged, when: {head_size: 64}, reason: Slow.}
"""
HEAD = "attnsel: 1\noverlay: mine\n"


def apply(overlay: str, base: str = BASE) -> tuple[Manifest | None, Document]:
    """The manifest with one overlay, and its findings."""
    text = overlay if overlay.startswith("attnsel") or not overlay else HEAD + overlay
    merged = apply_overlay(read_text(base, "base.yaml"), read_text(text, "over.yaml"))
    return read(merged)


def accepted(overlay: str) -> Manifest:
    manifest, document = apply(overlay)
    assert document.findings == []
    assert manifest is not None
    return manifest


def refused(overlay: str, base: str = BASE) -> list[str]:
    manifest, document = apply(overlay, base)
    assert manifest is None
    return [str(finding) for finding in document.findings]


def refused_once(overlay: str, base: str = BASE) -> str:
    (finding,) = refused(overlay, base)
    return finding


def test_an_empty_overlay_changes_the_name_only() -> None:
    plain = read(read_text(BASE, "base.yaml"))[0]
    overlaid = accepted(HEAD)
    assert plain is not None
    assert overlaid.ref.name == "base+mine"
    assert overlaid.ref.file == "base.yaml"
    assert overlaid.entries == plain.entries
    assert overlaid.priorities == plain.priorities
    assert overlaid.ref.digest != plain.ref.digest


def test_accepts_is_changed_field_by_field_and_other_keys_whole() -> None:
    manifest = accepted(
        "backends:\n"
        "  - name: paged\n"
        "    accepts: {head_size: [128], sink: any}\n"
        "    requires: {mylib: '>=2'}\n"
        "    phases: {prefill: {}}\n"
    )
    entry = manifest.entries["paged"]
    head_size = entry.accepts["head_size"].rules[0].result
    assert head_size.allowed.fixed.admits(128)
    assert not head_size.allowed.fixed.admits(64)
    assert str(head_size.position) == "over.yaml:5:15"
    assert str(entry.accepts["dtype"].rules[0].result.position) == "base.yaml:15:7"
    assert entry.accepts["sink"].rules[0].result.allowed.fixed.admits(True)
    assert [r.specifier for r in entry.requires] == [">=2"]
    assert set(entry.phases) == {Phase.PREFILL}
    assert entry.position.file == "base.yaml"
    assert (
        manifest.entries["sparse_mla"].accepts["head_size"].rules[0].result.allowed.fixed.admits(64)
    )


SOURCED = BASE.replace(
    "    mla: false\n", "    sources: {head_size: a class, dtype: the code}\n    mla: false\n", 1
)


@pytest.mark.parametrize(
    ("base", "stated", "sources"),
    [
        (
            SOURCED,
            "{head_size: my patch, sink: a branch}",
            {"head_size": "my patch", "dtype": "the code", "sink": "a branch"},
        ),
        (SOURCED, "{}", {"head_size": "a class", "dtype": "the code"}),
        (BASE, "{head_size: my patch}", {"head_size": "my patch"}),
    ],
)
def test_sources_are_changed_field_by_field(
    base: str, stated: str, sources: dict[str, str]
) -> None:
    manifest, document = apply(f"backends:\n  - {{name: paged, sources: {stated}}}\n", base)
    assert document.findings == []
    assert manifest is not None
    assert manifest.entries["paged"].sources == sources


def test_a_source_of_no_field_is_a_finding_of_the_overlay() -> None:
    said = refused_once("backends:\n  - {name: paged, sources: {hed_size: my patch}}\n", SOURCED)
    assert said == 'over.yaml:4:29: CAP010 unknown field "hed_size"; did you mean head_size?'


def test_an_entry_may_be_changed_twice() -> None:
    manifest = accepted(
        "backends:\n"
        "  - {name: paged, accepts: {head_size: [256]}}\n"
        "  - {name: paged, accepts: {dtype: [float16]}}\n"
    )
    entry = manifest.entries["paged"]
    assert entry.accepts["head_size"].rules[0].result.allowed.fixed.admits(256)
    assert entry.accepts["dtype"].rules[0].result.allowed.fixed.admits("float16")


def test_priorities_come_first_and_denials_last() -> None:
    manifest = accepted(
        "priorities: [{when: {head_size: 128}, order: [paged], reason: Measured.}]\n"
        "deny: [{backend: paged, when: {capability: '9.0'}, reason: Driver bug.}]\n"
    )
    assert [p.reason for p in manifest.priorities] == ["Measured.", "That is the order."]
    assert [d.reason for d in manifest.deny] == ["Slow.", "Driver bug."]
    assert [p.position.file for p in manifest.priorities] == ["over.yaml", "base.yaml"]


def test_a_manifest_without_policy_gets_one() -> None:
    base = BASE[: BASE.index("priorities:")]
    manifest, document = apply("priorities: [{order: [paged], reason: Mine.}]", base)
    assert document.findings == []
    assert manifest is not None
    assert [p.reason for p in manifest.priorities] == ["Mine."]


def test_new_entries_and_facts_join_those_of_the_manifest() -> None:
    entry = BASE[BASE.index("  - name: paged") : BASE.index("  - name: sparse_mla")]
    manifest = accepted(
        "facts: {other: {type: boolean, description: Another.}}\nbackends:\n"
        + entry.replace("name: paged", "name: fresh").replace('mylib: ">=1.2"', "other: true")
    )
    assert list(manifest.entries) == ["paged", "sparse_mla", "fresh"]
    assert manifest.entries["fresh"].position.file == "over.yaml"
    assert dict(manifest.facts) == {"mylib": "version", "other": "boolean"}


WHY = "pinned because: Only the top-k path exists on 12.x."


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "dense_prefill: true",
            "over.yaml:3:31: CAP026 `dense_prefill` of sparse_mla is pinned at base.yaml:27:5; "
            f"remove it; {WHY}",
        ),
        (
            "pinned: []",
            "over.yaml:3:31: CAP026 `pinned` of sparse_mla is pinned at base.yaml:29:5; "
            f"remove it; {WHY}",
        ),
        (
            "requires: {mylib: '>=0'}",
            "over.yaml:3:31: CAP026 `requires` of sparse_mla is pinned at base.yaml:23:5; "
            f"remove it; {WHY}",
        ),
        ("dense_prefill: 0", "over.yaml:3:46: CAP004 0 is not true or false; "),
    ],
)
def test_a_pinned_key_stays_and_both_places_are_named(change: str, said: str) -> None:
    assert refused(f"backends: [{{name: sparse_mla, {change}}}]")[0].startswith(said)


def test_saying_the_same_as_a_pin_is_no_change() -> None:
    accepted("backends: [{name: sparse_mla, dense_prefill: false}]")


def test_pins_cannot_be_lifted_in_two_steps() -> None:
    both = "backends: [{name: sparse_mla, pinned: []}, {name: sparse_mla, dense_prefill: true}]"
    found = refused(both)
    assert [f.split(": ")[1][:6] for f in found] == ["CAP026", "CAP026"]
    first = apply_overlay(
        read_text(BASE, "base.yaml"),
        read_text(HEAD + "backends: [{name: sparse_mla, pinned: []}]", "one.yaml"),
    )
    second = "backends: [{name: sparse_mla, dense_prefill: true}]"
    manifest, document = read(apply_overlay(first, read_text(HEAD + second, "two.yaml")))
    assert manifest is None
    assert document.findings[0].code == "CAP026"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("dense_prefill: true", "over.yaml:3:46: CAP023 "),
        ("accepts: {capability: any}", "over.yaml:3:53: CAP024 "),
        ("accepts: {capability: [9.x, '>=12.0']}", "over.yaml:3:59: CAP024 "),
        ("rationale: ' '", "over.yaml:3:42: CAP022 "),
        ("rationale: null", "over.yaml:3:42: CAP022 "),
    ],
)
def test_what_the_schema_pins_holds_after_merging(change: str, said: str) -> None:
    base = BASE.replace("    pinned: [dense_prefill, requires]\n", "")
    assert refused_once(f"backends: [{{name: sparse_mla, {change}}}]", base).startswith(said)


@pytest.mark.parametrize(
    ("overlay", "said"),
    [
        ("", "1:1: CAP001 file is empty; "),
        ("fleet: 1", '3:1: CAP003 unknown key "fleet"; '),
        ("backends: [1]", "3:12: CAP004 1 is not a mapping; "),
        ("backends: [{}]", "3:12: CAP008 `name` is missing; "),
        ("backends: [{name: paged, mla: no}]", "3:31: CAP005 no is a boolean in YAML 1.1"),
        ("backends: [{name: paged, frob: 1}]", '3:26: CAP003 unknown key "frob"; '),
        ("backends: [{name: paged, accepts: 5}]", "3:35: CAP004 5 is not a mapping; "),
        ("backends: [{name: paged, accepts: [any]}]", "3:35: CAP004 a list is not a mapping; "),
        ("backends: [{name: paged, requires: yes_}]", '3:36: CAP004 "yes_" is not a mapping; '),
        ("backends: [{name: paged, accepts: {hed_size: 1}}]", '3:36: CAP010 unknown field "hed'),
        ("backends: [{name: paged, accepts: {dtype: bf16}}]", "3:43: CAP011 bf16 is not a value"),
        ("priorities: 5", "3:13: CAP004 5 is not a list; "),
        ("priorities: [{order: [pagd], reason: x}]", '3:23: CAP013 no entry is called "pagd"; '),
        ("deny: [{backend: paged}]", "3:8: CAP008 `reason` is missing; "),
        ("facts: {a: 1}", "3:12: CAP004 1 is not a mapping; "),
        ("a: @b", "3:4: CAP001 @ cannot begin a value; "),
    ],
)
def test_mistakes_of_an_overlay_are_reported_in_its_file(overlay: str, said: str) -> None:
    assert refused_once(overlay).startswith(f"over.yaml:{said}")


@pytest.mark.parametrize(
    "base",
    [
        "attnsel: 1",
        "backends: 3\nname: x",
        "backends: [3]",
        "name: x\nbackends: []\npriorities: 3\nfacts: 4\ndeny: 5",
        "backends: [{name: [1], pinned: [{}]}]",
        BASE.replace("name: base", "nom: base"),
    ],
)
def test_a_broken_manifest_is_reported_whatever_lies_over_it(base: str) -> None:
    overlay = (
        "facts: {a: {type: boolean, description: A.}}\n"
        "backends: [{name: paged, mla: false}]\n"
        "priorities: [{order: [], reason: x}]\ndeny: [{backend: paged, reason: x}]\n"
    )
    found = refused(overlay, base)
    assert all(finding.startswith("base.yaml:") for finding in found)


def test_mistakes_of_both_files_are_shown_together() -> None:
    found = refused("fleet: 1", BASE.replace("name: base", "nom: base"))
    assert [f.split(":")[0] for f in found] == ["base.yaml", "over.yaml"]


def test_the_base_is_left_as_it_was() -> None:
    base = read_text(BASE, "base.yaml")
    before = repr(base.tree), list(base.findings)
    changes = (
        "facts: {other: {type: boolean, description: Another.}}\n"
        "backends: [{name: paged, accepts: {head_size: [9]}, mla: true}, {name: new}]\n"
        "priorities: [{order: [paged], reason: Mine.}]\ndeny: [{backend: paged, reason: Mine.}]\n"
    )
    merged = apply_overlay(base, read_text(HEAD + changes, "over.yaml"))
    assert merged.tree is not None
    assert merged.tree["backends"][0]["accepts"]["head_size"] == [9]
    assert (repr(base.tree), list(base.findings)) == before


def test_overlays_are_applied_in_order(tmp_path: Path) -> None:
    for name, size in (("base.yaml", ""), ("one.yaml", "[256]"), ("two.yaml", "[512]")):
        change = f"backends: [{{name: paged, accepts: {{head_size: {size}}}}}]\n"
        text = BASE if not size else HEAD.replace("mine", name[:3]) + change
        (tmp_path / name).write_text(text, "utf-8")
    manifest = load(tmp_path / "base.yaml", [tmp_path / "one.yaml", tmp_path / "two.yaml"])
    assert manifest.ref.name == "base+one+two"
    head_size = manifest.entries["paged"].accepts["head_size"].rules[0].result
    assert head_size.allowed.fixed.admits(512)
    assert head_size.position.file == str(tmp_path / "two.yaml")


@pytest.mark.parametrize(
    "change",
    [
        "claimed: {source: me, dense_prefill: true}",
        "claimed: {source: me, accepts: {capability: any}}",
        "dense_prefill_except: []",
    ],
)
def test_what_is_pinned_is_not_reached_another_way(change: str) -> None:
    manifest, merged = apply(f"backends:\n  - {{name: sparse_mla, {change}}}\n")
    assert manifest is None
    assert [finding.code for finding in merged.findings] == ["CAP026"]
