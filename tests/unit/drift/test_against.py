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
CAPABILITIES = ("7.5", "8.0", "9.0", "12.0", "99.0")
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
    (open_,) = of(found, "DRF007", "does not state")
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
    assert "GONE: vllm.v1.attention.gone.GoneBackend, registered at vllm/" in found.message
    assert ": :1:" not in found.message


def test_what_registers_no_class_is_not_decided(drift) -> None:
    names = [one.message.split()[0] for one in of(drift(), "DRF007", "registers no class")]
    assert names == ["UNSET", "CUSTOM"]
    assert {one.severity for one in of(drift(), "DRF007")} == {Severity.NOTE}


def test_an_engine_without_a_registry_is_one_finding_and_not_one_an_entry(
    tmp_path: Path, drift: Any
) -> None:
    source = open_source(write_package(tmp_path, {"vllm/code.py": "N = 1\n"}), "vllm")
    found = compare(loads(MANIFEST, "m.yaml"), READER.read(Modules(source), CAPABILITIES))
    assert {one.code for one in found} == {"DRF107"}


def test_a_manifest_that_says_what_the_code_says_has_no_error(drift) -> None:
    found = [one for one in drift() if one.severity is Severity.ERROR]
    assert found == []


def test_a_value_that_the_code_refuses_is_an_error_at_its_line_with_both_places(drift) -> None:
    (found,) = of(drift(("[64, 128, 256]", "[64, 96, 128, 256]")), "DRF001")
    assert (found.severity, found.line) == (Severity.ERROR, line_of("head_size: [64"))
    assert found.message.startswith("FLASH head_size: the manifest accepts 96, and ")
    assert "AttentionBackend.supports_head_size (vllm/v1/attention/backend.py:" in found.message
    assert (
        ", by FlashBackend.get_supported_head_sizes (vllm/v1/attention/flash.py:" in found.message
    )
    assert found.message.endswith("refuses it on 8.0, 9.0")


def test_values_that_only_the_code_accepts_are_one_finding(drift) -> None:
    (found,) = of(drift(("[64, 128, 256]", "[64]")), "DRF001")
    assert "the manifest refuses 128, 256, and " in found.message
    assert "accepts them on 8.0, 9.0" in found.message


def test_what_is_claimed_is_compared_and_not_what_is_true(drift) -> None:
    (found,) = of(drift(("{kv_cache_dtype: [auto, fp8]}", "{kv_cache_dtype: [auto]}")), "DRF001")
    assert "FLASH kv_cache_dtype: the manifest refuses fp8, and" in found.message


def test_a_feature_that_differs_on_one_architecture_is_told_for_that(drift) -> None:
    code = ("has_device_capability(90)", "has_device_capability(89)")
    assert of(drift(flash=code), "DRF001") == []
    code = ("has_device_capability(90)", "has_device_capability(75)")
    (found,) = of(drift(flash=code), "DRF001")
    assert "FLASH sink: the manifest refuses it, and FlashBackend.supports_sink" in found.message
    assert found.message.endswith("accepts it on 8.0")


def test_architectures_that_differ_are_named(drift) -> None:
    code = ("DeviceCapability(8, 0)", "DeviceCapability(9, 0)")
    (found,) = of(drift(flash=code), "DRF001")
    assert "FLASH capability: the manifest accepts 8.0, and FlashBackend" in found.message


def test_what_a_backend_is_called_for_is_compared(drift) -> None:
    head = "    @classmethod\n    def get_supported_head_sizes"
    none = f"    @classmethod\n    def is_mla(cls):\n        return False\n\n{head}"
    (found,) = of(drift(backend=(head, none)), "DRF001")
    assert found.message.startswith("SPARSE_SM120 mla: the manifest says true, and ")
    assert found.message.endswith("says False")


def test_what_depends_on_more_than_the_code_is_not_decided_and_never_a_pass(drift) -> None:
    (found,) = of(drift(), "DRF007", "FLASH mm_prefix")
    assert found.severity is Severity.NOTE
    assert "vllm/v1/attention/flash.py:" in found.message
    assert "other_package" in found.message


def test_what_depends_on_more_than_the_device_in_the_manifest_is_not_decided(drift) -> None:
    cases = "{cases: [{when: {batch_invariant: true}, allow: [64]}, {allow: [64, 128, 256]}]}"
    found = drift(("[64, 128, 256]", cases))
    assert of(found, "DRF001") == []
    (open_,) = of(found, "DRF007", "FLASH head_size")
    assert "head_size 128, 256" in open_.message
    assert "the manifest lets it depend on what is not known here" in open_.message


