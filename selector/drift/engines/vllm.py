"""vLLM: the registry of attention backends, their implementations and builders, MLA prefill."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

from selector.drift.attributes import class_attribute, enum_member
from selector.drift.constructors import read_constructors
from selector.drift.evaluating import (
    Probe,
    Worlds,
    ask,
    make_worlds,
    position,
    read_attribute,
    read_class,
)
from selector.drift.hierarchy import is_enum
from selector.drift.methods import read_methods
from selector.drift.modules import Modules
from selector.drift.reading import Backend, ClassReading, EngineReading, Vocabulary
from selector.drift.terms import (
    ClassTerm,
    EnumMember,
    External,
    Instance,
    Place,
    RaisedError,
    Unknown,
)
from selector.drift.unread import read_unread
from selector.drift.world import Frame, World
from selector.values import Finding, Severity

__all__ = ["READER", "Vllm"]

REGISTRY = "vllm.v1.attention.backends.registry.AttentionBackendEnum"
PREFILL_REGISTRY = "vllm.v1.attention.backends.mla.prefill.registry.MLAPrefillBackendEnum"
PLATFORM = "vllm.platforms.current_platform"
CUDA = "vllm.platforms.cuda.CudaPlatformBase"
CAPABILITY = "vllm.platforms.interface.DeviceCapability"
DIMENSIONS = "vllm.v1.attention.backends.mla.prefill.base.MLADimensions"

FOREIGN = frozenset(f"vllm.platforms.{name}" for name in ("cpu", "rocm", "tpu", "xpu"))
"""Modules that ask another platform's driver when they are imported."""

HEAD_SIZES = (
    1, 7, *range(8, 121, 8), 33, 100, 127, 128, 136, 144, 160, 176, 192, 200, 224, 240, 248, 256,
    264, 288, 320, 384, 448, 512, 513, 520, 576, 640, 768, 1024,
)  # fmt: skip
BLOCK_SIZES = (
    None, 1, 8, 16, 24, 32, 48, 64, 80, 96, 100, 112, 128, 144, 192, 256, 384, 512, 1024, 2048,
)  # fmt: skip
KV_CACHE_DTYPES = (
    "auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla",
    "nvfp4_ds_mla", "turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc",
    "turboquant_3bit_nc", "octave_k3v4", "octave_k3v3", "octave_k3v3_compact", "ultraquant_4bit",
    "int4_per_token_head", "int8_per_token_head", "fp8_per_token_head", "nvfp4", "nvfp4_4over6",
)  # fmt: skip
ATTENTION_TYPES = ("decoder", "encoder", "encoder_only", "encoder_decoder")
HEADS, KV_HEADS = (1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128), (1, 2, 4, 8, 16)
MLA_DIMENSIONS = (
    (64, 64, 128), (128, 64, 128), (192, 64, 256), (256, 0, 256), (64, 32, 64), (128, 64, 192),
)  # fmt: skip

VOCABULARY = Vocabulary(
    kinds={"mla": "is_mla", "sparse": "is_sparse"},
    values={
        "head_size": "supports_head_size",
        "dtype": "supports_dtype",
        "kv_cache_dtype": "supports_kv_cache_dtype",
        "block_size": "supports_block_size",
        "attn_type": "supports_attn_type",
    },
    lists={
        "head_size": "get_supported_head_sizes",
        "dtype": "supported_dtypes",
        "kv_cache_dtype": "supported_kv_cache_dtypes",
        "block_size": "get_supported_kernel_block_sizes",
    },
    features={
        "sink": ("supports_sink", True),
        "sliding_window": ("supports_sliding_window", 128),
        "mm_prefix": ("supports_mm_prefix", True),
        "per_head_quant_scales": ("supports_per_head_quant_scales", True),
        "rswa": ("supports_rswa", True),
        "non_causal": ("supports_non_causal", True),
        "non_causal_dcp": ("supports_non_causal_dcp", True),
        "batch_invariant": ("supports_batch_invariance", True),
        "kv_connector": ("supports_kv_connector", True),
        "pcp": ("supports_pcp", True),
        "dcp": ("supports_dcp", True),
        "adaptive_verification": ("supports_device_cpu_query_lens_mismatch", True),
    },
    combinations={
        "supports_combination": (
            *("head_size", "dtype", "kv_cache_dtype", "block_size"),
            *("mla", "sink", "sparse", "mm_prefix"),
        ),
        "supports_mla_dimensions": ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    },
    capability="supports_compute_capability",
    arguments={
        "kv_cache_dtype": ("kv_cache_dtype", None),
        "attn_type": ("attn_type", None),
        "head_size": ("head_size", None),
        "num_heads": ("num_heads", None),
        "num_kv_heads": ("num_kv_heads", None),
        "sinks": ("sink", True),
        "alibi_slopes": ("alibi", True),
        "logits_soft_cap": ("soft_cap", True),
        "sliding_window": ("sliding_window", 128),
    },
    threshold="reorder_batch_threshold",
    dense_prefill="supports_dense_mha_prefill",
    dense_method="forward_mha",
    prefill_suffix="_MLA_PREFILL",
    foreign=("rocm", "amd", "xpu", "cpu", "amx", "tpu", "npu"),
)

