"""The reader of vLLM, on small packages of its shape."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from selector.drift.engines.vllm import READER
from selector.drift.modules import Modules
from selector.drift.reading import EngineReading
from selector.drift.sources import open_source

from ...conftest import read_engine_files
from .conftest import write_package, write_wheel

CAPABILITIES = ("8.0", "9.0", "12.0")
ENGINE = Path(__file__).parent / "snippets" / "engine.txt"


def engine_files() -> dict[str, str]:
    """A package of vLLM's shape."""
    return read_engine_files(ENGINE)


@pytest.fixture
def read_engine(tmp_path: Path) -> Callable[..., EngineReading]:
    def make(form: str = "wheel", **changes: tuple[str, str]) -> EngineReading:
        files = engine_files()
        for name, (old, new) in changes.items():
            path = f"vllm/v1/attention/{name}.py"
            assert old in files[path]
            files[path] = files[path].replace(old, new)
        if form == "wheel":
            place = write_wheel(tmp_path / "vllm.whl", files, "0.1.0")
        else:
            place = write_package(tmp_path, files)
        return READER.read(Modules(open_source(place, "vllm")), CAPABILITIES)

    return make


def backend(reading: EngineReading, name: str) -> Any:
    return {one.name: one for one in reading.backends}[name]


def test_backends_come_in_the_order_of_the_registry_with_their_classes(read_engine) -> None:
    reading = read_engine()
    assert [one.name for one in reading.backends] == [
        "FLASH", "SPARSE_SM120", "COMPOSITE", "GONE", "UNSET", "CUSTOM",
    ]  # fmt: skip
    flash = backend(reading, "FLASH")
    assert flash.registered == "vllm.v1.attention.flash.FlashBackend"
    assert flash.cls.mro == (
        "vllm.v1.attention.flash.FlashBackend",
        "vllm.v1.attention.backend.AttentionBackend",
        "abc.ABC",
    )
    assert flash.impl.path == "vllm.v1.attention.flash.FlashImpl"
    assert flash.builder.path == "vllm.v1.attention.flash.FlashBuilder"
    assert "names nothing that can be read" in backend(reading, "GONE").problem
    assert backend(reading, "UNSET").problem == "registers no class"
    assert backend(reading, "CUSTOM").problem == "registers no class"
    assert (reading.version, reading.findings) == ("0.1.0", ())


def test_a_wheel_and_a_folder_say_the_same(read_engine) -> None:
    wheel, folder = read_engine(), read_engine("folder")
    assert wheel.backends == folder.backends
    assert wheel.prefill == folder.prefill


def test_the_permissive_default_is_shown_with_both_places(read_engine) -> None:
    reading = read_engine(sparse=("    supports_dense_mha_prefill = False\n", ""))
    impl = backend(reading, "SPARSE_SM120").impl
    attribute = impl.attributes["supports_dense_mha_prefill"]
    assert attribute.answer.value is True
    assert attribute.defined_in == "vllm.v1.attention.backend.ImplBase"
    assert attribute.at.file == "vllm/v1/attention/backend.py"
    assert impl.at.file == "vllm/v1/attention/sparse.py"
    assert impl.path != attribute.defined_in
    method = impl.methods["forward_mha"]
    assert method.defined_in == "vllm.v1.attention.backend.ImplBase"
    assert (method.abstract, method.raises) == (True, "NotImplementedError")


def test_a_class_that_states_it_is_its_own_source(read_engine) -> None:
    impl = backend(read_engine(), "SPARSE_SM120").impl
    attribute = impl.attributes["supports_dense_mha_prefill"]
    assert attribute.answer.value is False
    assert attribute.defined_in == impl.path


def test_what_depends_on_the_architecture_is_told_for_each(read_engine) -> None:
    flash = backend(read_engine(), "FLASH").cls.attributes
    supports = flash["supports_compute_capability"]
    assert {one: answer.value for one, answer in supports.answers().items()} == {
        "8.0": True, "9.0": True, "12.0": False,
    }  # fmt: skip
    sink = flash["supports_sink"]
    assert {one: answer.value for one, answer in sink.answers().items()} == {
        "8.0": False, "9.0": True, "12.0": True,
    }  # fmt: skip
    assert flash["get_name"].answer.value == "FLASH"
    assert flash["supported_dtypes"].answer.value == ["torch.float16", "torch.bfloat16"]
    assert flash["supports_kv_cache_dtype"].answer.value == ["auto", "fp8"]
    assert flash["supports_head_size"].answer.value[-1] == 256


