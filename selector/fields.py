"""The vocabulary: every field a rule may speak of, its type, and its spellings.

A field has one of five types. ``integer``, ``boolean`` and ``name`` hold values of that kind;
``capability`` is a CUDA compute capability, written ``"major.minor"`` and held as the integer
``100 * major + minor`` so that ranges are ranges; ``presence`` is a boolean whose input may be the
thing itself (a soft cap of 30.0 is "present").

Two symbols stand beside values: ``unset`` (not given) and ``absent`` (there is no such thing).

What an entry of a manifest means when it says nothing about a field depends on the field's role:
``core`` fields must be stated; a ``feature`` nobody claims is not there, so only its ``off`` value
is accepted; a ``context`` field (sizes of the deployment, of the request) restricts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from operator import index
from typing import Literal

import msgspec

from selector.domains import ANY, Domain, Span, Value
from selector.errors import UnknownFieldError, ValueRefusedError

__all__ = [
    "BUILTIN",
    "Field",
    "Vocabulary",
    "capability_text",
    "close_matches",
    "one_line",
    "parse_capability",
    "parse_capability_set",
    "show",
    "show_domain",
]

Type = Literal["boolean", "integer", "name", "capability", "presence"]
Role = Literal["core", "feature", "context"]

UNSET, ABSENT = "unset", "absent"

LONGEST_VERSION = 200
"""No version or version specifier is longer, in characters; parsing a hostile one takes minutes."""

MOST = 10**15
"""No size or length is larger: what is, is a mistake."""
_SYMBOLS = (UNSET, ABSENT)

KV_DTYPES = (
    "auto",
    "float16",
    "bfloat16",
    "float32",
    "fp8",
    "fp8_e4m3",
    "fp8_e5m2",
    "fp8_inc",
    "fp8_ds_mla",
    "nvfp4",
    "nvfp4_4over6",
    "nvfp4_ds_mla",
    "turboquant_k8v4",
    "turboquant_4bit_nc",
    "turboquant_k3v4_nc",
    "turboquant_3bit_nc",
    "octave_k3v4",
    "octave_k3v3",
    "octave_k3v3_compact",
    "ultraquant_4bit",
    "int8",
    "int4_per_token_head",
    "int8_per_token_head",
    "fp8_per_token_head",
)
"""KV cache dtypes; the list is that of vLLM 0.33.0's ``CacheDType`` plus FlashInfer's ``int8``."""


class Field(msgspec.Struct, frozen=True):
    """One field of the vocabulary.

    ``values`` is the closed list of names for a ``name`` field (empty: any name). ``off`` is the
    value that asks for nothing, for features. ``low`` is the least sensible integer. ``of_model``
    marks a field of a manifest's own that belongs to the model: who runs it cannot choose it.
    """

    name: str
    type: Type
    role: Role
    description: str
    values: tuple[str, ...] = ()
    off: Value | None = None
    low: int = 0
    symbols: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    of_model: bool = False

    def unstated(self) -> Domain | None:
        """What an entry accepts when it says nothing: a set, or ``None`` when it must say."""
        if self.role == "core":
            return None
        if self.role == "feature" and self.off is not None:
            return Domain.of(self.off)
        return ANY

    def universe(self) -> Domain:
        """Every value the field can have: what "unknown" stands for."""
        symbols = Domain.of(*self.symbols)
        if self.type in ("boolean", "presence"):
            return Domain.of(True, False) | symbols
        if self.type == "name":
            return (Domain.of(*self.values) if self.values else ANY) | symbols
        return Domain.between(self.low, None) | symbols

    def names(self) -> tuple[Value, ...]:
        """Every value of a field that has few; nothing for numbers and open names."""
        if self.type in ("boolean", "presence"):
            return (True, False, *self.symbols)
        return (*self.values, *self.symbols) if self.values else ()

    def closed(self) -> Value | None:
        """What the field is in a closed world when nobody says it; ``None``: it stays unknown."""
        for symbol in (ABSENT, UNSET):
            if symbol in self.symbols:
                return symbol
        return False if self.type in ("boolean", "presence") else None

    def read(self, raw: object) -> Value | Domain:
        """Normalises an input to a value, or to the set of values it can mean.

        Raises:
            ValueRefusedError: the input is not of the field's type or not in its vocabulary.
        """
        if isinstance(raw, Domain):
            if raw.is_empty() or not raw <= self.universe():
                raise self._refuse(show_domain(self, raw))
            only = raw.only()
            return raw if only is None else only
        if raw is None or raw in (UNSET, ABSENT):
            symbol = raw if isinstance(raw, str) else (self.symbols[0] if self.symbols else None)
            if symbol in self.symbols:
                return str(symbol)
            raise self._refuse(raw)
        if self.type == "presence":
            return self._read_presence(raw)
        if self.type == "boolean":
            return self._read_boolean(raw)
        if self.type == "capability":
            return parse_capability(str(raw))
        if self.type == "integer":
            return self._read_integer(raw)
        return self._read_name(raw)

    def _read_boolean(self, raw: object) -> bool:
        if isinstance(raw, bool):
            return raw
        if isinstance(raw, str) and raw.lower() in ("true", "false"):
            return raw.lower() == "true"
        raise self._refuse(raw)

    def _read_presence(self, raw: object) -> bool:
        if isinstance(raw, bool):
            return raw
        if isinstance(raw, int | float):
            return raw > 0
        try:
            return float(str(raw)) > 0
        except ValueError:
            return self._read_boolean(raw)

    def _read_integer(self, raw: object) -> Value | Domain:
        if self.role == "feature" and str(raw).lower() in ("true", "false"):
            wanted = str(raw).lower() == "true"  # has_sliding_window=true
            return Domain.between(max(1, self.low), None) if wanted else UNSET
        number = whole(raw)
        if number is None or not self.low <= number <= MOST:
            raise self._refuse(raw)
        return number

    def _read_name(self, raw: object) -> str:
        text = str(raw)
        for prefix in ("torch.", "AttentionType."):
            text = text.removeprefix(prefix)
        if text.isupper():
            text = text.lower()
        text = _NAME_SPELLINGS.get(text, text)
        if not isinstance(raw, str) or (self.values and text not in self.values):
            raise self._refuse(raw)
        return text

    def _refuse(self, raw: object) -> ValueRefusedError:
        shown = "nothing" if raw is None else one_line(raw)
        if self.type == "integer":
            allowed = f"a whole number of at least {self.low}"
        elif self.type == "name":
            allowed = ", ".join(self.values) if self.values else "a name"
        elif self.type == "capability":
            allowed = 'a compute capability such as "12.0"'
        else:
            allowed = "true or false"
        if self.symbols:
            allowed += f", or {' or '.join(self.symbols)}"
        near = close_matches(shown, self.values)
        hint = f"; did you mean {near[0]}?" if near else ""
        return ValueRefusedError(f"{self.name} {shown} is not {allowed}{hint}")


def whole(raw: object) -> int | None:
    """The whole number that an input is; ``None`` when it is none. ``True`` is none."""
    if isinstance(raw, bool):
        return None
    if isinstance(raw, str):
        return int(raw) if re.fullmatch(r"-?[0-9]{1,18}", raw) else None
    if isinstance(raw, float):
        return int(raw) if raw.is_integer() else None
    try:
        return index(raw)  # type: ignore[arg-type]
    except TypeError:
        return None


def one_line(raw: object) -> str:
    """What an error shows of an input: its first 60 characters, on one line, all of them seen."""
    if isinstance(raw, int) and abs(raw) > MOST:
        return "of that many digits"  # Python does not write out the longest
    text = " ".join(str(raw).split())[:60]
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def close_matches(word: str, words: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """The one spelling closest to ``word``, if any is close: what the asker may have meant."""
    from difflib import get_close_matches  # only mistakes need it

    return get_close_matches(word, words, 1, cutoff)


_NAME_SPELLINGS = {
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "float": "float32",
    "fp32": "float32",
    "fp8_e4m3fn": "fp8_e4m3",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
}


def _feature(name: str, description: str, *aliases: str) -> Field:
    return Field(name, "boolean", "feature", description, off=False, aliases=aliases)


def _size(name: str, description: str, *aliases: str, low: int = 1, symbols: str = "") -> Field:
    return Field(
        name,
        "integer",
        "context",
        description,
        low=low,
        symbols=tuple(symbols.split()),
        aliases=aliases,
    )


BUILTIN: tuple[Field, ...] = (
    Field(
        "platform",
        "name",
        "core",
        "Kind of device.",
        values=("cuda", "rocm", "xpu", "tpu", "npu", "cpu"),
    ),
    Field(
        "capability",
        "capability",
        "core",
        'CUDA compute capability, "major.minor"; absent on devices that have none.',
        symbols=(ABSENT,),
        aliases=("compute_capability", "arch"),
    ),
    _feature("mla", "Multi-head latent attention over a compressed KV cache.", "use_mla"),
    _feature("sparse", "Attention to the top-k tokens an indexer picked.", "use_sparse"),
    Field(
        "head_size",
        "integer",
        "core",
        "Elements of one query/key head; for MLA the latent plus the rotary part "
        "(kv_lora_rank + qk_rope_head_dim).",
        low=1,
        aliases=("head_dim",),
    ),
    Field(
        "dtype",
        "name",
        "core",
        "Element type of queries and output.",
        values=("float16", "bfloat16", "float32", "fp8_e4m3", "fp8_e5m2"),
        aliases=("torch_dtype",),
    ),
    Field(
        "kv_cache_dtype",
        "name",
        "core",
        "Element type or packed layout of the KV cache; auto follows dtype.",
        values=KV_DTYPES,
        symbols=(UNSET,),
    ),
    Field(
        "block_size",
        "integer",
        "core",
        "Tokens in one page of the KV cache; unset leaves it to the backend.",
        low=1,
        symbols=(UNSET,),
        aliases=("page_size", "kv_block_size"),
    ),
    Field(
        "attn_type",
        "name",
        "core",
        "Which tokens a query sees: decoder (causal self), encoder (self), encoder_only "
        "(self, no KV cache), encoder_decoder (cross).",
        values=("decoder", "encoder", "encoder_only", "encoder_decoder"),
    ),
    _feature("sink", "Learned attention sinks in the softmax.", "has_sink", "sinks"),
    Field(
        "sliding_window",
        "integer",
        "feature",
        "Tokens a query may look back; unset for full attention.",
        off=UNSET,
        low=1,
        symbols=(UNSET,),
        aliases=("has_sliding_window",),
    ),
    Field(
        "soft_cap",
        "presence",
        "feature",
        "Whether logits are soft-capped (tanh).",
        off=False,
        aliases=("logits_soft_cap", "attn_logit_softcapping"),
    ),
    _feature("alibi", "Linear position biases added to the logits.", "has_alibi"),
    _feature("chunked", "Chunked local attention: queries see their own chunk only."),
    _feature(
        "mm_prefix", "Bidirectional attention over multimodal prefix tokens.", "use_mm_prefix"
    ),
    _feature("non_causal", "Decoder-type attention without the causal mask.", "use_non_causal"),
    _feature(
        "per_head_quant_scales", "One KV quantisation scale per head.", "use_per_head_quant_scales"
    ),
    _feature("rswa", "Windowed attention with rotating roles of layers.", "use_rswa"),
    _feature("batch_invariant", "Results must not depend on the batch.", "use_batch_invariant"),
    _feature("kv_connector", "KV blocks move to or from another process.", "use_kv_connector"),
    _feature("pcp", "Prefill context parallel.", "use_pcp"),
    _feature("dcp", "Decode context parallel.", "use_dcp"),
    _feature(
        "adaptive_verification",
        "Query lengths on the device may be shorter than the host's.",
        "use_adaptive_verification",
    ),
    Field(
        "dense_prefill",
        "boolean",
        "context",
        "The layer's own contract: its prefill may be computed densely, for sequences no longer "
        "than index_topk, without changing the result.",
    ),
    _size("num_heads", "Query heads on one tensor-parallel rank.", symbols=UNSET),
    _size("num_kv_heads", "KV heads on one tensor-parallel rank.", symbols=UNSET),
    _size("gqa_group", "Query heads per KV head.", symbols=UNSET),
    _size(
        "total_num_heads",
        "Query heads of the whole model; unless said, num_heads times tp_size.",
        symbols=ABSENT,
    ),
    _size("total_num_kv_heads", "KV heads of the whole model.", symbols=ABSENT),
    _size(
        "model_num_heads",
        "Query heads of one rank by the model's total: total_num_heads // tp_size.",
        low=0,
        symbols=ABSENT,
    ),
    Field(
        "heads_divide",
        "boolean",
        "context",
        "Whether model_num_heads is a multiple of the KV heads of one rank (1 for MLA).",
    ),
    _size("v_head_size", "Elements of one value head; unset: as many as head_size.", symbols=UNSET),
    _size("q_lora_rank", "MLA: rank of the query projection.", low=0, symbols=ABSENT),
    _size("kv_lora_rank", "MLA: rank of the KV latent.", low=0, symbols=ABSENT),
    _size("qk_nope_head_dim", "MLA: query/key elements without rotary.", low=0, symbols=ABSENT),
    _size("qk_rope_head_dim", "MLA: query/key elements with rotary.", low=0, symbols=ABSENT),
    _size("v_head_dim", "MLA: value elements of a head.", low=0, symbols=ABSENT),
    _size("index_topk", "Sparse: tokens the indexer keeps per query.", low=0, symbols=ABSENT),
    _size("tp_size", "Tensor-parallel ranks.", "tensor_parallel_size", "tp"),
    _size("pp_size", "Pipeline-parallel stages.", "pipeline_parallel_size", "pp"),
    _size("dcp_size", "Decode-context-parallel ranks.", "decode_context_parallel_size"),
    _size("pcp_size", "Prefill-context-parallel ranks.", "prefill_context_parallel_size"),
    _size("num_reqs", "Requests that run together in one step of the engine; 1 unless said."),
    _size(
        "batch_num_heads",
        "Query heads of all requests that run together; unless said, num_heads times num_reqs.",
        symbols=UNSET,
    ),
    _size("query_len", "Request: new tokens; in a batch rule, the longest prefill's."),
    _size("seq_len", "Request: new plus cached tokens; in a batch rule, the longest prefill's."),
    _size("context_len", "Request: cached tokens; in a batch rule, the longest.", low=0),
    Field("has_context", "boolean", "context", "Request: whether any token is cached already."),
    _size("num_prefills", "Batch: requests that are prefills.", low=0),
)


REQUEST_FIELDS = frozenset({"query_len", "seq_len", "context_len", "has_context", "num_prefills"})
"""Fields that change with each request, as measures do: no layer says them."""

BATCH_FIELDS = frozenset({"num_reqs", "batch_num_heads"})
"""Fields that requests which run together say of themselves, where their layer does not."""


class Vocabulary:
    """Fields by name and by alias; immutable.

    ``universes`` holds every value a field can have, ``off`` what features are when nobody says
    them, ``closed`` what fields are then in a closed world.

    Args:
        extra: fields, derived values and facts that a manifest declares beside the built-in ones.
    """

    def __init__(self, extra: Iterable[Field] = ()) -> None:
        self.fields: Mapping[str, Field] = {f.name: f for f in (*BUILTIN, *extra)}
        every = self.fields.values()
        self.universes = {f.name: f.universe() for f in every}
        self.off = {f.name: f.off for f in every if f.role == "feature" and f.off is not None}
        self.closed = {f.name: closed for f in every if (closed := f.closed()) is not None}
        self._names = {a: f.name for f in self.fields.values() for a in (f.name, *f.aliases)}

    def __contains__(self, name: object) -> bool:
        return name in self.fields

    @property
    def spellings(self) -> frozenset[str]:
        """Every name and alias."""
        return frozenset(self._names)

    def field(self, name: str) -> Field:
        """The field called ``name`` or aliased so.

        Raises:
            UnknownFieldError: no field has that name; the nearest one is named.
        """
        try:
            return self.fields[self._names[name]]
        except KeyError:
            near = close_matches(name, self._names)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UnknownFieldError(f'unknown field "{one_line(name)}"{hint}') from None


def parse_capability(text: str) -> int:
    """Reads ``"12.0"``, ``sm120``, ``sm_120a`` or ``120`` as ``100 * major + minor``.

    Raises:
        ValueRefusedError: the text is none of these.
    """
    text = text.strip()
    dotted = re.fullmatch(r"(?:sm_?)?([0-9]{1,2})\.([0-9]{1,2})", text, re.IGNORECASE)
    if dotted:
        return int(dotted[1]) * 100 + int(dotted[2])
    joined = re.fullmatch(r"(?:sm_?|compute_?)?([0-9]{1,2})([0-9])[af]?", text, re.IGNORECASE)
    if joined and int(joined[1]) > 1:  # "12" would be 1.2, and means 12.0 to everybody
        return int(joined[1]) * 100 + int(joined[2])
    raise ValueRefusedError(
        f'compute capability "{one_line(text)}" is not major.minor; write "12.0", sm120 or sm_120a'
    )


def capability_text(code: int) -> str:
    """``1200`` → ``"12.0"``."""
    return f"{code // 100}.{code % 100}"


def parse_capability_set(text: str) -> Domain:
    """Reads a set of capabilities: ``"9.0"``, ``9.x``, ``>=8.0``, ``<9.0`` or ``8.0..12.1``.

    Raises:
        ValueRefusedError: the text is none of these.
    """
    if found := re.fullmatch(r"([0-9]{1,2})\.x", text):
        major = int(found[1]) * 100
        return Domain.between(major, major + 99)
    if found := re.fullmatch(r"([0-9]{1,2}\.[0-9]{1,2})\.\.([0-9]{1,2}\.[0-9]{1,2})", text):
        return Domain.between(parse_capability(found[1]), parse_capability(found[2]))
    if found := re.fullmatch(r"(>=|<)\s*([0-9]{1,2}\.[0-9]{1,2})", text):
        code = parse_capability(found[2])
        return Domain.between(code, None) if found[1] == ">=" else Domain.between(0, code - 1)
    if re.fullmatch(r"[0-9]{1,2}\.[0-9]{1,2}", text):
        return Domain.of(parse_capability(text))
    raise ValueRefusedError(
        f'capability "{one_line(text)}" is not "9.0", 9.x, ">=8.0", "<9.0" or "8.0..12.1"'
    )


def show(field: Field, value: Value) -> str:
    """A value as the manifest writes it: ``1200`` → ``12.0`` for a capability."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and field.type == "capability":
        return capability_text(value)
    return f"{value:,}" if isinstance(value, int) and field.name.endswith("_len") else str(value)


