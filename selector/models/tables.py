"""The data behind the reader: how configs spell attention, and what they leave unsaid.

``families.json`` is written by hand. A family says what a ``model_type`` does that its config does
not say; all of it is optional:

========================  ========================================================================
``attention``             ``decoder`` (default), ``encoder``, or ``none``
``mla``                   ``false``: the latent is expanded before attention
``sink``, ``alibi``       a :class:`Switch`
``mm_prefix``             a :class:`Switch` read from the language model's config: attention is
                          bidirectional over image tokens
``kv_heads``              rules tried in order, see :class:`KvRule`
``words``                 layer type → kind, where it differs from the common meaning
``counts``                key of the layer count → attention layers in one layer counted
``kinds``                 kind of layer → quantity → keys to try first for that kind
``spellings``             quantity → keys to try first
``bidirectional``         the key that turns the causal mask off
``windows``               ``all or none``: a window counts only when every layer has it
``cross_every``           the key that says after how many layers a cross-attention follows
``crossed``               a cross-attention follows in every layer, though the config is silent
``assume``                class defaults beside those of ``defaults.json``
``draft_kind``            the kind of layer that its drafters are, when it is not the plain one
``refuse``                why the reader does not describe it
``like``, ``defaults``    the family, and the class defaults, of another ``model_type``
``source``                where this was read
========================  ========================================================================

``defaults.json`` holds the constants of configuration classes, and says which library they are of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Cycle", "Family", "KvRule", "PatternRule", "Spelling", "Switch", "Tables", "tables"]


class Spelling(NamedTuple):
    """The keys a quantity can have, in order, and its bounds."""

    keys: tuple[str, ...]
    most: int
    least: int = 1


class Switch(NamedTuple):
    """Whether a model has a feature: ``always``, or by what a key of its config holds.

    Attributes:
        key: on when this key is true, or is one of ``is_``, or none of ``is_not``.
        default: the answer when the key is missing.
        kinds: the only kinds of layer that have it; empty for all.
    """

    always: bool = False
    key: str = ""
    default: bool = False
    is_: tuple[object, ...] = ()
    is_not: tuple[object, ...] = ()
    kinds: tuple[str, ...] = ()

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Switch:
        """A switch as ``families.json`` writes it."""
        return cls(
            always=raw.get("always", False),
            key=raw.get("key", ""),
            default=raw.get("default", False),
            is_=tuple(raw.get("is", ())),
            is_not=tuple(raw.get("is_not", ())),
            kinds=tuple(raw.get("kinds", ())),
        )


class KvRule(NamedTuple):
    """If the key ``when`` is true (or empty): ``number`` KV heads, else what ``key`` holds.

    With neither, there are as many KV heads as query heads.
    """

    when: str
    key: str
    number: int | None


class PatternRule(NamedTuple):
    """A key that says layer by layer what a model has; ``patterns`` describes the rules."""

    rule: str
    key: str
    at: str
    other: str
    letters: Mapping[str, str]
    offset: str
    first: int
    cycle: bool
    sets_count: bool
    needs: str
    unless_false: str
    only: tuple[str, ...]

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> PatternRule:
        """A rule as ``families.json`` writes it."""
        return cls(
            rule=raw["rule"],
            key=raw["key"],
            at=raw.get("at", ""),
            other=raw.get("else", ""),
            letters=raw.get("letters", {}),
            offset=raw.get("offset", ""),
            first=int(raw.get("first", 0)),
            cycle=raw.get("cycle", False),
            sets_count=raw.get("sets_count", False),
            needs=raw.get("needs", ""),
            unless_false=raw.get("unless_false", ""),
            only=tuple(raw.get("only", ())),
        )


class Cycle(NamedTuple):
    """Layer types that repeat; ``last`` is what the last layer always is, if anything."""

    words: tuple[str, ...]
    last: str


class Family(NamedTuple):
    """What a ``model_type`` does that its config does not say; see the module's docstring."""

    attention: str = "decoder"
    mla: bool = True
    sink: Switch | None = None
    alibi: Switch | None = None
    kv_heads: tuple[KvRule, ...] = ()
    kinds: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None
    spellings: Mapping[str, tuple[str, ...]] | None = None
    words: Mapping[str, str] | None = None
    counts: Mapping[str, int] | None = None
    bidirectional: str = ""
    cross_every: str = ""
    crossed: bool = False
    assume: Mapping[str, object] | None = None
    windows: str = ""
    mm_prefix: Switch | None = None
    draft_kind: str = ""
    refuse: str = ""
    source: str = ""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Family:
        """A family as ``families.json`` writes it."""
        switches = ("sink", "alibi", "mm_prefix")
        plain = set(cls._fields) - {*switches, "kv_heads", "kinds", "spellings"}
        given: dict[str, Any] = {key: raw[key] for key in plain if key in raw}
        for key in switches:
            if key in raw:
                given[key] = Switch.of(raw[key])
        given["kv_heads"] = tuple(
            KvRule(rule.get("if", ""), rule.get("key", ""), rule.get("count"))
            for rule in raw.get("kv_heads", ())
        )
        given["spellings"] = _keys(raw.get("spellings", {}))
        given["kinds"] = {kind: _keys(keys) for kind, keys in raw.get("kinds", {}).items()}
        return cls(**given)