WORK = ("forward", "forward_mha", "forward_mqa")
"""The methods of an implementation that compute a path; ``forward_mha`` is the dense prefill."""

_WANTED = re.compile(
    r"^(supports_|supported_|get_supported_|get_preferred_|is_|accept_|forward_includes_"
    r"|get_name$|get_impl_cls$|get_builder_cls$|customize_spec$|validate_configuration$)"
)
_WANTED_IMPL = re.compile(
    r"^(supports_|is_|can_|need_|needs_|requires?_|lse_|group_|query_len_support$"
    r"|reorder_batch_threshold$|_cudagraph_support$)"
)


def _same(value: Any) -> tuple[Any, Callable[[World], Any]]:
    return value, lambda world: value


def _tensor(world: World) -> Any:
    """Something that is not ``None``, of which nothing else is known."""
    cls = world.by_path(CAPABILITY, Place("", 1, 1))
    if not isinstance(cls, ClassTerm):
        return cls
    return Instance(cls, {}, supposed={"": lambda world: None})


def _dtype(name: str) -> tuple[Any, Callable[[World], Any]]:
    return f"torch.{name}", lambda world: External(f"torch.{name}", Place("", 1, 1))


def _capability(world: World, major: int, minor: int) -> Any:
    cls = world.by_path(CAPABILITY, Place("", 1, 1))
    world.used_capability = True
    if not isinstance(cls, ClassTerm):
        return cls
    return Instance(cls, {"major": major, "minor": minor}, is_tuple=True)


def _dimensions(sizes: tuple[int, int, int]) -> tuple[Any, Callable[[World], Any]]:
    def make(world: World) -> Any:
        cls = world.by_path(DIMENSIONS, Place("", 1, 1))
        if not isinstance(cls, ClassTerm):
            return cls
        names = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        return Instance(cls, dict(zip(names, sizes, strict=True)), is_tuple=True)

    return sizes, make


def _probes() -> dict[str, Probe]:
    dtypes = tuple(_dtype(name) for name in ("float16", "bfloat16", "float32"))
    kinds = tuple(_same(value) for value in (None, *KV_CACHE_DTYPES))
    return {
        "supports_head_size": Probe(tuple(_same(value) for value in HEAD_SIZES)),
        "supports_block_size": Probe(tuple(_same(value) for value in BLOCK_SIZES)),
        "supports_kv_cache_dtype": Probe(kinds),
        "supports_dtype": Probe(dtypes),
        "supports_attn_type": Probe(tuple(_same(value) for value in ATTENTION_TYPES)),
        "supports_mla_dimensions": Probe(tuple(_dimensions(sizes) for sizes in MLA_DIMENSIONS)),
        "get_preferred_block_size": Probe(
            tuple(_same(value) for value in (16, 32, 64, 128)), maps=True
        ),
        "supports_compute_capability": Probe(
            ((None, lambda world: world.supposed[CAPABILITY_HERE](world)),), by_capability=True
        ),
    }


COMBINATION = "supports_combination"
ARGUMENTS = (
    *("head_size", "dtype", "kv_cache_dtype", "block_size"),
    *("use_mla", "has_sink", "use_sparse", "use_mm_prefix"),
)
"""Of ``supports_combination``, in the order of the fields that they are."""
SHOWN_HEADS, SHOWN_PAGES = (64, 128, 192, 256, 512, 576), (16, 32, 64, 128, 256)


