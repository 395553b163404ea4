"""What was asked, who refused it and why, where values came from, and what would help."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from selector.binding import Selector
from selector.devices import find_device
from selector.serving.diagnosis.answer import Diagnosis, Given, diagnose
from selector.serving.diagnosis.provenance import Provenance, Source
from selector.serving.diagnosis.question import Witness
from selector.serving.logs.log import read_log
from selector.values import Outcome, Phase

LOGS = Path(__file__).parents[1] / "logs"
CONFIG = (
    "head_size=64, dtype=torch.bfloat16, kv_cache_dtype={kv}, block_size={block}, use_mla={mla}, "
    "has_sink=False, use_sparse=False, use_mm_prefix=False, attn_type=AttentionType.DECODER"
)
GPU = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n"
REFUSED = "{FLASH_ATTN: [kv_cache_dtype not supported], FLASHINFER: [kv_cache_dtype not supported]}"


@cache
def vllm() -> Selector:
    return Selector.load("vllm-0.33.0")


def text_of(
    kv: str = "fp8_ds_mla",
    block: str = "None",
    mla: bool = False,
    reasons: str = REFUSED,
    before: str = "",
) -> str:
    config = CONFIG.format(kv=kv, block=block, mla=mla)
    return (
        f"{before}ValueError: No valid attention backend found for cuda with "
        f"AttentionSelectorConfig({config}). Reasons: {reasons}.\n"
    )


def forced(backend: str, reasons: str, before: str = "") -> str:
    return (
        f"{before}ValueError: Selected backend AttentionBackendEnum.{backend} is not valid for "
        f"this configuration. Reason: {reasons}\n"
    )


def diagnosed(text: str, device: str | None = "9.0", given: Given | None = None) -> Diagnosis:
    log = read_log(text, vllm().manifest.vocabulary)
    where = None if device is None else find_device(device)
    return diagnose(log.errors[0], log, vllm(), where, given)


def arguments(**values: object) -> str:
    return f"INFO [utils.py:1] non-default args: {values!r}\n"


def origin(found: Diagnosis, field: str) -> Provenance | None:
    return next((p for p in found.provenance if p.field == field), None)


# -- what was asked ------------------------------------------------------------------------------


def test_the_error_tells_the_layer() -> None:
    found = diagnosed(text_of())
    assert found.question.layer.get("head_size") == 64
    assert set(found.question.told.values()) == {Witness.ERROR}


def test_a_forced_error_tells_what_its_reasons_and_the_command_line_say() -> None:
    text = arguments(kv_cache_dtype="fp8", tensor_parallel_size=4) + forced(
        "FLASHINFER", "['sink setting not supported', 'head_size not supported']"
    )
    found = diagnosed(text, "12.0")
    assert dict(found.question.layer.fields) == {
        "sink": True,
        "kv_cache_dtype": "fp8",
        "config_kv_cache_dtype": "fp8",
        "tp_size": 4,
        "mla": False,
        "sparse": False,
    }
    assert found.question.told["sink"] is Witness.REASON
    assert found.question.told["kv_cache_dtype"] is Witness.SETTING


def test_a_kind_that_is_no_reason_is_the_kind_that_the_backend_serves() -> None:
    layer = diagnosed(forced("CUTLASS_MLA", "['sparse not supported']"), "10.0").question.layer
    assert (layer.get("mla"), layer.get("sparse")) == (True, True)
    found = diagnosed(forced("CUTLASS_MLA", "['sparse not supported']"), "10.0")
    assert found.unforced == dict.fromkeys(Phase, "FLASHINFER_MLA_SPARSE")


def test_reasons_that_contradict_each_other_tell_nothing() -> None:
    found = diagnosed(forced("FLASHINFER", "['MLA not supported', 'non-MLA not supported']"))
    assert found.question.layer.get("mla") is None


def test_what_is_given_comes_first() -> None:
    found = diagnosed(text_of(), given=Given({"kv_cache_dtype": "auto"}))
    assert found.question.told["kv_cache_dtype"] is Witness.GIVEN
    assert found.runs


@pytest.mark.parametrize("switch", ["pcp", "dcp"])
def test_context_parallelism_that_is_on_has_ranks(switch: str) -> None:
    text = text_of().replace("use_mm_prefix", f"use_{switch}=True, use_mm_prefix")
    assert diagnosed(text).contradiction is None


def test_a_layer_that_cannot_exist_gets_no_answer() -> None:
    found = diagnosed(text_of(), given=Given({"num_heads": 7, "num_kv_heads": 2}))
    assert found.contradiction is not None
    assert found.case is None
    assert not found.runs
    assert [c.backend for c in found.candidates] == ["FLASH_ATTN", "FLASHINFER"]


# -- where ---------------------------------------------------------------------------------------


def test_the_log_tells_the_gpu_unless_one_is_given() -> None:
    found = diagnosed(GPU + text_of(), None)
    assert (str(found.device), found.device_line) == ("H100 (9.0)", 1)
    given = diagnosed(GPU + text_of(), "12.0")
    assert (str(given.device), given.device_line) == ("12.0", None)


def test_without_a_gpu_it_says_where_it_would_run_and_where_the_reasons_fit() -> None:
    found = diagnosed((LOGS / "sparse_mla_tp8.log").read_text("utf-8"), None)
    assert found.device is None
    assert found.case is None
    assert "9.0" in found.runs_on
    assert "8.0" not in found.runs_on
    assert "8.0" in found.fits
    assert "9.0" not in found.fits


def test_a_gpu_that_is_not_known_is_not_guessed() -> None:
    found = diagnosed("GPU 0: NVIDIA RTX 9999 (UUID: GPU-0)\n" + text_of(), None)
    assert found.device is None
    assert found.gpu is not None


def test_another_platform_is_one() -> None:
    found = diagnosed(text_of().replace("for cuda", "for rocm"), None)
    assert found.device is not None
    assert found.device.platform == "rocm"
    assert not found.runs


# -- who refused it ------------------------------------------------------------------------------


def by_name(found: Diagnosis, name: str) -> tuple[tuple[str, ...], ...]:
    one = next(c for c in found.candidates if c.backend == name)
    return one.both, one.only_log, one.only_manifest, one.undecided


def test_reasons_are_compared_one_by_one() -> None:
    reasons = "{FLASH_ATTN: [kv_cache_dtype not supported, sink setting not supported]}"
    found = diagnosed(text_of(reasons=reasons))
    assert by_name(found, "FLASH_ATTN") == (("KV_CACHE_DTYPE",), ("SINK",), (), ())
    assert by_name(found, "FLASHINFER") == ((), (), ("KV_CACHE_DTYPE",), ())
    assert found.differs


def test_of_the_rules_only_the_first_is_compared() -> None:
    config = text_of(kv="auto", mla=True).replace("use_sparse=False", "use_sparse=True")
    reasons = (
        "{FLASHMLA: [sparse not supported, compute capability not supported, FlashMLA Sparse is "
        "only supported on Hopper and Blackwell devices.]}"
    )
    found = diagnosed(
        config.replace(REFUSED, reasons).replace("head_size=64", "head_size=576"), "8.9"
    )
    assert by_name(found, "FLASHMLA")[1:] == ((), (), ())
    assert not found.differs


def test_of_several_broken_rules_the_manifest_reports_the_first() -> None:
    text = text_of(kv="fp8_e4m3", mla=True).replace("use_sparse=False", "use_sparse=True")
    reasons = (
        "{FLASH_ATTN_MLA_SPARSE: [kv_cache_dtype not supported, compute capability not supported]}"
    )
    found = diagnosed(
        text.replace(REFUSED, reasons).replace("head_size=64", "head_size=576"), "8.0"
    )
    one = next(c for c in found.candidates if c.backend == "FLASH_ATTN_MLA_SPARSE")
    assert {"FA_SPARSE_KV16", "FA_MLA_DEVICE"} <= {r.code for r in one.rejections}
    assert one.only_manifest == ("FA_SPARSE_KV16",)


def test_a_candidate_that_the_manifest_refuses_too_makes_no_difference() -> None:
    found = diagnosed(text_of())
    assert {c.backend for c in found.candidates} > {"FLASH_ATTN", "FLASHINFER"}
    assert not found.differs


def test_a_backend_that_the_manifest_lacks_is_only_in_the_log() -> None:
    found = diagnosed(text_of(reasons="{XFORMERS: [kv_cache_dtype not supported]}"))
    first = found.candidates[0]
    assert (first.backend, first.known, first.only_log) == ("XFORMERS", False, ("KV_CACHE_DTYPE",))
    assert found.only_other_version


def test_a_reason_about_an_unknown_value_is_undecided() -> None:
    found = diagnosed(forced("FLASHINFER", "['head_size not supported']"))
    assert by_name(found, "FLASHINFER") == ((), (), (), ("HEAD_SIZE",))


def test_an_error_that_is_cut_off_lacks_nothing() -> None:
    text = text_of(reasons="{FLASH_ATTN: [kv_cache_dtype not supp").removesuffix(".\n")
    found = diagnosed(text)
    assert not found.error.complete
    assert all(not c.only_manifest for c in found.candidates if not c.said)


def test_what_only_the_constructor_refuses_is_told_apart() -> None:
    found = diagnosed(text_of(kv="fp8", reasons="{}"), "8.0")
    one = next(c for c in found.candidates if c.backend == "TRITON_ATTN")
    assert one.outcome is Outcome.ELIGIBLE
    assert [r.code for r in one.later] == ["KV_CACHE_DTYPE"]


def test_prefill_backends_of_mla_are_known_by_their_names() -> None:
    found = diagnosed((LOGS / "mla_prefill.log").read_text("utf-8"), "9.0")
    assert found.candidates[0].backend == "FLASH_ATTN_MLA_PREFILL"
    assert found.candidates[0].known


# -- what would help -----------------------------------------------------------------------------


def test_the_nearest_change_is_a_setting_and_leaves_the_model() -> None:
    found = diagnosed(text_of())
    assert found.remedies
    for remedy in found.remedies:
        assert not remedy.touches_model
    nearest = found.remedies[0]
    assert nearest.backends == {Phase.PREFILL: "FLASH_ATTN", Phase.DECODE: "FLASH_ATTN"}
    (change,) = nearest.changes
    assert change.field == "kv_cache_dtype"
    assert "auto" in (change.after, *change.others)


def test_nobody_is_told_to_give_the_model_other_heads() -> None:
    found = diagnosed(forced("FLASHINFER", "['head_size']"), given=Given({"head_size": 80}))
    assert not found.runs
    assert found.remedies == ()


def test_no_remedy_is_named_twice() -> None:
    said = [
        (c.field, value, str(r.backends))
        for r in diagnosed(text_of()).remedies
        for c in r.changes
        for value in (c.after, *c.others)
    ]
    assert len(said) == len(set(said))


def test_every_remedy_holds_when_it_is_followed() -> None:
    for remedy in diagnosed(text_of()).remedies:
        fields = {c.field: c.after for c in remedy.changes}
        again = diagnosed(text_of(), given=Given(dict(fields)))
        assert again.runs, fields


def test_a_reason_that_tells_a_fact_is_believed() -> None:
    found = diagnosed((LOGS / "docker_json.log").read_text("utf-8"), None)
    assert not found.runs
    change = found.remedies[0].changes[0]
    assert (change.field, change.after) == ("has_flashinfer_sm120_sparse", "true")
    told = origin(found, "has_flashinfer_sm120_sparse")
    assert told is not None
    assert told.source is Source.REASON


def test_what_runs_when_nothing_is_forced() -> None:
    assert diagnosed(text_of()).unforced is None
    found = diagnosed(forced("FLASHINFER_MLA", "['non-MLA not supported']"), "10.0")
    assert found.unforced is not None
    assert set(found.unforced.values()) == {"FLASHINFER"}


# -- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "differ"),
    [("0.33.0", False), ("0.33.0+cu130", False), ("0.19.1", True), ("0.33.0rc1", True)],
)
def test_versions_are_compared_without_the_build(said: str, differ: bool) -> None:
    before = f"INFO [api_server.py:1] vLLM API server version {said}\n"
    versions = diagnosed(text_of(before=before)).versions
    assert versions.differ is differ
    assert versions.known == ("0.33.0",)


def test_of_the_same_version_no_other_could_tell() -> None:
    before = "INFO [api_server.py:1] vLLM API server version 0.33.0\n"
    found = diagnosed(text_of(before=before, reasons="{FLASH_ATTN: [sparse not supported]}"))
    assert found.differs
    assert not found.only_other_version


def test_a_change_undoes_where_the_cache_dtype_came_from() -> None:
    """``auto`` would be the checkpoint's type again; for the target's layout it is the way out."""
    inherited = diagnosed(text_of()).remedies[0].changes[0]
    assert (inherited.field, inherited.after) == ("kv_cache_dtype", "auto")
    config = text_of(kv="fp8", mla=True).replace("head_size=64", "head_size=576")
    of_checkpoint = diagnosed(config.replace("DECODER", "ENCODER_ONLY"), "8.0")
    for remedy in of_checkpoint.remedies:
        for change in remedy.changes:
            assert (change.field, change.after) != ("kv_cache_dtype", "auto")


def test_a_change_of_more_than_is_needed_is_left_out() -> None:
    fields = [
        {c.field for c in r.changes} for r in diagnosed(text_of(kv="auto", block="8")).remedies
    ]
    assert {"block_size"} in fields
    assert not any(one < other for one in fields for other in fields)


# -- where values came from ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kv", "mla", "given", "source"),
    [
        ("fp8", False, {"kv_cache_dtype": "fp8"}, Source.FLAG),
        ("fp8", False, {"max_model_len": 1}, Source.CHECKPOINT),
        ("fp8_ds_mla", False, {"max_model_len": 1}, Source.TARGET),
        ("fp8_ds_mla", True, {"kv_cache_dtype": "fp8"}, Source.COERCION),
        ("auto", False, {"kv_cache_dtype": "fp8"}, Source.COERCION),
        ("turboquant_k8v4", False, {"max_model_len": 1}, Source.UNKNOWN),
    ],
)
def test_where_the_cache_dtype_came_from(
    kv: str, mla: bool, given: dict[str, object], source: Source
) -> None:
    found = origin(diagnosed(text_of(kv=kv, mla=mla, before=arguments(**given))), "kv_cache_dtype")
    assert found is not None
    assert found.source is source
    assert found.sure is (source is Source.FLAG)
    assert found.seen


def test_a_value_that_nobody_set_needs_no_origin() -> None:
    assert origin(diagnosed(text_of(kv="auto")), "kv_cache_dtype") is None
    assert origin(diagnosed(text_of()), "block_size") is None


def test_where_the_page_size_and_the_forced_backend_came_from() -> None:
    page = origin(diagnosed(text_of(block="128")), "block_size")
    assert page is not None
    assert page.source is Source.ENGINE
    text = arguments(attention_backend="FLASHINFER") + forced("FLASHINFER", "['MLA not supported']")
    backend = origin(diagnosed(text), "backend")
    assert backend is not None
    assert (backend.source, backend.sure) == (Source.FLAG, True)