class Tables(NamedTuple):
    """Both tables, ready to use."""

    spellings: Mapping[str, Spelling]
    roles: Mapping[str, Mapping[str, tuple[str, ...]]]
    kinds: Mapping[str, Mapping[str, tuple[str, ...]]]
    per_layer: Mapping[str, tuple[str, ...]]
    bidirectional: frozenset[str]
    encoder_endings: tuple[str, ...]
    nesting: tuple[str, ...]
    encoders: tuple[str, ...]
    decoders: tuple[str, ...]
    towers: Mapping[str, str]
    drafters: tuple[str, ...]
    dtypes: tuple[str, ...]
    quantisations: tuple[str, ...]
    kv_algorithms: Mapping[str, str]
    words: Mapping[str, str]
    patterns: tuple[PatternRule, ...]
    families: Mapping[str, Mapping[str, Any]]
    default_fields: Mapping[str, Mapping[str, object]]
    default_layers: Mapping[str, Mapping[str, Any]]
    nested: Mapping[str, Mapping[str, str]]
    encoder_types: frozenset[str]
    defaults_source: str

    def family(self, model_type: str) -> Family:
        """The family of a ``model_type``: plain if it has none, causal unless its class is not."""
        raw = self.families.get(model_type)
        if raw is None:
            encodes = model_type in self.encoder_types or model_type.endswith(self.encoder_endings)
            return Family(attention="encoder" if encodes else "decoder")
        return self.family(raw["like"]) if "like" in raw else Family.of(raw)

    def defaults(self, model_type: str) -> Mapping[str, object]:
        """The class defaults of a ``model_type``: key → value; empty when none are known."""
        raw = self.families.get(model_type, {})
        found = self.default_fields.get(raw.get("defaults", model_type), {})
        return {**found, **raw["assume"]} if "assume" in raw else found

    def cycle(self, model_type: str) -> Cycle | None:
        """The layer types a ``model_type`` repeats when its config names none."""
        raw = self.default_layers.get(model_type)
        return None if raw is None else Cycle(tuple(raw["cycle"]), raw.get("last", ""))

    def knows(self, model_type: str) -> bool:
        """Whether a ``model_type`` is in either table."""
        return model_type in self.families or model_type in self.default_fields


def _keys(raw: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
    return {name: tuple(keys) for name, keys in raw.items()}


@cache
def tables() -> Tables:
    """Both tables, read once from the package's own data."""
    here = Path(__file__).parent
    raw = json.loads((here / "families.json").read_text("utf-8"))
    classes = json.loads((here / "defaults.json").read_text("utf-8"))
    lists = (
        "nesting",
        "encoder_endings",
        "encoders",
        "decoders",
        "drafters",
        "dtypes",
        "quantisations",
    )
    return Tables(
        spellings={
            name: Spelling(tuple(one["keys"]), one["most"], one.get("least", 1))
            for name, one in raw["spellings"].items()
        },
        roles={role: _keys(keys) for role, keys in raw["roles"].items()},
        kinds={kind: _keys(keys) for kind, keys in raw["kinds"].items()},
        per_layer=_keys(raw["per_layer"]),
        bidirectional=frozenset(raw["bidirectional"]["architectures"]),
        kv_algorithms=raw["kv_algorithms"],
        words={word: kind for kind, words in raw["words"].items() for word in words},
        patterns=tuple(PatternRule.of(rule) for rule in raw["layers"]),
        families=raw["families"],
        default_fields=classes["fields"],
        default_layers=classes["layers"],
        nested=classes["nested"],
        encoder_types=frozenset(classes["encoders"]),
        towers=raw["towers"],
        defaults_source=classes["source"],
        **{name: tuple(raw[name]) for name in lists},
    )