def _combinations(cls: ClassReading) -> Probe:
    """What a class takes alone, put together: two arguments at a time move from their first.

    One of the two is the head size or the cache; asking all of them would take minutes.
    """
    heads, pages = _taken(cls, "supports_head_size"), _taken(cls, "supports_block_size")
    axes = (
        [one for one in heads if one in SHOWN_HEADS] or heads[:4],
        _taken(cls, "supports_dtype"),
        _taken(cls, "supports_kv_cache_dtype"),
        [one for one in pages if one in SHOWN_PAGES] or pages[:4],
        [_says(cls, "is_mla")],
        [False, True] if _says(cls, "supports_sink", True) else [False],
        [_says(cls, "is_sparse")],
        [False, True] if _says(cls, "supports_mm_prefix", True) else [False],
    )
    first = tuple(axis[0] if axis else None for axis in axes)
    found = {first: None}
    for one, other in combinations(range(len(axes)), 2):
        if {one, other} & {0, 2}:
            for left, right in product(axes[one], axes[other]):
                moved = (*first[:one], left, *first[one + 1 :])
                found[*moved[:other], right, *moved[other + 1 :]] = None
    return Probe(tuple((one, _together(one)) for one in found), together=True)


def _together(values: tuple[Any, ...]) -> Callable[[World], Any]:
    named = {
        name: _dtype(value.removeprefix("torch.")) if name == "dtype" and value else _same(value)
        for name, value in zip(ARGUMENTS, values, strict=True)
    }
    makers = {name: make for name, (_, make) in named.items()}
    makers["device_capability"] = lambda world: world.supposed[CAPABILITY_HERE](world)
    return lambda world: makers


def _taken(cls: ClassReading, method: str) -> list[Any]:
    """The values that a class may take on any architecture, but for none at all."""
    attribute = cls.attributes.get(method)
    answers = attribute.answers().values() if attribute is not None else ()
    may = [one for answer in answers for one in (*(answer.value or ()), *answer.undecided)]
    return [one for one in (attribute.asked if attribute else ()) if one is not None and one in may]


def _says(cls: ClassReading, name: str, default: bool = False) -> bool:
    """What a class says of a feature on all architectures; where that is not one thing, so."""
    attribute = cls.attributes.get(name)
    said = {answer.value for answer in attribute.answers().values()} if attribute else set()
    only = said.pop() if len(said) == 1 else None
    return only if isinstance(only, bool) else default


BACKENDS = 250
"""No more backends of one registry are read; vLLM 0.33.0 has 44."""
CAPABILITY_HERE = "the compute capability"
PROBES = _probes()
CONSTRUCTOR_PROBES = {
    name: Probe(tuple(_same(value) for value in values))
    for name, values in {
        "kv_cache_dtype": KV_CACHE_DTYPES,
        "attn_type": ATTENTION_TYPES,
        "head_size": (32, 64, 80, 96, 128, 192, 256, 512, 576),
        "num_heads": HEADS,
        "num_kv_heads": KV_HEADS,
        "alibi_slopes": (None, [1.0]),
        "sliding_window": (None, 128),
        "logits_soft_cap": (None, 30.0),
    }.items()
} | {"sinks": Probe((_same(None), ([1.0], _tensor)))}


def _suppose(capability: str) -> Mapping[str, Callable[[World], Any]]:
    """A CUDA platform with this compute capability; nothing else is supposed."""
    major, _, minor = capability.partition(".")

    def here(world: World) -> Any:
        return _capability(world, int(major), int(minor))

    def platform(world: World) -> Any:
        cls = world.by_path(CUDA, Place("", 1, 1))
        if not isinstance(cls, ClassTerm):
            return cls
        return Instance(cls, {}, supposed={"get_device_capability": here})

    paths = (PLATFORM, "vllm.platforms.interface.current_platform")
    return {CAPABILITY_HERE: here, **dict.fromkeys(paths, platform)}


