"""vLLM's attention errors are read from logs of every make."""

from __future__ import annotations

import json
import textwrap
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.domains import Domain
from selector.fields import Field, Vocabulary
from selector.serving.logs.log import EngineError, Log, read_log

LOGS = Path(__file__).parent

CONFIG = (
    "head_size=576, dtype=torch.bfloat16, kv_cache_dtype=auto, block_size=None, use_mla=True, "
    "has_sink=False, use_sparse=True, use_mm_prefix=False, attn_type=AttentionType.DECODER"
)
REASONS = (
    "{FLASH_ATTN_MLA: [sparse not supported, compute capability not supported, FlashAttention MLA "
    "not supported on this device], FLASHINFER_MLA: [FlashInfer MLA kernel requires "
    "qk_nope_head_dim in [64, 128], but got 1], FLASHINFER_MLA_SPARSE_SM120: "
    "[FLASHINFER_MLA_SPARSE_SM120 requires FlashInfer's sparse MLA decode API]}"
)
NONE = (
    "ValueError: No valid attention backend found for cuda with "
    f"AttentionSelectorConfig({CONFIG}). Reasons: {REASONS}."
)
FORCED = (
    "ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid for this "
    "configuration. Reason: ['sink setting not supported', 'compute capability not supported']"
)
ASKED = {
    "head_size": 576,
    "dtype": "bfloat16",
    "kv_cache_dtype": "auto",
    "block_size": "unset",
    "mla": True,
    "sink": False,
    "sparse": True,
    "mm_prefix": False,
    "attn_type": "decoder",
}
CODES = {
    "FLASH_ATTN_MLA": ["SPARSE", "CAPABILITY", "FA_MLA_DEVICE"],
    "FLASHINFER_MLA": ["FI_MLA_NOPE"],
    "FLASHINFER_MLA_SPARSE_SM120": ["FI_SM120_MISSING"],
}
PREFIXES = [
    "",
    "(EngineCore_0 pid=123) ERROR 11-29 10:00:00 [core.py:843] ",
    "ERROR 11-29 10:00:00 [core.py:843] ",
    "(RayWorkerWrapper pid=12, ip=10.0.0.1) ERROR 11-29 10:00:00 worker_base.py:380] ",
    "2026-01-20T13:03:50.123456789Z stderr F ",
    "2026-01-20 13:03:50,123 ERROR ",
    "Jan 20 13:03:50 host vllm[123]: ",
    "vllm-1  | (Worker_TP0 pid=3) ",
    "[pod/vllm-0/server] [rank0]: ",
    "\x1b[1;36m(EngineCore pid=1)\x1b[0;0m \x1b[31mERROR\x1b[0m 01-20 13:03:50 [core.py:1] ",
    "│ ",
    "my own shipper> ",
]


def codes_of(error: EngineError) -> dict[str, list[str | None]]:
    return {name: [r.code for r in reasons] for name, reasons in error.reasons.items()}


def told(log: Log) -> list[tuple[Any, ...]]:
    return [
        (e.kind, e.platform, e.backend, dict(e.asked), dict(e.reasons), e.complete, e.count)
        for e in log.errors
    ]


def only(text: str) -> EngineError:
    (error,) = read_log(text).errors
    return error


# what is read


def test_no_backend() -> None:
    error = only(NONE)
    assert (error.kind, error.platform, error.backend) == ("none", "cuda", None)
    assert error.asked == ASKED
    assert not error.unknown
    assert codes_of(error) == CODES
    assert error.reasons["FLASHINFER_MLA"][0].text.endswith("in [64, 128], but got 1")
    assert error.complete
    assert not error.prefill
    assert (error.line, error.count) == (1, 1)


def test_a_forced_backend() -> None:
    error = only(FORCED)
    assert (error.kind, error.platform, error.backend) == ("forced", None, "FLASHINFER")
    assert codes_of(error) == {"FLASHINFER": ["SINK", "CAPABILITY"]}
    assert error.asked == {}


