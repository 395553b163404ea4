"""One level of a config: its own keys first, then the constants of its configuration class."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from selector.errors import ValueRefusedError
from selector.models.tables import Family, Spelling, Tables
from selector.values import Origin

__all__ = ["MISSING", "Read", "Source", "shown"]

T = TypeVar("T")

_REQUIRED = frozenset({"num_layers", "num_heads", "hidden_size"})
"""Quantities for which ``null`` means "left out"; for the others it means "there is none"."""


class _Missing:
    """The type of :data:`MISSING`."""


MISSING = _Missing()
"""Stands for a key that is not there, as ``None`` stands for ``null``."""


class Read(NamedTuple, Generic[T]):
    """A value, where it came from, and the keys it was read from (comma-separated)."""

    value: T
    origin: Origin
    keys: str = ""

    def derived(self) -> Read[T]:
        """The same value as the result of a rule over these keys."""
        return Read(self.value, Origin.DERIVED, self.keys)


def shown(raw: object) -> str:
    """A value on one short line, for messages: ``"abc"``, ``null``, ``[1, 2, …``."""
    if isinstance(raw, str):
        raw = raw[:60]
    elif isinstance(raw, list | tuple):
        return f"a list of {len(raw)}"
    elif isinstance(raw, Mapping):
        return f"an object of {len(raw)}"
    elif isinstance(raw, int) and abs(raw) > 10**18:
        return "a number of more than 18 digits"
    try:
        text = json.dumps(raw, ensure_ascii=False)
    except (TypeError, ValueError):
        text = type(raw).__name__
    return "".join(c if c.isprintable() else "?" for c in text)


class Source:
    """The keys of one level of a config, and the class defaults that stand behind them.

    Args:
        file: the name errors begin with.
        given: this level of the config.
        tables: how things are spelled.
        family: what the model type does that its config does not say.
        defaults: the constants of its configuration class.
        prefix: the path of this level: ``"text_config."``, or ``""``.
        role: ``encoder``, ``decoder`` or ``cross`` inside an encoder-decoder model.
    """

    def __init__(
        self,
        file: str,
        given: Mapping[str, object],
        tables: Tables,
        *,
        model_type: str = "",
        family: Family | None = None,
        prefix: str = "",
        role: str = "",
    ) -> None:
        self.file = file
        self.given = given
        self.tables = tables
        self.model_type = model_type
        self.family = family or tables.family(model_type)
        self.defaults = tables.defaults(model_type)
        self.prefix = prefix
        self.assumed: dict[str, None] = {}
        """Keys that class defaults stood in for, in order."""
        self._first: dict[str, tuple[str, ...]] = dict(tables.roles.get(role, {}))
        for name, keys in (self.family.spellings or {}).items():
            self._first[name] = keys + self._first.get(name, ())

    def inside(self, key: str, nested: Mapping[str, object]) -> Source:
        """A config inside this one; its class is what the outer class says unless it says so."""
        own = nested.get("model_type")
        named = own[:80] if isinstance(own, str) else ""
        model_type = named or self.tables.nested.get(self.model_type, {}).get(key, "")
        prefix = f"{self.path(key)}."
        return Source(self.file, nested, self.tables, model_type=model_type, prefix=prefix)

    def as_role(self, role: str) -> Source:
        """The same level, read as one stack of an encoder-decoder model, or as a tower."""
        return self._with(self.tables.roles[role])

    def for_kind(self, kind: str) -> Source:
        """The same level, with the keys that are special to one kind of layer tried first."""
        common, own = self.tables.kinds.get(kind), (self.family.kinds or {}).get(kind)
        return self._with({**(common or {}), **(own or {})}) if common or own else self

    def _with(self, first: Mapping[str, tuple[str, ...]]) -> Source:
        other = object.__new__(Source)
        other.__dict__.update(self.__dict__)
        other._first = {**self._first}
        for name, keys in first.items():
            other._first[name] = keys + self._first.get(name, ())
        return other

    def spelling(self, name: str) -> Spelling:
        """The keys tried for a quantity, in order, and its bounds."""
        found = self.tables.spellings[name]
        first = self._first.get(name, ())
        return Spelling(first + found.keys, found.most, found.least) if first else found

    def path(self, key: str) -> str:
        """A key as errors and origins name it: from the top of the config."""
        return self.prefix + key

    def raw(self, key: str) -> object:
        """What the config holds under a key, which may be dotted; :data:`MISSING` if nothing."""
        return _look_up(self.given, key)

    def default(self, key: str) -> object:
        """What the configuration class holds under a key; :data:`MISSING` if nothing is known."""
        return self.defaults.get(key, MISSING)

    def either(self, key: str) -> tuple[object, Origin]:
        """What the config holds under a key, else the class default, and which of the two."""
        raw = self.raw(key)
        if raw is not MISSING:
            return raw, Origin.CONFIG
        return self.default(key), Origin.DEFAULT

    def flag(self, key: str) -> Read[bool] | None:
        """A yes or no; ``None`` when it is missing, null or something else."""
        raw, origin = self.either(key)
        return Read(raw, origin, self.path(key)) if isinstance(raw, bool) else None

    def integer(self, name: str) -> Read[int] | None:
        """A quantity, or ``None`` when the config says there is none, or says nothing.

        Raises:
            ValueRefusedError: it is no whole number within its bounds.
        """
        spelling = self.spelling(name)
        for raw, origin, key in self._values(name, spelling):
            return Read(self.whole(key, raw, spelling), origin, self.path(key))
        return None

    def number(self, name: str) -> Read[float] | None:
        """The same as :meth:`integer`, for a quantity that need not be whole."""
        spelling = self.spelling(name)
        for raw, origin, key in self._values(name, spelling):
            good = isinstance(raw, int | float) and not isinstance(raw, bool)
            if not good or not _within(raw, spelling):
                raise self._refuse(key, raw, "a number", spelling)
            return Read(float(raw), origin, self.path(key))  # type: ignore[arg-type]
        return None

    def _values(self, name: str, spelling: Spelling) -> Iterator[tuple[object, Origin, str]]:
        null = False
        for key in spelling.keys:
            raw = self.raw(key)
            null = null or raw is None
            if raw is not MISSING and raw is not None and not isinstance(raw, list):
                yield raw, Origin.CONFIG, key
        if null and name not in _REQUIRED:
            return
        for key in spelling.keys:
            raw = self.default(key)
            if raw is not MISSING and not isinstance(raw, list):
                self.assumed[key] = None
                yield raw, Origin.DEFAULT, key

    def listing(self, name: str, count: int) -> tuple[list[int], str] | None:
        """A quantity given as a list with one entry a layer, and its key.

        Raises:
            ValueRefusedError: an entry is refused, or there are fewer than ``count``.
        """
        spelling = self.spelling(name)
        for key in self.tables.per_layer.get(name, ()) + spelling.keys:
            raw = self.raw(key)
            if not isinstance(raw, list) or not raw:
                continue
            if len(raw) < count:
                raise ValueRefusedError(
                    f"{self.file}: {self.path(key)} is a list of {len(raw)}, "
                    f"but the model has {count} layers"
                )
            return [self.whole(key, one, spelling) for one in raw[:count]], self.path(key)
        return None

    def whole(self, key: str, raw: object, spelling: Spelling) -> int:
        """A whole number within its bounds.

        Raises:
            ValueRefusedError: it is not.
        """
        number = raw
        if isinstance(raw, float) and raw.is_integer():
            number = int(raw)
        if isinstance(number, bool) or not isinstance(number, int) or not _within(number, spelling):
            raise self._refuse(key, raw, "a whole number", spelling)
        return number

    def _refuse(self, key: str, raw: object, what: str, spelling: Spelling) -> ValueRefusedError:
        return ValueRefusedError(
            f"{self.file}: {self.path(key)} {shown(raw)} is not {what} "
            f"from {spelling.least} to {spelling.most:,}"
        )


def _within(number: object, spelling: Spelling) -> bool:
    if not isinstance(number, int | float) or (isinstance(number, float) and math.isnan(number)):
        return False
    return spelling.least <= number <= spelling.most


def _look_up(level: Mapping[str, object], key: str) -> object:
    found: object = level
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return MISSING
        found = found[part]
    return found