class Vllm:
    """The reader of vLLM."""

    name = "vllm"
    package = "vllm"

    def read(self, modules: Modules, capabilities: Sequence[str]) -> EngineReading:
        """What the registries say, and the classes that they name."""
        worlds = make_worlds(modules, capabilities, _suppose, FOREIGN)
        backends = _read_registry(worlds, modules, REGISTRY, with_impl=True)
        prefill = _read_registry(worlds, modules, PREFILL_REGISTRY, with_impl=False)
        return EngineReading(
            self.name,
            modules.source.version,
            modules.source.label,
            "cuda",
            tuple(capabilities),
            backends,
            prefill,
            modules.count,
            tuple(sorted(modules.findings)),
            VOCABULARY,
        )


READER = Vllm()


def _read_registry(
    worlds: Worlds, modules: Modules, path: str, *, with_impl: bool
) -> tuple[Backend, ...]:
    world = worlds.first
    registry = ask(world, lambda frame: world.by_path(path, Place("", 1, 1)))
    if not isinstance(registry, ClassTerm):
        modules.report_missing(path, "backends")
        return ()
    found = []
    names = list(registry.scope.names)
    if len(names) > BACKENDS:
        why = f"{registry.path} has {len(names):,} names; {BACKENDS:,} are read"
        modules.findings.append(Finding(registry.place.path, 1, 1, "DRF103", Severity.ERROR, why))
    for name in names[:BACKENDS]:

        def question(frame: Frame, name: str = name) -> Any:
            return _registered(world, registry, name)

        member = ask(world, question)
        if isinstance(member, EnumMember):
            found.append(_read_backend(worlds, member, with_impl))
    return tuple(found)


def _registered(world: World, registry: ClassTerm, name: str) -> Any:
    return enum_member(world, registry, name) if is_enum(world, registry) else None


def _read_backend(worlds: Worlds, member: EnumMember, with_impl: bool) -> Backend:
    binding = member.cls.scope.names[member.name][-1]
    at = position(Place.of(member.cls.module, binding.node))
    path = member.value
    if not isinstance(path, str) or not path:
        return Backend(member.name, at, "", problem="registers no class")

    def locate(world: World) -> Any:
        return world.by_path(path, Place("", 1, 1))

    cls = ask(worlds.first, lambda frame: locate(worlds.first))
    if not isinstance(cls, ClassTerm):
        return Backend(member.name, at, path, problem=_problem(cls))
    reading = read_class(worlds, locate, _WANTED, PROBES)
    if COMBINATION in reading.attributes:
        together = read_attribute(worlds, locate, COMBINATION, _combinations(reading))
        if together is not None:
            reading.attributes[COMBINATION] = together
    if not with_impl:
        return Backend(member.name, at, path, reading)
    impl, impl_problem = _read_part(worlds, locate, "get_impl_cls")
    builder, builder_problem = _read_part(worlds, locate, "get_builder_cls")
    return Backend(member.name, at, path, reading, impl, builder, "", impl_problem, builder_problem)


def _problem(value: Any) -> str:
    if isinstance(value, RaisedError):
        return f"raises {value.name}: {value.message}"
    if isinstance(value, Unknown):
        return f"{value.place.path}:{value.place.line}: {value.text} {value.why}"
    return "is no class"


def _read_part(
    worlds: Worlds, locate: Callable[[World], Any], method: str
) -> tuple[ClassReading | None, str]:
    """The class that a backend names by a method, or why it is not known."""

    def part(world: World) -> Any:
        def question(frame: Frame) -> Any:
            function = class_attribute(world, locate(world), method, frame.module.tree, frame)
            return world.call(function, [], {}, (frame, frame.module.tree))

        return ask(world, question)

    found = part(worlds.first)
    if not isinstance(found, ClassTerm):
        return None, _problem(found)
    if worlds.first.used_capability:
        others = {getattr(part(world), "path", "") for world in worlds.by_capability.values()}
        if others != {found.path}:
            return None, f"{method} names another class on another architecture"
    reading = read_class(worlds, part, _WANTED_IMPL, PROBES)
    assigned, guards = read_constructors(worlds, part, _WANTED_IMPL, CONSTRUCTOR_PROBES)
    return ClassReading(
        reading.path, reading.at, reading.mro, reading.attributes, assigned, guards,
        read_methods(worlds, found, WORK), read_unread(worlds, found, [*VOCABULARY.arguments]),
    ), ""  # fmt: skip