@pytest.mark.parametrize(
    ("spelling", "value"),
    [
        ("attn_type=AttentionType.DECODER", "decoder"),
        ("attn_type=decoder", "decoder"),
        ("attn_type='decoder'", "decoder"),
        ("attn_type=<AttentionType.DECODER: 'decoder'>", "decoder"),
        ("attn_type=<AttentionType.ENCODER_ONLY: 2>", "encoder_only"),
        ("attn_type=AttentionType.ENCODER_DECODER", "encoder_decoder"),
        ("dtype=torch.float16", "float16"),
        ("dtype=float16", "float16"),
        ("dtype=half", "float16"),
        ("kv_cache_dtype=None", "unset"),
        ("kv_cache_dtype='fp8_e4m3'", "fp8_e4m3"),
        ("block_size=None", "unset"),
        ("block_size=16", 16),
        ("use_pcp=True", True),
        ("use_dcp=False", False),
        ("use_rswa=True", True),
        ("use_adaptive_verification=True", True),
        ("use_kv_connector=False", False),
        ("use_batch_invariant=True", True),
        ("use_per_head_quant_scales=True", True),
        ("use_non_causal=True", True),
        ("has_sliding_window=False", "unset"),
        ("has_sliding_window=True", Domain.between(1, None)),
        ("sliding_window=128", 128),
        ("device_capability=DeviceCapability(major=12, minor=0)", 1200),
        ("device_capability=(9, 0)", 900),
    ],
)
def test_spellings_of_values(spelling: str, value: object) -> None:
    name, _, text = spelling.partition("=")
    for told in (f"{name}={text}", f"{name}: {text}", f"{name} = {text}"):
        error = only(NONE.replace(CONFIG, f"head_size=64, {told}"))
        assert list(error.asked.values()) == [64, value]
        assert not error.unknown


def test_what_is_no_field_is_kept_as_text() -> None:
    error = only(NONE.replace("use_mla=True", "use_mla=True, use_compress=False, kind=Kind(a=1)"))
    assert error.asked == ASKED
    assert error.unknown == {"use_compress": "False", "a": "1", "kind": "Kind(a=1)"}
    error = only(NONE.replace("kv_cache_dtype=auto", "kv_cache_dtype=kvfloat13"))
    assert error.unknown == {"kv_cache_dtype": "kvfloat13"}
    assert "kv_cache_dtype" not in error.asked


def test_fields_of_a_manifest_are_known() -> None:
    own = Field("use_compress", "boolean", "context", "Own.")
    text = NONE.replace("use_mla=True", "use_mla=True, use_compress=False")
    (error,) = read_log(text, Vocabulary([own])).errors
    assert error.asked["use_compress"] is False
    assert not error.unknown


@pytest.mark.parametrize(
    "reasons",
    [
        "{A: [sparse not supported, odd thing not supported], B: [MLA not supported]}",
        "{'A': ['sparse not supported', 'odd thing not supported'], 'B': ['MLA not supported']}",
        "{Enum.A: [sparse not supported, odd thing not supported], Enum.B: [MLA not supported]}",
        "{<Enum.A: 'a.b'>: ['sparse not supported', \"odd thing not supported\"], "
        "<Enum.B: 'c'>: ['MLA not supported']}",
        "A: [sparse not supported, odd thing not supported], B: [MLA not supported]",
        "{\n  A: [sparse not supported,\n  odd thing not supported],\n  B: [MLA not supported],\n}",
        "\n  A: [sparse not supported, odd thing not supported],\n  B: [MLA not supported]\n",
        "A: [sparse not supported, odd thing not supported],\n  B: [MLA not supported]\nINFO x",
    ],
)
def test_spellings_of_reasons(reasons: str) -> None:
    error = only(NONE.replace(REASONS, reasons))
    assert codes_of(error) == {"A": ["SPARSE", None], "B": ["MLA"]}
    assert error.reasons["A"][1].text == "odd thing not supported"
    assert error.complete


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("AttentionBackendEnum.FLASHINFER", "FLASHINFER"),
        ("_Backend.FLASHINFER", "FLASHINFER"),
        ("FLASHINFER", "FLASHINFER"),
        ("<AttentionBackendEnum.TRITON_ATTN: 'vllm.v1.triton.TritonBackend'>", "TRITON_ATTN"),
    ],
)
def test_spellings_of_a_backend(name: str, backend: str) -> None:
    error = only(FORCED.replace("AttentionBackendEnum.FLASHINFER", name))
    assert error.backend == backend
    assert list(error.reasons) == [backend]