def test_what_depends_on_more_is_dynamic_with_its_place(read_engine) -> None:
    answer = backend(read_engine(), "FLASH").cls.attributes["supports_mm_prefix"].answer
    assert answer.dynamic.at.file == "vllm/v1/attention/flash.py"
    assert "other_package" in answer.dynamic.why


def test_a_class_that_a_function_makes_is_read(read_engine) -> None:
    made = backend(read_engine(), "COMPOSITE").cls
    assert made.path == "vllm.v1.attention.composite.Composite"
    heads = made.attributes["supports_head_size"]
    assert heads.defined_in == made.path
    assert heads.answer.value == [64, 128]


def test_constructors_say_what_they_refuse(read_engine) -> None:
    sparse = backend(read_engine(), "SPARSE_SM120").impl
    kinds, features = sparse.guards
    assert kinds.tests == ("self.kv_cache_dtype != 'fp8_ds_mla'",)
    assert (kinds.exception, kinds.arguments) == ("NotImplementedError", ("kv_cache_dtype",))
    assert kinds.message == "needs the packed layout, got "
    (refused,) = kinds.refuses
    assert "auto" in refused.answer.value
    assert "fp8_ds_mla" not in refused.answer.value
    assert features.arguments == ("alibi_slopes", "logits_soft_cap")
    by_argument = {one.name: one.answer.value for one in features.refuses}
    assert by_argument == {"alibi_slopes": [[1.0]], "logits_soft_cap": [30.0]}
    flash = backend(read_engine(), "FLASH").impl.guards[0].refuses[0]
    assert {one: bool(answer.value) for one, answer in flash.answers().items()} == {
        "8.0": True, "9.0": False, "12.0": False,
    }  # fmt: skip


def test_what_a_constructor_sets_on_the_object_is_told(read_engine) -> None:
    (assigned,) = backend(read_engine(), "SPARSE_SM120").impl.assigned
    assert (assigned.name, assigned.expression) == ("supports_quant_query_input", "False")
    assert assigned.at.file == "vllm/v1/attention/sparse.py"


def test_state_that_no_class_sets_is_told(read_engine) -> None:
    methods = backend(read_engine(), "FLASH").impl.methods
    assert [one.name for one in methods["forward"].missing] == ["workspace"]
    assert methods["forward_mqa"].raises == ""
    assert methods["forward_mha"].raises == "NotImplementedError"


def test_prefill_backends_are_read_from_their_own_registry(read_engine) -> None:
    (prefill,) = read_engine().prefill
    assert prefill.name == "FLASH"
    attributes = prefill.cls.attributes
    assert attributes["supports_mla_dimensions"].answer.value == [(128, 64, 128)]
    assert attributes["supports_mla_dimensions"].defined_in.endswith("MLAPrefillBackend")


def test_the_reading_is_json_and_counts(read_engine) -> None:
    reading = read_engine()
    data = msgspec.json.encode(reading)
    again = msgspec.json.decode(data, type=EngineReading)
    assert [one.name for one in again.backends] == [one.name for one in reading.backends]
    assert msgspec.json.encode(again) == data
    counts = reading.counts()
    assert counts["known"] > 20
    assert counts["dynamic"] >= 1


def test_a_package_without_the_registry_is_a_finding(tmp_path: Path) -> None:
    place = write_package(tmp_path, {"vllm/code.py": "N = 1\n"})
    reading = READER.read(Modules(open_source(place, "vllm")), CAPABILITIES)
    assert reading.backends == ()
    assert {finding.code for finding in reading.findings} == {"DRF107"}


def test_a_backend_whose_module_is_broken_is_told_and_the_rest_is_read(read_engine) -> None:
    reading = read_engine(sparse=("class SparseBackend", "class class SparseBackend"))
    assert "names nothing" in backend(reading, "SPARSE_SM120").problem
    assert backend(reading, "FLASH").cls is not None
    assert [finding.code for finding in reading.findings] == ["DRF104"]


def test_no_more_backends_than_the_bound_are_read(read_engine, monkeypatch) -> None:
    monkeypatch.setattr("selector.drift.engines.vllm.BACKENDS", 2)
    reading = read_engine()
    assert [one.name for one in reading.backends] == ["FLASH", "SPARSE_SM120"]
    assert [one.code for one in reading.findings] == ["DRF103"]
    assert "has 8 names; 2 are read" in reading.findings[0].message
