"""What vLLM 0.33.0 itself decided, against its manifest: on a part of the recorded tables.

``make parity`` compares all of them; ``docs/vllm-parity.md`` says what was recorded and how.
"""

from __future__ import annotations

import importlib.util
import sys
from itertools import islice, product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from selector import Selector
from selector.tables.rows import RowReader
from selector.values import Phase

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "manifests" / "vllm-0.33.0.yaml"
EVERY = {"grid": 3, "random": 5, "explicit": 3, "paths": 5, "mixed": 2, "mla_prefill": 4}
"""Of the larger tables, every so many rows are compared here."""


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


pytest.importorskip("pyarrow")
load("vllm_reasons")
parity = load("parity")


def rows_of(name: str, every: int = 1) -> list[dict[str, Any]]:
    table = parity.read(parity.file_of(ROOT / "tests" / "parity", name))
    return table.take(list(range(0, table.num_rows, every))).to_pylist()  # type: ignore[no-any-return]


def differences(name: str, rows: list[dict[str, Any]]) -> list[Any]:
    """The first rows on which the manifest and vLLM disagree."""
    counts = parity.Counter()
    compare = parity.TABLES[name].compare
    found = (d for number, row in enumerate(rows) for d in compare(row, counts, number))
    return list(islice(found, 3))


@pytest.mark.parametrize("name", list(parity.TABLES))
def test_the_manifest_decides_as_vllm_does(name: str) -> None:
    rows = rows_of(name, EVERY.get(name, 1))
    assert len(rows) > 400
    if name in ("grid", "random"):
        assert {row["mode"] for row in rows} >= {"model", "nomodel"}
    assert differences(name, rows) == []


def test_few_verdicts_stay_open_without_a_model() -> None:
    counts = parity.Counter()
    for number, row in enumerate(rows_of("random", 3)):
        assert list(parity.compare_selection(row, counts, number)) == []
    assert counts["verdicts without a model"] > 10_000
    share = counts["of which undecided"] / counts["verdicts without a model"]
    assert 0 < share < 0.05  # this part holds more MLA layers than the whole, where it is below 1 %


def test_the_historic_fault_is_there_only_when_it_is_supposed() -> None:
    counts = parity.Counter()
    rows = [r for r in rows_of("paths") if r["cap_major"] == 12 and r["impl_error"] is None]
    crashed = [r for r in rows if r["path"] == "dense_mha"]
    assert {r["override_supports_dense_mha_prefill"] for r in crashed} == {True}
    within = [r for r in crashed if r["topk_tokens"] == 2048 and r["decode_threshold"] == 128]
    lengths = {r["query_len"] for r in within}
    assert min(lengths) == 129
    assert max(lengths) == 2048
    for number, row in enumerate(crashed):
        assert list(parity.compare_path(row, counts, number)) == []
        safe = row | {"override_supports_dense_mha_prefill": None}
        assert parity.reader().answer(safe)["prefill_path"] == "sparse_mqa"
    assert counts["dense prefills on 12.x, all supposed"] == len(crashed) > 100


# -- the comparison can fail ---------------------------------------------------------------------