def test_strings_within_strings() -> None:
    text = FORCED.replace("'", "\\'")
    assert codes_of(only(f"RuntimeError('{text}')")) == {"FLASHINFER": ["SINK", "CAPABILITY"]}


# how it is written


@pytest.mark.parametrize("prefix", PREFIXES)
def test_wrapped_at_every_column(prefix: str) -> None:
    whole = [(line[0], *line[2:]) for line in told(read_log(f"{NONE}\n{FORCED}"))]
    assert len(whole) == 2
    for width in range(40, 201):
        lines = [part for text in (NONE, FORCED) for part in wrapped(text, width)]
        for end in ("\n", "\r\n"):
            log = read_log(end.join(prefix + line for line in lines))
            assert [(line[0], *line[2:]) for line in told(log)] == whole, width
            assert log.errors[0].platform == "cuda"


def wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 132])
def test_cut_by_a_terminal_in_the_middle_of_words(width: int) -> None:
    lines = [NONE[at : at + width] for at in range(0, len(NONE), width)]
    assert told(read_log("\n".join(lines))) == told(read_log(NONE))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_traceback_around_it(prefix: str) -> None:
    text = "\n".join(
        prefix + line
        for line in (
            "Traceback (most recent call last):",
            '  File "/x/vllm/platforms/cuda.py", line 3, in get_attn_backend_cls',
            "    raise ValueError(",
            '        f"No valid attention backend found for {cls.device_name} "',
            '        f"Selected backend {selected_backend} is not valid for "',
            NONE,
            "",
            "The above exception was the direct cause of the following exception:",
            "RuntimeError: Engine core initialization failed.",
        )
    )
    error = only(text)
    assert error.asked == ASKED
    assert codes_of(error) == CODES
    assert error.line == 6


def test_json_envelopes() -> None:
    for name in ("log", "message", "msg", "textPayload"):
        line = json.dumps({"level": "error", name: f"\x1b[31m{NONE}\x1b[0m\n"})
        assert told(read_log(line)) == told(read_log(NONE))
    nested = json.dumps({"ts": 1, "jsonPayload": {"message": f"Traceback:\n{NONE}\nEnd"}})
    assert told(read_log(f"2026-01-20T13:03:50Z {nested}")) == told(read_log(NONE))
    parts = [json.dumps({"message": part}) for part in wrapped(NONE, 50)]
    assert told(read_log(parts)) == told(read_log(NONE))


def test_lines_that_a_shipper_splits() -> None:
    for size in (40, 77, 130):
        parts = [NONE[at : at + size] for at in range(0, len(NONE), size)]
        ends = ["P"] * (len(parts) - 1) + ["F"]
        cri = [f"2026-01-20T13:03:50.1Z stderr {e} {p}" for e, p in zip(ends, parts, strict=True)]
        assert told(read_log(cri)) == told(read_log(NONE))
        docker = [
            json.dumps({"log": p, "stream": "stderr"}) for p in (*parts[:-1], parts[-1] + "\n")
        ]
        assert told(read_log("\n".join(docker))) == told(read_log(NONE))


def test_two_errors_and_repeats() -> None:
    ranks = [f"(Worker_TP{rank} pid={100 + rank}) ERROR {NONE}" for rank in range(8)]
    other = NONE.replace("head_size=576", "head_size=512")
    log = read_log("\n".join([*ranks, FORCED, other, FORCED]))
    assert [(e.kind, e.line, e.count) for e in log.errors] == [
        ("none", 1, 8),
        ("forced", 9, 2),
        ("none", 10, 1),
    ]
    assert log.errors[2].asked["head_size"] == 512
    twice = read_log(f"{NONE} {FORCED} {NONE}")
    assert [(e.kind, e.count) for e in twice.errors] == [("none", 2), ("forced", 1)]


