"""Names → adapters. A manifest may name an adapter; only what is listed or trusted is imported.

Loading, linting, resolving and serving never come here. Asking for an adapter imports its module,
so a name out of a document must not decide what is imported: :func:`get_adapter` looks in a closed
list, and :func:`load_adapter` accepts a path only inside :data:`TRUSTED`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from backends.contract import Adapter
from selector.errors import AttnselError, UnknownBackendError
from selector.manifest import Entry

__all__ = [
    "ADAPTERS",
    "TRUSTED",
    "MissingAdapterError",
    "UntrustedAdapterError",
    "adapter_path",
    "get_adapter",
    "load_adapter",
]

TRUSTED = "backends."
"""The one package whose modules are imported on a manifest's word."""

ADAPTERS: Mapping[str, str] = MappingProxyType(
    {
        "torch_sdpa_math": "backends.torch_sdpa:math",
        "torch_sdpa_flash": "backends.torch_sdpa:flash",
        "torch_sdpa_efficient": "backends.torch_sdpa:efficient",
        "torch_sdpa_cudnn": "backends.torch_sdpa:cudnn",
        "flashinfer_fa2": "backends.flashinfer:fa2",
        "flashinfer_cuda_cores": "backends.flashinfer:cuda_cores",
        "flashinfer_fa3": "backends.flashinfer:fa3",
        "flashinfer_attention_sink": "backends.flashinfer:attention_sink",
        "flashinfer_xqa": "backends.flashinfer:xqa",
        "flashinfer_cudnn": "backends.flashinfer:cudnn",
        "flashinfer_cutlass": "backends.flashinfer:cutlass",
        "flashinfer_trtllm_gen": "backends.flashinfer:trtllm_gen",
        "flashinfer_mla_fa2": "backends.flashinfer:mla_fa2",
        "flashinfer_mla_fa3": "backends.flashinfer:mla_fa3",
        "flashinfer_mla_cutlass": "backends.flashinfer:mla_cutlass",
        "flashinfer_mla_trtllm_gen": "backends.flashinfer:mla_trtllm_gen",
        "flashinfer_sparse_mla_sm90": "backends.flashinfer:sparse_mla_sm90",
        "flashinfer_sparse_mla_trtllm_gen": "backends.flashinfer:sparse_mla_trtllm_gen",
        "flashinfer_sparse_mla_sm120": "backends.flashinfer:sparse_mla_sm120",
    }
)
"""Backend name → ``module:attribute``, for every backend that runs."""

_WORD = "[a-z][a-z0-9_]*"
_PATH = re.compile(rf"{re.escape(TRUSTED)}{_WORD}(?:\.{_WORD})*:{_WORD}")


class UntrustedAdapterError(AttnselError, ValueError):
    """An import path does not name an adapter of a trusted package. Nothing was imported."""

    code = "UNTRUSTED_ADAPTER"


class MissingAdapterError(AttnselError, LookupError):
    """An import path inside the trusted package leads to no adapter."""

    code = "MISSING_ADAPTER"


def adapter_path(entry: Entry) -> str | None:
    """Where the adapter of a manifest's entry is imported from; ``None``: no adapter runs it."""
    return entry.adapter or ADAPTERS.get(entry.name)


def get_adapter(name: str) -> Adapter:
    """The adapter of a backend.

    Raises:
        UnknownBackendError: no adapter has that name.
    """
    try:
        path = ADAPTERS[name]
    except KeyError:
        known = ", ".join(ADAPTERS)
        raise UnknownBackendError(
            f"no adapter runs {name[:60]!r}; those that run: {known}"
        ) from None
    return load_adapter(path)


def load_adapter(path: str) -> Adapter:
    """The adapter at an import path such as ``backends.torch_sdpa:flash``.

    Raises:
        UntrustedAdapterError: the path leads outside :data:`TRUSTED`.
        MissingAdapterError: no adapter is there.
    """
    if not _PATH.fullmatch(path):
        raise UntrustedAdapterError(
            f"adapter {path[:80]!r} is not imported: only {TRUSTED}<module>:<name> is trusted"
        )
    module_name, attribute = path.split(":")
    try:
        adapter = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise MissingAdapterError(f"adapter {path[:80]!r} is not there: {error}") from error
    if isinstance(adapter, type) or not isinstance(adapter, Adapter):
        raise MissingAdapterError(f"{path[:80]!r} is not an adapter")
    return adapter
