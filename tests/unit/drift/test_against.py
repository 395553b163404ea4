"""A manifest held against a small engine of vLLM's shape."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selector.drift.against import compare
from selector.drift.engines.vllm import READER
from selector.drift.modules import Modules
from selector.drift.sources import open_source
from selector.loading import loads
from selector.values import Finding, Severity

from .conftest import write_package
from .test_vllm import engine_files

MANIFEST = (Path(__file__).parent / "snippets" / "manifest.yaml").read_text(encoding="utf-8")
CAPABILITIES = ("8.0", "9.0", "12.0", "99.0")
STATES_IT = "    supports_dense_mha_prefill = False\n"

Change = tuple[str, str]


def changed(text: str, change: Change) -> str:
    old, new = change
    assert old in text
    return text.replace(old, new)


@pytest.fixture
def drift(tmp_path: Path) -> Callable[..., list[Finding]]:
    """Findings after changes of the manifest (``manifest``) or of an engine's file (``sparse``)."""

    def make(manifest: Change = ("", ""), **changes: Change) -> list[Finding]:
        files = engine_files()
        for name, change in changes.items():
            path = f"vllm/v1/attention/{name}.py"
            files[path] = changed(files[path], change)
        source = open_source(write_package(tmp_path, files), "vllm")
        stated = loads(changed(MANIFEST, manifest), "m.yaml")
        return list(compare(stated, READER.read(Modules(source), CAPABILITIES)))

    return make


def of(findings: list[Finding], code: str, word: str = "") -> list[Finding]:
    return [one for one in findings if one.code == code and word in one.message]


def line_of(text: str) -> int:
    return MANIFEST[: MANIFEST.index(text)].count("\n") + 1


def test_a_permissive_default_that_is_only_inherited_is_an_error_with_both_places(drift) -> None:
    (found,) = of(drift(sparse=(STATES_IT, "")), "DRF002")
    assert found.severity is Severity.ERROR
    assert (found.file, found.line) == ("m.yaml", line_of("dense_prefill: false"))
    assert "SparseSM120Impl (vllm/v1/attention/sparse.py:" in found.message
    assert "inherits True from ImplBase (vllm/v1/attention/backend.py:" in found.message
    assert "the manifest says false" in found.message


def test_an_implementation_that_states_it_is_not_reported(drift) -> None:
    assert of(drift(), "DRF002") == []


def test_a_default_that_the_manifest_shares_is_a_warning(drift) -> None:
    older = MANIFEST.replace("[12.x]", "[10.x]").replace(
        "dense_prefill: false", "dense_prefill: true"
    )
    (found,) = of(drift((MANIFEST, older), sparse=(STATES_IT, "")), "DRF002")
    assert found.severity is Severity.WARNING


def test_a_default_that_a_constructor_changes_at_times_is_not_decided(drift) -> None:
    sets = "    def __init__(self, num_heads, kv_cache_dtype, alibi_slopes, logits_soft_cap):\n"
    also = f"{sets}        if num_heads > 8:\n            self.supports_dense_mha_prefill = False\n"
    found = drift(sparse=(f"{STATES_IT}\n{sets}", also))
    assert of(found, "DRF002") == []
    (open_,) = of(found, "DRF007", "SparseSM120Impl")
    assert "a constructor sets False at times (vllm/v1/attention/sparse.py:" in open_.message


def test_a_default_that_no_mla_layer_asks_for_is_a_note(drift) -> None:
    head = "    @classmethod\n    def get_supported_head_sizes"
    none = f"    @classmethod\n    def is_mla(cls):\n        return False\n\n{head}"
    (found,) = of(drift(sparse=(STATES_IT, ""), backend=(head, none)), "DRF002")
    assert found.severity is Severity.NOTE


def test_a_backend_that_the_manifest_lacks_is_told_at_its_line_in_the_registry(drift) -> None:
    (found,) = of(drift(), "DRF003", "COMPOSITE")
    assert found.file == "vllm/v1/attention/backends/registry.py"
    assert found.message.startswith("COMPOSITE is registered, and vllm 0.1.0 has no entry")
    assert found.severity is Severity.WARNING


def test_a_backend_of_another_platform_is_a_note(drift) -> None:
    registry = {"backends/registry": ("    COMPOSITE =", "    ROCM_COMPOSITE =")}
    (found,) = of(drift(**registry), "DRF003", "COMPOSITE")
    assert found.severity is Severity.NOTE
    assert "another platform (rocm)" in found.message


def test_an_entry_that_the_registry_lacks_is_an_error(drift) -> None:
    (found,) = of(drift(("name: FLASH", "name: OLD")), "DRF004")
    assert (found.severity, found.line) == (Severity.ERROR, line_of("- name: FLASH"))
    assert "OLD is not in the registry of vllm" in found.message


def test_an_entry_whose_class_is_gone_is_an_error(drift) -> None:
    (found,) = of(drift(("name: FLASH", "name: GONE")), "DRF004")
    assert "vllm.v1.attention.gone.GoneBackend" in found.message


def test_what_registers_no_class_is_not_decided(drift) -> None:
    names = [one.message.split()[0] for one in of(drift(), "DRF007", "registers no class")]
    assert names == ["UNSET", "CUSTOM"]
    assert {one.severity for one in of(drift(), "DRF007")} == {Severity.NOTE}


def test_an_engine_without_a_registry_is_one_finding_and_not_one_an_entry(
    tmp_path: Path, drift: Any
) -> None:
    source = open_source(write_package(tmp_path, {"vllm/code.py": "N = 1\n"}), "vllm")
    found = compare(loads(MANIFEST, "m.yaml"), READER.read(Modules(source), CAPABILITIES))
    assert {one.code for one in found} == {"CAP307"}