def test_ranks_that_write_over_each_other() -> None:
    parts = wrapped(NONE, 90)
    lines = [f"(Worker_TP{rank} pid={rank}) ERROR {part}" for part in parts for rank in range(8)]
    noise = [[line, "(APIServer pid=9) INFO still waiting"] for line in lines]
    (error,) = read_log([line for pair in noise for line in pair]).errors
    assert error.count == 8
    assert error.asked == ASKED
    assert codes_of(error) == CODES


def test_lines_of_another_level_in_between() -> None:
    lines = [
        line
        for part in wrapped(NONE, 90)
        for line in (
            f"ERROR 11-29 10:00:00 [core.py:1] {part}",
            "INFO 11-29 10:00:00 [x.py:2] idle",
        )
    ]
    assert told(read_log(lines)) == told(read_log(NONE))


def test_spellings_of_one_error_are_one() -> None:
    other = NONE.replace("AttentionType.DECODER", "decoder").replace("torch.bfloat16", "bfloat16")
    assert only(f"{NONE}\n{other}").count == 2


# what breaks off


def test_cut_off_anywhere() -> None:
    start = NONE.index("found for") + len("found for")
    for end in range(start, len(NONE)):
        log = read_log(f"INFO starting\n{NONE[:end]}")
        (error,) = log.errors
        assert error.line == 2
        assert error.asked.items() <= ASKED.items()
        assert error.complete == (end >= NONE.rindex("}") + 1)
        names = list(CODES)[: len(error.reasons)]
        assert list(error.reasons) == names
    for end in range(FORCED.index(" is ") + 3, len(FORCED)):
        error = only(FORCED[:end])
        assert error.backend == "FLASHINFER"
        assert error.complete == (end >= len(FORCED))


def test_cut_off_in_the_middle_of_a_log() -> None:
    after = [f"(APIServer pid=1) ERROR something else, of no interest {n}" for n in range(50)]
    log = read_log(
        [f"ERROR {NONE[:-20]}", *(line.removeprefix("(APIServer pid=1) ") for line in after)]
    )
    (error,) = log.errors
    assert not error.complete
    assert error.asked == ASKED
    assert list(error.reasons) == list(CODES)
    assert all(len(r.text) < 200 for reasons in error.reasons.values() for r in reasons)
    assert told(read_log([f"ERROR {NONE}", *after])) == told(read_log(NONE))


def test_a_part_counts_for_the_whole() -> None:
    assert told(read_log(f"{NONE}\n{NONE[:400]}")) == told(read_log(f"{NONE}\n{NONE}"))
    cut = read_log(f"{FORCED}\n{NONE[:400]}\n{FORCED}")
    assert [(e.kind, e.complete, e.count) for e in cut.errors] == [
        ("forced", True, 2),
        ("none", False, 1),
    ]


def test_what_is_left_out_by_hand() -> None:
    text = """ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(...
      kv_cache_dtype=nvfp4, ..., use_non_causal=True). Reasons: {FLASH_ATTN: [...], FLASHINFER:
      [nvfp4 KV cache in FlashInfer requires SM100]}"""
    error = only(text)
    assert error.asked == {"kv_cache_dtype": "nvfp4", "non_causal": True}
    assert codes_of(error) == {"FLASH_ATTN": [], "FLASHINFER": ["FI_NVFP4_DEVICE"]}
    error = only(
        "ValueError: No valid attention backend found for cuda ... kv_cache_dtype=nvfp4 ...\n"
        "Reasons: {FLASH_ATTN: [kv_cache_dtype not supported], FLASHINFER: [...]}"
    )
    assert error.asked == {"kv_cache_dtype": "nvfp4"}
    assert error.complete


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "INFO all is well",
        "Selected backend FLASH_ATTN for the vision tower",
        "We saw: No valid attention backend found, and gave up.",
        "Some attention backends are not valid for cuda with AttentionSelectorConfig(head_size=1). "
        "Reasons: {A: [sparse not supported]}.",
        'f"No valid attention backend found for {cls.device_name} "',
        "INFO Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].",
    ],
)
def test_no_error(text: str) -> None:
    assert read_log(text).errors == ()