FAULTS = {
    "a head size": ("explicit", "head_size: [64, 128, 256, 512]", "head_size: [64, 128, 256]"),
    "a constraint": ("explicit", "code: FLASHMLA_DENSE_DEVICE", "code: FLASHMLA_DENSE"),
    "an order": ("grid", "order: [FLASHINFER, FLASH_ATTN,", "order: [FLASH_ATTN, FLASHINFER,"),
    "a version": ("grid", "{capability: 9.x}, value: 3}", "{capability: 9.x}, value: 2}"),
    "a threshold": ("paths", "{num_heads: [8, 16, 32]}, value: 128", "{num_heads: 8}, value: 128"),
    "a table": ("paths", "{max: 2048, min: 512}", "{max: 2048, min: 2048}"),
    "a mask": ("paths", "{max: 33554432}", "{max: 1}"),
    "uniform decodes": ("mixed", "    uniform_decodes: true\n", ""),
    "a prefill backend": ("mla_prefill", "{qk_nope_head_dim: 64, qk_rope_head_dim: 64,", "{"),
    "a fact": ("sensitivity", "{has_flashinfer_sm120_sparse: true}", "{has_flashmla: true}"),
    "a constructor": ("constructor", "      alibi: false", "      alibi: any"),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_wrong_manifest_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, right, wrong = FAULTS[fault]
    text = MANIFEST.read_text()
    assert right in text
    broken = Selector.loads(text.replace(right, wrong)).manifest

    def reader(as_claimed: bool = True, closed_world: bool = True) -> RowReader:
        manifest = broken.as_claimed() if as_claimed else broken
        return RowReader(Selector(manifest), closed_world=closed_world)

    one = {key: reader(*key) for key in product((True, False), repeat=2)}
    monkeypatch.setattr(
        parity, "reader", lambda as_claimed=True, closed_world=True: one[as_claimed, closed_world]
    )
    assert differences(name, rows_of(name)) != []


# -- the committed part --------------------------------------------------------------------------


def test_every_backend_and_capability_is_in_it() -> None:
    manifest = parity.reader().selector.manifest
    explicit = rows_of("explicit")
    recorded = {column[2:] for column in explicit[0] if column.startswith("r_")}
    ours = {name for name in manifest.entries if not name.endswith(parity.PREFILL)}
    assert recorded == ours
    assert len(ours) == 33
    seen = {(row["cap_major"], row["cap_minor"]) for row in explicit}
    assert len(seen) == 11
    accepted = {c[2:] for row in explicit for c, v in row.items() if c.startswith("r_") and v == []}
    assert ours - accepted == {"B12X"}  # it says that it does not run on the recorded machine
    size = sum(path.stat().st_size for path in (ROOT / "tests" / "parity").glob("*.parquet"))
    assert size < 1 << 20


def test_no_sentence_of_vllm_is_in_it() -> None:
    reasons = {code for row in rows_of("grid") for listed in row["reasons"] for code in listed}
    assert {code for code in reasons if not code.replace("_", "").isalnum() or " " in code} == set()
    assert all(code.isupper() for code in reasons)


# -- the manifest itself -------------------------------------------------------------------------


def test_every_rule_names_the_class_or_method_it_states() -> None:
    manifest = parity.reader().selector.manifest
    silent: list[str] = []

    def note(what: str, source: str) -> None:
        if not source.strip():
            silent.append(what)

    for name, match in manifest.derive.items():
        note(f"derive {name}", match.source)
    for what, rules in (
        ("space", manifest.space),
        ("joint", manifest.joint),
        ("priorities", manifest.priorities),
        ("defaults", tuple(manifest.defaults.values())),
    ):
        for rule in rules:
            note(f"{what} {rule.position}", rule.source)
    for entry in parity.Selector.load(MANIFEST).manifest.entries.values():
        note(entry.name, entry.source)
        stated = entry.phases[next(iter(entry.phases))]
        for field, match in stated.accepts.items():
            if match.rules[0].reason != "not stated" and field not in ("mla", "sparse"):
                note(f"{entry.name} accepts {field}", entry.sources.get(field, ""))
        for constraint in stated.constraints:
            note(f"{entry.name} {constraint.code}", constraint.source)
        for rule in (*entry.prefill_paths, *entry.dense_prefill_except):
            note(f"{entry.name} {rule.position}", rule.source)
        for match in entry.coerce.values():
            for rule in match.rules:
                note(f"{entry.name} {rule.position}", rule.source)
        if Phase.DECODE in entry.phases:
            assert entry.decode_threshold is not None
            note(f"{entry.name} threshold", entry.decode_threshold.source)
        assert entry.claimed is not None
        note(f"{entry.name} claimed", entry.claimed.source)
    assert silent == []


def test_nothing_is_read_but_what_is_named() -> None:
    """Facts unknown: an answer under conditions that name them."""
    selector = Selector.load(MANIFEST)
    row = {"gpu": "RTX PRO 6000", "model": "glm-5.2-fp8", "tp_size": 8, "query_len": 3300}
    answer = RowReader(selector).answer(row | {"seq_len": 3300})
    assert answer["decode_backend"] == "FLASHINFER_MLA_SPARSE_SM120"
    assert answer["prefill_path"] == "sparse_mqa"
    assert answer["conditions"] == ["has_flashinfer_sm120_sparse true"]
    without = RowReader(selector).answer(row | {"has_flashinfer_sm120_sparse": False})
    assert without["decode_backend"] is None
    assert without["missing"] == ["prefill", "decode"]
