"""What one backend says when it refuses, beside the two error texts; and what is no vLLM's at all.

A constructor, or a version before the two texts, names one backend and one reason. Errors about
attention that nothing here reads are found too, so that they can be called not understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

__all__ = ["Older", "is_near", "read_older", "strange"]

_SIGNS = (
    "is not supported by",
    "does not support",
    "inks are only supported",
    "not yet supported",
    "Cannot use Flash",
    "only supports Ampere",
    "ttention backend",
    "not implemented for",
    "No common block size",
    "No operator found",
    "Error:",
    "Assertion failed",
)

_BACKENDS = {
    "flashattention": "FLASH_ATTN",
    "flashattention-2": "FLASH_ATTN",
    "flashattn": "FLASH_ATTN",
    "flashinfer": "FLASHINFER",
    "tritonattention": "TRITON_ATTN",
    "tritonattn": "TRITON_ATTN",
    "flexattention": "FLEX_ATTENTION",
    "treeattention": "TREE_ATTN",
    "xformers": "XFORMERS",
    "pagedattention": "PAGED_ATTENTION",
    "torchsdpa": "TORCH_SDPA",
    "tritonmla": "TRITON_MLA",
    "flashmla": "FLASHMLA",
    "cutlassmla": "CUTLASS_MLA",
    "flashattnmla": "FLASH_ATTN_MLA",
    "flashinfermla": "FLASHINFER_MLA",
    "aitermla": "ROCM_AITER_MLA",
}
"""How classes call themselves → the name of the backend."""

_NAME = r"(?P<who>[A-Za-z][\w-]{2,40}?)"


class Older(msgspec.Struct, frozen=True):
    """A refusal by one backend.

    Attributes:
        text: the sentence.
        backend: which; ``None``: the sentence names none.
        code: as of :class:`selector.serving.logs.reasons.Reason`.
        asked: fields whose values follow, as text or plain values.
        named: the backend's name is what was refused.
        raised: an exception says it; else the engine went on with another backend.
    """

    text: str
    backend: str | None
    code: str | None
    asked: Mapping[str, object] = MappingProxyType({})
    named: bool = False
    raised: bool = False


_Asked = Callable[[re.Match[str]], dict[str, object]]


def _nothing(_: re.Match[str]) -> dict[str, object]:
    return {}


def _head_size(found: re.Match[str]) -> dict[str, object]:
    return {"head_size": int(found["size"])}


def _cache(found: re.Match[str]) -> dict[str, object]:
    return {"kv_cache_dtype": found["kv"].lower()}


_SENTENCES: tuple[tuple[re.Pattern[str], str | None, _Asked], ...] = (
    (
        re.compile(rf"Head size (?P<size>\d{{1,6}}) is not supported by {_NAME}\b"),
        "HEAD_SIZE",
        _head_size,
    ),
    (
        re.compile(rf"{_NAME} does not support (?P<kv>[\w.]{{2,30}}) kv-cache on this device"),
        "KV_CACHE_DTYPE",
        _cache,
    ),
    (
        re.compile(rf"{_NAME}(?:Impl| V1)? with (?P<kv>FP8) KV cache not yet supported"),
        "KV_CACHE_DTYPE",
        _cache,
    ),
    (
        re.compile(r"Sinks are only supported in (?P<who>FlashAttention) 3"),
        "SINK",
        lambda _: {"sink": True},
    ),
    (
        re.compile(rf"{_NAME} backend currently does not support attention sinks"),
        "SINK",
        lambda _: {"sink": True},
    ),
    (
        re.compile(rf"Cannot use {_NAME} backend for Volta and Turing GPUs"),
        "CAPABILITY",
        _nothing,
    ),
    (
        re.compile(rf"Cannot use {_NAME} backend for head size (?P<size>\d{{1,6}})"),
        "HEAD_SIZE",
        _head_size,
    ),
    (
        re.compile(rf"Cannot use {_NAME} backend for (?P<kv>FP8) KV cache"),
        "KV_CACHE_DTYPE",
        _cache,
    ),
    (re.compile(rf"Cannot use {_NAME} backend for dtype"), "DTYPE", _nothing),
    (re.compile(rf"Cannot use {_NAME} backend for block size"), "BLOCK_SIZE", _nothing),
    (re.compile(rf"Cannot use {_NAME} backend due to sliding window"), "SLIDING_WINDOW", _nothing),
    (re.compile(r"(?P<who>FlashAttention) only supports Ampere GPUs"), "CAPABILITY", _nothing),
    (
        re.compile(
            r"Encoder self-attention and encoder/decoder cross-attention are not implemented "
            rf"for {_NAME}(?:Impl)?\b"
        ),
        "ATTN_TYPE",
        _nothing,
    ),
    (
        re.compile(
            r"Invalid attention backend for \w{1,40}, with (?:use_v1: \w+,? )?use_mla: "
            r"(?P<mla>True|False)"
        ),
        None,
        lambda found: {"mla": found["mla"] == "True"},
    ),
    (re.compile(r"Invalid attention backend for \w{1,40}"), None, _nothing),
)
_UNKNOWN_NAME = re.compile(
    r"(?:Unknown|Invalid) attention backend(?:: |:| )['\"]?(?P<who>[A-Za-z]\w{1,60})['\"]?(?! \w)"
)
_RAISED = re.compile(r"(?:Error|Exception|Assertion failed)\s*:\s*$")
_STRANGE = re.compile(
    r"(?:\w{0,80}Error|\w{0,80}Exception|Assertion failed)\s*:\s.{0,400}?"
    r"(?:attention|attn\b|flash|sinks?\b|head[ _-]?(?:size|dim)|kv[ _-]?cache|\bmla\b"
    r"|block size|backend (?:is|only|does|requires))",
    re.IGNORECASE,
)
_ENGINES = (
    (re.compile(r"memory_efficient_attention|xformers"), "xformers"),
    (re.compile(r"TensorRT-LLM|TRT-LLM|tensorrt_llm", re.IGNORECASE), "TensorRT-LLM"),
    (re.compile(r"sglang", re.IGNORECASE), "SGLang"),
    (re.compile(r"diffusers"), "Diffusers"),
)
_HINTS = (
    (
        re.compile(r"No common block size for"),
        "backends of two kinds of layers have no page size in common: give another --block-size, "
        "or force another backend for one of them",
    ),
)
_LONGEST = 300


def is_near(raw: str) -> bool:
    """Whether a line may hold such a sentence; cheap, since it is asked of every line."""
    return any(sign in raw for sign in _SIGNS)


def read_older(text: str) -> Older | None:
    """The refusal that a line holds; ``None``: none. A line of source code holds none."""
    for pattern, code, asked in _SENTENCES:
        found = pattern.search(text)
        if found and not _is_code(text, found):
            backend = _backend(found.groupdict().get("who"))
            held = asked(found)
            if backend is not None and backend.endswith("MLA"):
                held = {"mla": True, **held}
            said = text[found.start() :][:_LONGEST]
            return Older(said, backend, code, held, raised=_is_raised(text, found))
    found = _UNKNOWN_NAME.search(text)
    if found and not _is_code(text, found):
        said = text[found.start() :][:_LONGEST]
        return Older(said, found["who"], None, named=True, raised=_is_raised(text, found))
    return None


def strange(text: str) -> str | None:
    """An error about attention that cannot be answered here, and whose it seems to be."""
    found = _STRANGE.search(text)
    if found is None and "No operator found for" not in text:
        return None
    said = text[found.start() if found else 0 :].strip()[:_LONGEST]
    hint = next((words for pattern, words in _HINTS if pattern.search(text)), None)
    if hint is not None:
        return f"{said} ({hint})"
    whose = next((name for pattern, name in _ENGINES if pattern.search(text)), None)
    return f"{said} ({whose}'s; no manifest of it is here)" if whose else said


def _backend(who: str | None) -> str | None:
    if who is None:
        return None
    plain = who.lower().removesuffix("impl").removesuffix("backend")
    return _BACKENDS.get(plain, who)


def _is_code(text: str, found: re.Match[str]) -> bool:
    before = text[: found.start()].rstrip()
    return before[-1:] in ("'", '"', "`") or "raise " in before or "{" in found[0]


def _is_raised(text: str, found: re.Match[str]) -> bool:
    return _RAISED.search(text[: found.start()]) is not None
