"""The reader of SGLang, on small packages of its shape."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from cli.main import app
from selector.drift.engines.sglang import READER
from selector.drift.modules import Modules
from selector.drift.reading import Backend, EngineReading, Guard
from selector.drift.saying import refuser_name
from selector.drift.sources import open_source

from ...conftest import read_engine_files
from .conftest import write_package, write_wheel

CAPABILITIES = ("8.0", "9.0", "10.0", "12.0")
ENGINE = Path(__file__).parent / "snippets" / "sglang.txt"
ATTENTION = "sglang/srt/layers/attention"
REGISTRY = f"{ATTENTION}/attention_registry.py"


def engine_files() -> dict[str, str]:
    """A package of SGLang's shape."""
    return read_engine_files(ENGINE)


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., EngineReading]:
    def make(*changes: tuple[str, str, str], wheel: bool = False) -> EngineReading:
        files = engine_files()
        for path, old, new in changes:
            assert old in files[path]
            files[path] = files[path].replace(old, new)
        if wheel:
            place = write_wheel(tmp_path / "sglang.whl", files, "0.1.0")
        else:
            place = write_package(tmp_path, files)
        return READER.read(Modules(open_source(place, "sglang")), CAPABILITIES)

    return make


def backend(reading: EngineReading, name: str) -> Backend:
    return {one.name: one for one in reading.backends}[name]


def guards(reading: EngineReading, name: str) -> dict[str, Guard]:
    impl = backend(reading, name).impl
    assert impl is not None
    return {guard.message: guard for guard in impl.guards}


def refused(guard: Guard, name: str) -> Any:
    """What a guard refuses of an argument: one list, or one for each architecture."""
    (attribute,) = (one for one in guard.refuses if one.name == name)
    answers = {one: answer.value for one, answer in attribute.answers().items()}
    return answers[""] if list(answers) == [""] else answers


def undecided(guard: Guard, name: str) -> Any:
    (attribute,) = (one for one in guard.refuses if one.name == name)
    return attribute.answers()[""].undecided


def test_each_registered_function_is_a_backend_with_the_class_that_it_builds(read) -> None:
    reading = read(wheel=True)
    assert [one.name for one in reading.backends] == [
        "triton", "flash", "mla_only", "latent", "other", "unlisted", "old_flash",
    ]  # fmt: skip
    flash = backend(reading, "flash")
    assert flash.registered.endswith("attention_registry.create_flash_backend")
    assert flash.cls.path == "sglang.srt.layers.attention.flash_backend.FlashBackend"
    assert flash.cls.mro[-1] == "abc.ABC"
    assert flash.at.file == REGISTRY
    assert backend(reading, "other").cls.path.endswith(".TritonBackend")
    assert (reading.version, reading.platform) == ("0.1.0", "cuda")


def test_what_classes_state_and_inherit_is_read(read) -> None:
    attributes = backend(read(), "triton").cls.attributes
    assert attributes["supports_graphs"].answer.value is True
    assert attributes["needs_cpu_seq_lens"].defined_in.endswith(
        "base_attn_backend.AttentionBackend"
    )


def test_every_class_is_told_that_a_factory_can_build_and_when(read) -> None:
    latent = backend(read(), "latent")
    assert [(one.cls.path.rpartition(".")[2], one.tests) for one in latent.products] == [
        ("FastLatentBackend", ("fast_enabled()",)),
        ("PagedLatentBackend", ("not (fast_enabled())",)),
    ]
    assert latent.cls.path == latent.products[-1].cls.path


def test_a_class_of_another_platform_is_not_built(read) -> None:
    reading = read()
    assert len(backend(reading, "flash").products) == 1
    assert "needs another chip" not in guards(reading, "flash")


def test_the_registered_function_itself_refuses(read) -> None:
    reading = read()
    mla = guards(reading, "mla_only")["mla_only can only be used with MLA models."]
    assert (mla.exception, mla.by.rpartition(".")[2]) == ("ValueError", "create_mla_only_backend")
    assert mla.arguments == ("runner.use_mla_backend",)
    assert refused(mla, "runner.use_mla_backend") == [False]
    cross = guards(reading, "triton")["no cross attention"]
    assert cross.exception == "AssertionError"
    assert refused(cross, "runner.model_config.is_encoder_decoder") == ["encoder_decoder"]


def test_a_test_of_the_capability_is_told_on_each(read) -> None:
    guard = guards(read(), "flash")["needs SM80 to SM90"]
    assert refused(guard, "capability") == ["10.0", "12.0"]
    assert undecided(guard, "capability") == ("8.0",)
    assert refused(guard, "runner.use_mla_backend") == {
        "8.0": [True], "9.0": [], "10.0": [False, True], "12.0": [False, True],
    }  # fmt: skip