def test_a_test_of_the_architecture_without_an_upper_end(drift) -> None:
    code = (" and capability.major < 12", "")
    (found,) = of(drift(flash=code), "DRF005")
    assert (found.severity, found.line) == (Severity.WARNING, line_of('capability: "8.0..9.0"'))
    assert "FlashBackend.supports_compute_capability (vllm/v1/attention/flash.py:" in found.message


def test_an_open_end_that_the_manifest_has_too_is_a_note(drift) -> None:
    older = ("DeviceCapability(8, 0) and capability.major < 12", "DeviceCapability(9, 0)")
    (found,) = of(drift(('"8.0..9.0"', '">=9.0"'), flash=older), "DRF005")
    assert found.severity is Severity.NOTE


def test_what_the_manifest_accepts_and_a_constructor_refuses_is_an_error(drift) -> None:
    (found,) = of(drift(('"<8.9"', '"<8.0"')), "DRF006", "FLASH ")
    assert found.severity is Severity.ERROR
    assert "FLASH kv_cache_dtype: the manifest accepts fp8, and FlashImpl.__init__" in found.message
    assert "(vllm/v1/attention/flash.py:" in found.message
    assert found.message.endswith("on 8.0")


def test_what_only_the_class_claims_and_a_constructor_refuses_is_a_note(drift) -> None:
    (flash, sparse) = of(drift(), "DRF006")
    assert {flash.severity, sparse.severity} == {Severity.NOTE}
    assert "FLASH kv_cache_dtype: the class claims fp8" in flash.message
    assert "SPARSE_SM120 kv_cache_dtype: the class claims auto" in sparse.message
    assert sparse.message.endswith("the manifest refuses it too")


def test_a_value_that_is_changed_before_the_constructor_sees_it_is_a_note(drift) -> None:
    kinds = "      kv_cache_dtype: [fp8_ds_mla]\n"
    changes = "    coerce: {kv_cache_dtype: [{value: fp8_ds_mla}]}\n"
    more = kinds.replace("[", "[auto, ")
    text = MANIFEST.replace(kinds, more).replace(
        "    dense_prefill: false\n", f"    dense_prefill: false\n{changes}"
    )
    (found,) = of(drift((MANIFEST, text)), "DRF006", "SPARSE")
    assert found.severity is Severity.NOTE
    assert found.message.endswith("the manifest says that it is changed before")
    assert of(drift((kinds, more)), "DRF006", "SPARSE")[0].severity is Severity.ERROR


def test_a_feature_that_a_constructor_refuses_is_an_error_where_the_manifest_accepts_it(
    drift,
) -> None:
    kinds = "      kv_cache_dtype: [fp8_ds_mla]\n"
    found = of(drift((kinds, f"{kinds}      alibi: any\n")), "DRF006", "alibi")
    assert [one.severity for one in found] == [Severity.ERROR]


def test_fields_of_which_no_class_speaks_are_told_once(drift) -> None:
    (found,) = of(drift(), "DRF007", "speaks of")
    assert (found.file, found.line, found.severity) == ("m.yaml", 1, Severity.NOTE)
    assert found.message.startswith("no class of vllm speaks of mla, sparse, ")
    assert " rswa," in found.message
    assert " sink" not in found.message


def test_a_dense_prefill_that_the_implementation_itself_states_is_compared(drift) -> None:
    (found,) = of(drift(sparse=(STATES_IT, STATES_IT.replace("False", "True"))), "DRF001")
    assert "the manifest says false, and SparseSM120Impl.supports_dense" in found.message
    assert found.line == line_of("dense_prefill: false")
    older = MANIFEST.replace("[12.x]", "[10.x]")
    older = older.replace("dense_prefill: false", "dense_prefill: true")
    (found,) = of(drift((MANIFEST, older)), "DRF001")
    assert "the manifest says true, and SparseSM120Impl.supports_dense" in found.message


def test_a_dense_prefill_that_depends_on_more_is_not_decided(drift) -> None:
    open_ = "    supports_dense_mha_prefill = __import__('other').yes\n"
    found = drift(sparse=(STATES_IT, open_))
    assert of(found, "DRF002") == of(found, "DRF001") == []
    (note,) = of(found, "DRF007", "supports_dense_mha_prefill")
    assert "SparseSM120Impl (vllm/v1/attention/sparse.py:" in note.message
