"""The FlashInfer that is installed: finding it, its workspaces, its refusals, its versions.

Nothing else here knows how releases differ. Only names that FlashInfer documents are used.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any

from backends.contract import Batch, RefusedError, UncompilableError

if TYPE_CHECKING:
    import torch

__all__ = ["asking", "find", "open_device", "plan_mla", "recall", "require", "run_mla", "workspace"]

WORKSPACE_BYTES = 512 << 20
"""FlashInfer recommends 128 MiB; split prefills of many wide heads need more."""


def find(who: str, path: str) -> Any:
    """A public name of FlashInfer, such as ``flashinfer.mla:BatchMLAPagedAttentionWrapper``.

    Raises:
        RefusedError: FlashInfer is not installed, or this release has no such name.
    """
    module_name, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        if error.name == "flashinfer":
            raise RefusedError(
                f"{who}: flashinfer-python is not installed: pip install attnsel[flashinfer]"
            ) from error
        raise RefusedError(f"{who}: {path} needs the module {error.name}") from error
    except AttributeError as error:
        version = getattr(import_module("flashinfer"), "__version__", "of unknown version")
        raise RefusedError(f"{who}: flashinfer-python {version} has no {path}") from error


def require(who: str, module: str, distribution: str) -> None:
    """Checks that a module can be imported, without importing it.

    Raises:
        RefusedError: it is not installed.
    """
    if find_spec(module) is None:
        raise RefusedError(f"{who}: {distribution} is not installed: pip install {distribution}")


def open_device(who: str, name: str) -> torch.device:
    """The device of that name, with its index.

    Raises:
        RefusedError: there is no such CUDA device.
    """
    import torch

    try:
        device = torch.empty(0, device=name).device
    except (AssertionError, RuntimeError) as error:  # torch raises either for a missing device
        raise RefusedError(f"{who}: no device {name}: {_first_line(error)}") from error
    if device.type != "cuda":
        raise RefusedError(f"{who}: FlashInfer runs on CUDA devices only, not on {name}")
    return device


_workspaces: dict[tuple[object, bool], torch.Tensor] = {}
_lock = Lock()


def workspace(device: torch.device, zeroed: bool = False) -> torch.Tensor:
    """Scratch memory, allocated once for each device and shared by all plans on it.

    Runs on one device follow one another on its stream, and no result outlives a run in here.

    Args:
        device: where.
        zeroed: the memory that starts as zeros, for kernels that keep semaphores in it and leave
            them zero; other kernels never see it.
    """
    import torch

    with _lock:
        if (device, zeroed) not in _workspaces:
            make = torch.zeros if zeroed else torch.empty
            _workspaces[device, zeroed] = make(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        return _workspaces[device, zeroed]


_uncompilable: dict[tuple[str, Batch], str] = {}


def recall(who: str, kernel: Batch) -> None:
    """Repeats what a compiler said to a kernel before: asking it costs as long as a build.

    Raises:
        UncompilableError: the kernel does not compile.
    """
    if (who, kernel) in _uncompilable:
        raise UncompilableError(_uncompilable[who, kernel])


@contextmanager
def asking(who: str, kernel: Batch) -> Iterator[None]:
    """Within this, FlashInfer's refusals become :class:`RefusedError`; faults pass through.

    Args:
        who: the backend.
        kernel: what may be compiled within; a compiler's refusal is remembered for it.
    """
    try:
        yield
    except RefusedError:
        raise
    except (ValueError, NotImplementedError, AssertionError, KeyError) as error:
        raise RefusedError(f"{who}: {_words(error)}") from error
    except FileNotFoundError as error:
        if error.filename not in ("ninja", "nvcc"):
            raise
        raise RefusedError(f"{who}: {error.filename} is not installed") from error
    except (RuntimeError, ImportError) as error:
        said = str(error)
        if _NO_COMPILER.search(said):
            raise RefusedError(
                f"{who}: nvcc is not installed; FlashInfer compiles with it"
            ) from error
        if "Ninja build failed" in said and not _STARVED.search(said):
            _uncompilable[who, kernel] = f"{who}: does not compile: {_compiler_words(said)}"
            raise UncompilableError(_uncompilable[who, kernel]) from error
        if _FAULT.search(said) or not _REFUSAL.search(said):
            raise
        raise RefusedError(f"{who}: {_words(error)}") from error


_NO_COMPILER = re.compile(r"could not find nvcc|nvcc: (not found|No such file)", re.I)
_FAULT = re.compile(
    r"out of memory|failed to allocate|illegal (memory|instruction)|misaligned address|"
    r"launch failure|unspecified|device-side assert|EXECUTION_FAILED",
    re.I,
)
_REFUSAL = re.compile(
    r"unsupported|not (yet )?(support|implement|available|installed)|(doesn't|does not) support|"
    r"support(s|ed)? only|only support|no (kernel|engine|valid|such)|"
    r"invalid (configuration|argument|value|dtype|head|page|group)|must |requires?\b|expect|"
    r"missing|cannot|No module named",
    re.I,
)
_STARVED = re.compile(r"No space left|Killed|Cannot allocate memory|Permission denied", re.I)


def _words(error: BaseException) -> str:
    """One line: what a refusal says, without the frames of C++ around it."""
    if isinstance(error, KeyError):
        return f"no kernel is built for {error.args[0] if error.args else error}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if _REFUSAL.search(line)]
    return (telling or lines or [type(error).__name__])[0][:300]


def _compiler_words(output: str) -> str:
    """The first line of a compiler's output that tells why."""
    lines = [line.strip() for line in output.splitlines()]
    for pattern in (r"static assertion failed", r"\berror\b|not found|fatal"):
        for line in lines:
            if re.search(pattern, line, re.I):
                return re.sub(r"^\S*/", "", line)[:300]
    return _first_line(output)


def _first_line(error: object) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


@cache
def _takes(function: Any, name: str) -> bool:
    """Whether a function has a parameter of that name."""
    return name in inspect.signature(function).parameters


def plan_mla(wrapper: Any, form: str, tensors: tuple[Any, ...], **words: Any) -> None:
    """``BatchMLAPagedAttentionWrapper.plan``.

    Args:
        wrapper: the wrapper.
        form: ``csr`` or ``dense``, what the tensors are (``MLAPlanMetadata``). Releases before 0.7
            take the first one by one, and plan nothing for the second.
        tensors: where queries and pages are.
        words: the rest.
    """
    if _takes(type(wrapper).plan, "metadata"):
        metadata = find("flashinfer", "flashinfer.mla:MLAPlanMetadata")
        wrapper.plan(metadata=getattr(metadata, form)(*tensors), **words)
    elif form == "csr":
        wrapper.plan(*tensors, **words)


def run_mla(
    wrapper: Any, q: torch.Tensor, pages: torch.Tensor, rank: int, **words: Any
) -> torch.Tensor:
    """``BatchMLAPagedAttentionWrapper.run`` on a packed query and cache.

    Args:
        wrapper: planned.
        q: ``[tokens, num_heads, head_size]``.
        pages: ``[num_pages, page_size, head_size]``.
        rank: how many of the elements are the latent; releases before 0.7 want both parts apart.
        words: scales of the cache.
    """
    if _takes(type(wrapper).run, "query"):
        out: torch.Tensor = wrapper.run(query=q, kv_cache=pages, **words)
    else:
        parts = q[..., :rank], q[..., rank:], pages[..., :rank], pages[..., rank:]
        out = wrapper.run(*parts, **words)
    return out