def test_the_constructor_is_asked_what_the_function_hands_it(read) -> None:
    found = guards(read(), "flash")
    assert refused(found["needs a page of 64"], "runner.page_size") == [1, 16, 32, 128, 256, 512]
    assert refused(found["no such cache"], "runner.kv_cache_dtype") == ["float16", "fp8_e5m2"]
    ranks = found["too many ranks for an FP8 cache"]
    assert refused(ranks, "runner.kv_cache_dtype") == []
    assert undecided(ranks, "runner.kv_cache_dtype") == ("fp8_e4m3",)
    assert "no such version" not in found
    assert "never handed on by the registry" not in found
    assert refused(
        guards(read(), "triton")["head dim is too large"], "runner.model_config.head_dim"
    )


def test_what_depends_on_two_arguments_is_undecided_for_each(read) -> None:
    both = guards(read(), "flash")["not both"]
    assert refused(both, "runner.sliding_window_size") == []
    assert undecided(both, "runner.sliding_window_size") == (128,)


def test_an_attribute_that_a_called_method_sets_is_not_known(read) -> None:
    late = guards(read(), "flash")["a method that is called here sets it"]
    assert late.refuses == ()


def test_arguments_are_followed_through_a_constructor_that_takes_any(read) -> None:
    found = guards(read(), "latent")["needs Blackwell"]
    assert refused(found, "capability") == []  # it depends on the way
    reading = read((f"{ATTENTION}/latent_backend.py", "if fast_enabled():", "if True:"))
    assert refused(guards(reading, "latent")["needs Blackwell"], "capability") == ["8.0", "9.0"]


def test_checks_of_the_servers_arguments_belong_to_the_backend_that_they_name(read) -> None:
    reading = read()
    found = guards(reading, "latent")
    assert refused(found["latent needs Blackwell"], "capability") == ["8.0", "9.0"]
    kinds = found["latent takes fp8_e4m3 or auto"]
    assert "fp8_e5m2" in refused(kinds, "server_args.kv_cache_dtype")
    assert "auto" not in refused(kinds, "server_args.kv_cache_dtype")
    assert "latent needs Blackwell" not in guards(reading, "flash")
    assert "latent or not, a page holds something" not in found


def test_lists_and_flags_are_read(read) -> None:
    lists = {one.name: one for one in read().lists}
    assert lists["DETERMINISTIC_ATTENTION_BACKEND_CHOICES"].answer.value == ["flash", "triton"]
    choices = lists["ATTENTION_BACKEND_CHOICES"]
    assert (choices.defined_in, choices.at.line) == ("sglang.srt.arg_groups.choices", 1)
    assert choices.answer.value[:2] == ["triton", "flash"]
    assert lists["--decode-attention-backend"].answer.value == ["flash", "triton"]


def test_a_list_that_the_module_itself_changes_is_dynamic(read) -> None:
    path = "sglang/srt/arg_groups/choices.py"
    grown = "DETERMINISTIC_ATTENTION_BACKEND_CHOICES.append('x')\n\n\ndef add_"
    lists = {one.name: one for one in read((path, "def add_", grown)).lists}
    found = lists["DETERMINISTIC_ATTENTION_BACKEND_CHOICES"].answer
    assert (found.value, found.dynamic.why) == (None, "is changed after it was set")


def test_the_names_that_are_chosen_from_are_told_for_each_architecture(read) -> None:
    chosen = {one.name: one for one in read().lists if one.kind == "choice"}
    mla, other = (
        {on: answer.value for on, answer in chosen[f"default for {kind}"].answers().items()}
        for kind in ("MLA", "other layers")
    )
    assert mla == {"8.0": ["triton"], "9.0": ["triton"], "10.0": ["latent"], "12.0": ["latent"]}
    assert other["9.0"] == ["flash", "triton"]
    assert other["12.0"] == ["triton"]


def test_names_without_a_function_and_functions_without_a_name_are_findings(read) -> None:
    reading = read()
    said = {(one.code, one.severity.value, one.message) for one in reading.findings}
    assert said == {
        ("DRF108", "warning", "registers unlisted, which ATTENTION_BACKEND_CHOICES does not list"),
        (
            "DRF108",
            "note",
            "ATTENTION_BACKEND_CHOICES lists old_flash, and no function is registered for it",
        ),
    }
    old = backend(reading, "old_flash")
    assert (old.at.file, old.at.line) == ("sglang/srt/arg_groups/choices.py", 4)
    assert (old.cls, old.registered) == (None, "")


def test_what_a_function_gives_that_is_no_class_is_told(read) -> None:
    unlisted = backend(read(), "unlisted")
    assert unlisted.cls is None
    assert unlisted.problem.startswith(f"{REGISTRY}:")
    assert unlisted.problem.endswith("runner is whatever the caller gives")


