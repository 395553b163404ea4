"""Random logs: those of the tests and both error texts, damaged, wrapped, joined and buried."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path

from selector.devices import architectures
from tests.fuzz.outcome import Outcome, Tally, attempt, engine

__all__ = ["run"]

_LOGS = Path(__file__).parents[1] / "unit" / "serving" / "logs"
_NONE = (
    "No valid attention backend found for {platform} with AttentionSelectorConfig({asked}). "
    "Reasons: {{{reasons}}}."
)
_PREFILL = (
    "No valid MLA prefill backend found with MLAPrefillSelectorConfig(dtype={dtype}, "
    "mla_dimensions=MLADimensions(qk_nope_head_dim={size}, qk_rope_head_dim=64, "
    "v_head_dim={size})). Reasons: {{{reasons}}}."
)
_FORCED = "Selected backend {backend} is not valid for this configuration. Reason: [{said}]"
_SAID = (
    "head_size not supported", "kv_cache_dtype not supported", "sparse not supported",
    "block_size not supported", "compute capability not supported", "sink setting not supported",
    "attention type decoder not supported", "dtype not supported", "vllm-flash-attn not found",
    "non-MLA not supported", "'quoted', with a comma", "(brackets [inside] of it)", "", "é\u202e",
)  # fmt: skip
_DTYPES = ("torch.bfloat16", "torch.float16", "torch.float32", "bfloat16", "None", "torch.int9")
_CACHES = ("auto", "fp8", "fp8_e5m2", "'fp8'", "bfloat16", "nvfp4", "fp9", "None", "torch.uint8")
_PREFIXES = (
    "(EngineCore_DP0 pid=90) ERROR 12-29 15:21:11 [core.py:751] ",
    "2026-04-16T02:35:51.300000000Z stderr F ",
    "\x1b[1;36m(Worker_TP1 pid=7)\x1b[0;0m ERROR 09-22 08:00:00 [core.py:1] ",
    "[rank3]:[W416 02:35:51.41 x.cpp:1553] ",
    "vllm-1  | ",
    "Apr 16 02:35:51 host vllm[12]: ",
    "ValueError: ",
    "",
)
_NOISE = (
    b"INFO 12-29 15:20:11 [api_server.py:1272] vLLM API server version 0.14.0\n",
    b"GPU 0: NVIDIA H200 (UUID: GPU-0)\n", b"Reasons: {", b"}", b"]" * 40, b"[" * 200, b"(" * 200,
    b"No valid attention backend found", b"Selected backend ", b"\xff\xfe\x00", b"\x00", b"\r\n",
    b"\r", b"\x1b[31m", b"\x1b[", b"\xe2\x80\xa8", b"\xed\xa0\x80", b'"', b"'", b"\\n", b"\\",
    b"non-default args: {'model': 'x', 'tensor_parallel_size': 2", b"+ vllm serve m -tp 2 \\\n",
    b"AttentionSelectorConfig(", b"head_size=", b"Traceback (most recent call last):\n", b"{" * 99,
)  # fmt: skip


def run(count: int, seed: int) -> Tally:
    """Explains so many logs; number N of a seed is always the same, however many there are."""
    tally = Tally("logs", seed)
    for number in range(count):
        dice = random.Random(f"{seed} log {number}")
        kind, text = _log(dice)
        options = _options(dice)
        outcome = attempt(["explain", "--log", "-", *options], text)
        shown = f"{shlex.join(options)} {text[:1500]!r} ({len(text):,} bytes)"
        broken = ""
        if outcome.trouble == "" and dice.random() < 0.2:
            broken = _broken_law(options, text, outcome)
        tally.add(number, f"{kind}: {_kind(outcome)}", shown, outcome, broken)
    return tally


def _kind(outcome: Outcome) -> str:
    if outcome.code == 2:
        return "no error in it" if "no attention error" in outcome.err else "refused"
    return {0: "runs", 3: "does not run"}.get(outcome.code or 0, "failed")


def _broken_law(options: list[str], text: bytes, outcome: Outcome) -> str:
    """Both forms end alike, and colours around the text change nothing."""
    other = ["--format", "json"] if "--format" not in options else []
    plain = [word for word in options if word not in ("--format", "json")]
    again = attempt(["explain", "--log", "-", *plain, *other], text)
    if again.trouble or again.code != outcome.code:
        return f"another form ends otherwise: {again.code} {again.trouble} {again.err}"
    return ""


def _options(dice: random.Random) -> list[str]:
    known = [product for row in architectures() for product in row["products"]]
    options: list[str] = []
    if dice.random() < 0.5:
        options += ["--gpu", dice.choice((*known, "Voodoo 2"))]
    if dice.random() < 0.1:
        fields = ("head_size=80", "kv_cache_dtype=fp8", "dcp_size=2", "mla=true", "x=1", "dtype=")
        options += ["--set", dice.choice(fields)]
    if dice.random() < 0.4:
        options += ["--format", "json"]
    return options


# -- texts ---------------------------------------------------------------------------------------


@cache
def _known() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(_LOGS.glob("*.log")))


def _log(dice: random.Random) -> tuple[str, bytes]:
    """A kind, and a log of it."""
    text = _text(dice)
    kinds: tuple[tuple[str, int, Callable[[random.Random, bytes], bytes]], ...] = (
        ("whole", 4, _whole),
        ("damaged", 5, _damaged),
        ("cut off", 2, _cut_off),
        ("wrapped", 3, _wrapped),
        ("joined", 2, _joined),
        ("wrapped and damaged", 2, lambda dice, text: _damaged(dice, _wrapped(dice, text))),
        ("in JSON", 1, _in_json),
        ("nested", 1, _nested),
    )
    name, _, change = dice.choices(kinds, [kind[1] for kind in kinds])[0]
    changed = change(dice, text)
    if dice.random() < 0.01:
        return f"{name}, buried", _buried(dice, changed)
    return name, changed


def _text(dice: random.Random) -> bytes:
    roll = dice.random()
    if roll < 0.3:
        return dice.choice(_known())
    return _error(dice).encode("utf-8", "replace")


def _error(dice: random.Random) -> str:
    """One of the error texts, filled in."""
    names = [n for n in engine("vllm-0.33.0").truth.manifest.entries if dice.random() < 0.15]
    names += ["NO_SUCH_BACKEND"] * (dice.random() < 0.1)
    quote = dice.choice(("", "", "'"))
    reasons = ", ".join(f"{quote}{n}{quote}: [{_said(dice)}]" for n in names)
    backend = dice.choice(names or ["FLASH_ATTN"])
    shown = dice.choice((backend, f"AttentionBackendEnum.{backend}", f"'{backend}'"))
    form = dice.choices((_NONE, _PREFILL, _FORCED), (5, 1, 2))[0]
    text = form.format(
        platform=dice.choice(("cuda", "cuda", "cuda", "rocm", "cpu", "xpu", "")),
        asked=_asked(dice),
        reasons=reasons,
        dtype=dice.choice(_DTYPES),
        size=dice.choice((64, 128, 192, 256, "None", -1)),
        backend=shown,
        said=_said(dice),
    )
    start = dice.choice(("", "vLLM API server version 0.33.0\n", "GPU 0: NVIDIA L40S\n"))
    return f"{start}{dice.choice(_PREFIXES)}{text}\n"


def _said(dice: random.Random) -> str:
    quote = dice.choice(("", "", "'", '"'))
    return ", ".join(f"{quote}{dice.choice(_SAID)}{quote}" for _ in range(dice.randrange(4)))


def _asked(dice: random.Random) -> str:
    """Fields of the config, most of them there, some with strange values."""
    flags = ("use_mla", "has_sink", "use_sparse", "use_mm_prefix", "use_per_head_quant_scales")
    values: dict[str, object] = {
        "head_size": dice.choice((64, 80, 128, 256, 512, 576, 0, -8, 10**30, "x")),
        "dtype": dice.choice(_DTYPES),
        "kv_cache_dtype": dice.choice(_CACHES),
        "block_size": dice.choice((None, 16, 64, 1, 0, 10**9)),
        **{name: dice.random() < 0.25 for name in flags},
        "attn_type": dice.choice(("decoder", "AttentionType.DECODER", "encoder", "x")),
        "use_pcp": dice.choice((True, False, "maybe")),
    }
    kept = [f"{name}={value}" for name, value in values.items() if dice.random() < 0.93]
    if dice.random() < 0.1:
        kept.insert(dice.randrange(len(kept) + 1), dice.choice(("new=1", "=", "a=(1, [2])", "x")))
    return ", ".join(kept)


# -- what happens to a log -----------------------------------------------------------------------


def _whole(_: random.Random, text: bytes) -> bytes:
    return text


def _damaged(dice: random.Random, text: bytes) -> bytes:
    for _ in range(dice.randrange(1, 6)):
        start = dice.randrange(len(text) + 1)
        stop = start + dice.choice((0, 0, 1, 3, 40))
        text = text[:start] + dice.choice((b"", *_NOISE)) + text[stop:]
    return text


def _cut_off(dice: random.Random, text: bytes) -> bytes:
    cut = dice.randrange(len(text) + 1)
    return text[:cut] if dice.random() < 0.7 else text[cut:]


def _wrapped(dice: random.Random, text: bytes) -> bytes:
    """Every so many characters a new line, with a prefix of its own or without."""
    width = dice.choice((1, 7, 40, 80, 120))
    prefix = dice.choice(_PREFIXES).encode() if width > 7 else b""
    end = dice.choice((b"\n", b"\r\n", b"\\\n"))
    pieces = [text[at : at + width] for at in range(0, len(text), width)]
    return end.join(prefix + piece for piece in pieces)


def _joined(dice: random.Random, text: bytes) -> bytes:
    """Up to a score of logs, one behind the other or line by line."""
    texts = [text, *(_text(dice) for _ in range(dice.choice((1, 2, 3, 19))))]
    if dice.random() < 0.5:
        return b"".join(texts)
    lines = [line for one in texts for line in one.splitlines(keepends=True)]
    dice.shuffle(lines)
    return b"".join(lines)


def _in_json(dice: random.Random, text: bytes) -> bytes:
    lines = text.decode("utf-8", "replace").splitlines(keepends=True)
    row = dice.choice(("log", "message", "msg"))
    return "\n".join(json.dumps({row: line, "stream": "stderr"}) for line in lines).encode()


def _nested(dice: random.Random, text: bytes) -> bytes:
    """Brackets in brackets, ten thousands of them, closed or not."""
    count = dice.choice((50, 1000, 50_000))
    opened = dice.choice((b"{", b"[", b"(", b"{a: [", b"['"))
    place = dice.randrange(len(text) + 1)
    closed = b"}])"[dice.randrange(3) :][:1] * (count * dice.randrange(2))
    return text[:place] + opened * count + closed + text[place:]


def _buried(dice: random.Random, text: bytes) -> bytes:
    """In megabytes of other lines, or in one line of megabytes."""
    size = dice.choice((1, 2, 4)) << 20
    line = dice.choice((*_NOISE, b"INFO 12-29 15:20:11 [loggers.py:1] Avg prompt throughput\n"))
    noise = line * (size // len(line) // 2)
    return noise + text + noise