def show_domain(field: Field, domain: Domain) -> str:
    """A set in words: ``64, 128``, ``multiples of 8 up to 256, or unset``, ``12.x``, ``any``."""
    return _in_words(field, domain.spans, domain.names, domain.all_names_but)


@lru_cache(4096)  # a manifest has few sets, and every rejection words one
def _in_words(
    field: Field, spans: tuple[Span, ...], names: frozenset[bool | str], all_names_but: bool
) -> str:
    domain = Domain(spans, names, all_names_but)
    if domain.is_empty():
        return "nothing"
    if domain == ANY or (field.universe() <= domain and field.role != "core"):
        return "any"
    if field.type == "capability" and spans == (Span(),) and not names:
        return "any"  # whatever has a capability at all
    parts: list[str] = []
    for span in sorted(domain.spans, key=lambda s: (s.low is not None, s.low or 0)):
        low, high = span.low, span.high
        if low is not None and low == high:
            parts.append(show(field, low))
            continue
        if field.type == "capability" and low is not None and high is not None:
            text = _show_capabilities(low, high)
        else:
            text = _show_range(field, low, high, span.step)
        if span.holes:
            text += f" except multiples of {', '.join(map(str, sorted(span.holes)))}"
        parts.append(text)
    words = sorted(str(n).lower() if isinstance(n, bool) else n for n in names)
    if all_names_but:
        parts.append(f"any name but {', '.join(words)}" if words else "any name")
    else:
        parts.extend(words)
    return ", ".join(parts)


def _show_capabilities(low: int, high: int) -> str:
    if low == 0:
        return f"below {capability_text(high + 1)}"
    if high % 100 != 99:
        return f"{capability_text(low)}–{capability_text(high)}"
    if low % 100 == 0:  # whole majors; the algebra joins those that follow each other
        majors = range(low // 100, high // 100 + 1)
        if len(majors) <= 4:
            return ", ".join(f"{major}.x" for major in majors)
    return f"{capability_text(low)}–{high // 100}.x"


def _show_range(field: Field, low: int | None, high: int | None, step: int) -> str:
    if low is not None and low <= max(field.low, step):
        low = None
    lead = "" if step == 1 else f"multiples of {step} "
    if low is None and high is None:
        return lead.strip() or "any number"
    if low is None and high is not None:
        return f"{lead}up to {show(field, high)}"
    if high is None and low is not None:
        return f"{lead}from {show(field, low)}"
    return f"{lead}{show(field, low or 0)}–{show(field, high or 0)}"