HOSTILE = {
    "a name that is computed": (
        '@register_attention_backend("other")',
        "@register_attention_backend(make_name())",
        "registers a name that is not known",
    ),
    "the same name again": (
        '@register_attention_backend("other")',
        '@register_attention_backend("flash")',
        "registers flash again, in the place of",
    ),
    "a registration in a call": (
        '@register_attention_backend("other")\ndef create_other',
        'register_attention_backend("other")(lambda runner: None)\n\n\ndef create_other',
        "registers a function in a call",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_registration_that_is_not_read_is_a_finding(what: str, read) -> None:
    old, new, said = HOSTILE[what]
    reading = read((REGISTRY, old, new))
    assert any(said in one.message for one in reading.findings)
    assert backend(reading, "triton").cls is not None


ODD = {
    "asks itself": ("return create_triton_backend(runner)", "return create_other_backend(runner)"),
    "takes nothing": ("def create_other_backend(runner):", "def create_other_backend():"),
    "gives nothing": ("return create_triton_backend(runner)", "pass"),
    "loops": (
        "return create_triton_backend(runner)",
        "for one in runner:\n        return TritonBackend(one)",
    ),
    "is bound in a try": (
        "    return create_triton_backend(runner)",
        "    try:\n        cls = x.A\n    except E:\n        cls = x.B\n    return cls(runner)",
    ),
    "hands on what is nested": (
        "return create_triton_backend(runner)",
        f"return create_triton_backend({'(' * 150}runner{')' * 150})",
    ),
}


@pytest.mark.parametrize("what", ODD)
def test_an_odd_function_is_told_and_the_rest_is_read(what: str, read) -> None:
    reading = read((REGISTRY, *ODD[what]))
    other = backend(reading, "other")
    assert other.cls is not None or other.problem
    assert backend(reading, "flash").cls is not None
    assert msgspec.json.decode(msgspec.json.encode(reading), type=EngineReading)


def test_a_broken_module_is_told_and_the_rest_is_read(read) -> None:
    path = f"{ATTENTION}/flash_backend.py"
    reading = read((path, "class FlashBackend", "class class FlashBackend"))
    assert backend(reading, "flash").cls is None
    assert "FlashBackend" in backend(reading, "flash").problem
    assert backend(reading, "triton").cls is not None
    assert "DRF104" in {one.code for one in reading.findings}


def test_a_package_without_the_registry_is_a_finding(tmp_path: Path) -> None:
    place = write_package(tmp_path, {"sglang/code.py": "N = 1\n"})
    reading = READER.read(Modules(open_source(place, "sglang")), CAPABILITIES)
    assert (reading.backends, reading.lists) == ((), ())
    assert {finding.code for finding in reading.findings} == {"DRF107"}


def test_a_function_that_refuses_has_its_own_name_and_a_constructor_its_class(
    read: Callable[..., EngineReading],
) -> None:
    impls = [one.impl for one in read().backends if one.impl is not None]
    names = {refuser_name(guard): guard for impl in impls for guard in impl.guards}
    made = {name for name in names if name.endswith(".__init__")}
    assert "FlashBackend.__init__" in made
    assert {
        names[name].by.rpartition(".")[2] for name in names.keys() - made
    } == names.keys() - made
    assert {"create_flash_backend", "_check"} <= names.keys()


MANIFEST = """
attnsel: 1
name: sglang
version: "0.1.0"
backends:
  - name: flash
    description: Dense.
    source: sglang.srt.layers.attention.flash_backend.FlashBackend
    mla: false
    sparse: false
    accepts:
      platform: [cuda]
      capability: "8.0..9.0"
      dtype: [float16, bfloat16]
      kv_cache_dtype: [bfloat16, float16]
      head_size: any
      block_size: [16, 64]
      attn_type: [decoder]
    decode_threshold: 1
    phases: {prefill: {}, decode: {}}
    prefill_paths:
      - {path: mha, reason: The only way.}
  - name: gone
    description: No longer there.
    source: sglang
    mla: false
    sparse: false
    accepts: {platform: [cuda], capability: [9.x], dtype: any, kv_cache_dtype: any,
      head_size: any, block_size: any, attn_type: [decoder]}
    decode_threshold: 1
    phases: {prefill: {}, decode: {}}
    prefill_paths:
      - {path: mha, reason: The only way.}
"""


def test_the_command_compares_a_manifest_with_the_source(tmp_path: Path) -> None:
    source = write_package(tmp_path / "source", engine_files())
    stated = tmp_path / "sglang.yaml"
    stated.write_text(MANIFEST, "utf-8")
    command = ["drift", "--manifest", str(stated), "--source", str(source), "--engine", "sglang"]
    result = CliRunner().invoke(app, [*command, "--format", "json"])
    assert result.exit_code == 1, result.output
    said = {(one["code"], one["message"]) for one in msgspec.json.decode(result.output)}
    texts = [f"{code} {message}" for code, message in sorted(said)]
    assert any(one.startswith("DRF003 triton is registered") for one in texts)
    assert any(one.startswith("DRF004 gone is not in the registry") for one in texts)
    refusals = [one for one in texts if one.startswith("DRF006 flash")]
    assert any("block_size: the manifest accepts 16, and FlashBackend" in one for one in refusals)
    assert any("kv_cache_dtype: the manifest accepts float16" in one for one in refusals)
    assert len(refusals) == 2