def test_the_block_size_that_was_asked() -> None:
    error = only(
        "ValueError: No valid attention backend found for --block-size 106. Reasons: {A: "
        "[block_size not supported]}. Either remove --block-size, or choose another."
    )
    assert (error.platform, error.asked) == (None, {"block_size": 106})
    assert codes_of(error) == {"A": ["BLOCK_SIZE"]}


# of any size


def noise(size: int) -> Iterator[str]:
    line = (
        '(EngineCore_0 pid=1) ERROR 11-29 10:00:00 [core.py:843]   File "/x/vllm/v1/core.py", '
        "line 835, in run_engine_core with the attention backend"
    )
    for _ in range(size // (len(line) + 1)):
        yield line


def test_megabytes_in_little_memory() -> None:
    def lines() -> Iterator[str]:
        yield from noise(2_000_000)
        yield from (f"(Worker_TP{rank} pid={rank}) {NONE}" for rank in range(8))
        yield from noise(2_000_000)

    tracemalloc.start()
    try:
        log = read_log(lines())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [e.count for e in log.errors] == [8]
    assert most < 2_000_000


def test_many_different_errors_are_bounded() -> None:
    lines = (NONE.replace("head_size=576", f"head_size={n}") for n in range(1, 1000))
    assert len(read_log(lines).errors) == 256


@pytest.mark.parametrize(
    "text",
    [
        "No valid attention backend " * 40_000,
        "Selected backend " * 40_000,
        f"No valid attention backend found for x with C(a=1). Reasons: {{{'[' * 500_000}",
        f"No valid attention backend found for cuda with A({'(a=b=' * 100_000}",
        "backend valid" + " " * 900_000 + "x",
        "NVIDIA " + "A_" * 400_000,
        "an LLM engine" + " " * 900_000,
        '{"log":' * 100_000 + "backend valid",
        "\x1b[" * 400_000 + "Selected backend",
        "x" * 3_000_000 + NONE,
        "'" * 900_000 + "Selected backend",
        "No valid attention backend found for cuda with A(\n" + "]\n" * 50_000,
    ],
)
def test_hostile_lines(text: str) -> None:
    assert len(read_log(text).errors) <= 1
    assert read_log(f"{text}\n{FORCED}").errors[-1].backend == "FLASHINFER"


WHOLE = "\n".join(
    path.read_text("utf-8") for path in sorted(LOGS.glob("*.log"))
) + f"\n{NONE}\n{FORCED}\n"  # fmt: skip


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(WHOLE)),
            st.integers(0, 60),
            st.one_of(
                st.text(max_size=6),
                st.sampled_from(["\n", "\r", "]", "}", "'", '"', "\\", "\x1b[31m", "{", "(", ", "]),
            ),
        ),
        max_size=12,
    )
)
@settings(max_examples=150, deadline=None)
def test_mutated_logs_are_read(changes: list[tuple[int, int, str]]) -> None:
    text = WHOLE
    for at, gone, put in changes:
        text = text[:at] + put + text[at + gone :]
    log = read_log(text)
    lines = text.count("\n") + 1
    assert all(1 <= e.line <= lines and e.count >= 1 for e in log.errors)
    assert all(isinstance(e.kind, str) and e.kind in ("none", "forced") for e in log.errors)
    assert read_log(text.splitlines(keepends=True)).errors is not None


@given(st.text(max_size=300))
@settings(max_examples=150, deadline=None)
def test_any_text_is_read(text: str) -> None:
    read_log(text)
    read_log(f"No valid attention backend found for {text}")
    read_log(f"Selected backend A is not valid for this configuration. Reason: [{text}")
    read_log(NONE.replace(CONFIG, text))
    read_log(NONE.replace(REASONS, text))
