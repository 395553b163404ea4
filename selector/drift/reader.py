"""Which engines can be read, and reading one from a wheel or folder."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from selector.drift import engines
from selector.drift.modules import Modules
from selector.drift.reading import EngineReading, Reader
from selector.drift.sources import open_source
from selector.errors import AttnselError
from selector.fields import one_line

__all__ = ["UnknownEngineError", "engine_names", "find_reader", "read_engine"]


class UnknownEngineError(AttnselError, LookupError):
    """No reader knows this engine's code."""

    code = "UNKNOWN_ENGINE"


def engine_names() -> tuple[str, ...]:
    """The engines that can be read."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(engines.__path__)))


def find_reader(name: str) -> Reader:
    """The reader of an engine.

    Raises:
        UnknownEngineError: there is none.
    """
    if name not in engine_names():
        known = ", ".join(engine_names())
        raise UnknownEngineError(
            f'no reader knows the code of "{one_line(name)}"; --engine takes {known}'
        )
    reader: Reader = import_module(f"{engines.__name__}.{name}").READER
    return reader


def read_engine(name: str, source: str | Path, capabilities: Sequence[str]) -> EngineReading:
    """What an engine's code says on these architectures.

    Args:
        name: of the engine.
        source: a wheel, the package's folder, or one that holds it.
        capabilities: compute capabilities, ``"major.minor"``.

    Raises:
        UnknownEngineError: no reader knows the engine.
        SourceError: the source cannot be read at all.
    """
    reader = find_reader(name)
    return reader.read(Modules(open_source(source, reader.package)), capabilities)
