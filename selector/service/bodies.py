"""Bodies of requests, read strictly: a field nobody knows is refused, not passed over."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from selector.fields import close_matches, one_line
from selector.service.problems import Problem
from selector.values import Device, Facts, Policy, Request

__all__ = [
    "Asks",
    "Lengths",
    "Logged",
    "Question",
    "Said",
    "Side",
    "Sides",
    "is_deeper",
    "read_body",
    "said_twice",
]

T = TypeVar("T")
Plain = str | int | float | bool | None


class Lengths(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lengths of a request, in tokens.

    Attributes:
        query_len: new tokens; null: unknown.
        seq_len: new plus cached tokens; null: unknown; left out: nothing is cached.
        speculative_tokens: draft tokens verified with each decode.
    """

    query_len: int | None = None
    seq_len: int | UnsetType | None = UNSET
    speculative_tokens: int = 0

    def request(self) -> Request:
        """The request that has them.

        Raises:
            ContradictionError: no request can.
        """
        seq_len = self.query_len if self.seq_len is UNSET else self.seq_len
        return Request(self.query_len, seq_len, self.speculative_tokens)


class _Device(msgspec.Struct, forbid_unknown_fields=True):
    platform: str
    capability: str | None = None
    product: str | None = None


class _Policy(msgspec.Struct, forbid_unknown_fields=True):
    deny: list[str] | dict[str, str] = msgspec.field(default_factory=list)
    backend: str | None = None
    prefill_backend: str | None = None
    decode_backend: str | None = None


class Said(msgspec.Struct, forbid_unknown_fields=True):
    """What a question says, but for the lengths of its request.

    Attributes:
        device: an architecture or a product (``sm120``, ``H200``), or platform and capability.
        layer: fields of the layer; with a model, those that differ from its own.
        model: a preset's name, or the object in a ``config.json``.
        facts: what is installed: versions, answers of probes, null for "not installed".
        policy: what to deny or force.
        as_claimed: answer with what engines claim, not with what is true.
        closed_world: take what is unknown not to be installed.
    """

    device: str | _Device
    layer: dict[str, Plain] = msgspec.field(default_factory=dict)
    model: str | dict[str, Any] | None = None
    facts: dict[str, str | bool | None] = msgspec.field(default_factory=dict)
    policy: _Policy = msgspec.field(default_factory=_Policy)
    as_claimed: bool = False
    closed_world: bool = False

    def device_meant(self) -> Device:
        """The device.

        Raises:
            UnknownDeviceError: there is no such architecture or product.
            ValueRefusedError: its capability is none.
        """
        from selector.devices import find_device

        if isinstance(self.device, str):
            return find_device(self.device)
        return Device(self.device.platform, self.device.capability, self.device.product)

    def facts_known(self) -> Facts:
        """The facts."""
        return Facts(self.facts)

    def policy_said(self) -> Policy:
        """The policy."""
        said = self.policy
        deny = said.deny
        reasons = deny if isinstance(deny, dict) else dict.fromkeys(deny, "denied by the request")
        return Policy(reasons, said.backend, said.prefill_backend, said.decode_backend)


class Question(Said, forbid_unknown_fields=True, kw_only=True):
    """The body of ``/v1/resolve`` and, without a log, of ``/v1/explain``.

    Attributes:
        manifest: the name of one that is served; the first when ``None``.
        request: the lengths.
    """

    manifest: str | None = None
    request: Lengths = Lengths()


class Logged(msgspec.Struct, forbid_unknown_fields=True):
    """The body of ``/v1/explain`` with an engine's log.

    Attributes:
        log: its text.
        manifest: the name of one that is served; the first when ``None``.
        device: where it ran, if the log does not say it.
        layer: fields that come before what the log says.
        facts: the same of software.
    """

    log: str
    manifest: str | None = None
    device: str | None = None
    layer: dict[str, Plain] = msgspec.field(default_factory=dict)
    facts: dict[str, str | bool | None] = msgspec.field(default_factory=dict)


class Asks(msgspec.Struct):
    """What tells the two bodies of ``/v1/explain`` apart, and who answers."""

    log: Any | UnsetType = UNSET
    manifest: str | None = None


class Side(msgspec.Struct, forbid_unknown_fields=True):
    """One side of a comparison: a manifest that is served, or a document.

    Attributes:
        name: of one that is served.
        document: the text of one.
        as_claimed: take what engines claim, not what is true.
    """

    name: str | UnsetType = UNSET
    document: str | UnsetType = UNSET
    as_claimed: bool = False

    def __post_init__(self) -> None:
        if (self.name is UNSET) == (self.document is UNSET):
            raise ValueError("a side has a name or a document, and not both")


class Sides(msgspec.Struct, forbid_unknown_fields=True):
    """The body of ``/v1/diff``.

    Attributes:
        old: what is compared with; a text is the name of one that is served.
        new: the other.
        limit: changes that are shown, and regions of each of them.
    """

    old: str | Side
    new: str | Side
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3

    @property
    def names(self) -> list[str]:
        """The manifests that are to be served, the old one first."""
        sides = (self.old, self.new)
        said = (one if isinstance(one, str) else one.name for one in sides)
        return [name for name in said if isinstance(name, str)]


def read_body(data: bytes, kind: type[T], depth: int) -> T:
    """A JSON body as a value of its kind.

    Raises:
        Problem: it is no JSON, is nested too deeply, says something twice, or has other fields or
            types.
    """
    if is_deeper(data, depth):
        raise Problem(400, "TOO_DEEP", f"the body is nested more than {depth} deep")
    if not data.strip():
        raise Problem(400, "NOT_JSON", "the body is empty")
    try:
        body = msgspec.json.decode(data, type=kind)
        twice = said_twice(data)
    except msgspec.ValidationError as error:
        raise Problem(422, "BODY", _words(error)) from None
    except (ValueError, RecursionError) as error:
        raise Problem(400, "NOT_JSON", f"the body is no JSON: {_words(error)}") from None
    if twice is not None:
        raise Problem(422, "BODY", f'"{twice}" is said twice in one object')
    return body


def said_twice(data: bytes) -> str | None:
    """A key that an object in JSON has twice: which of them counts, readers do not agree on.

    Raises:
        RecursionError: it is nested too deeply.
        ValueError: it is no JSON.
    """
    found: list[str] = []

    def look(pairs: list[tuple[str, object]]) -> None:
        names = [name for name, _ in pairs]
        if len({*names}) < len(names):
            found.append(next(name for name in names if names.count(name) > 1))

    json.loads(data, object_pairs_hook=look)
    return one_line(found[0]) if found else None


def _words(error: Exception) -> str:
    """What a decoder says, as the end of a sentence; the field that an unknown one is close to."""
    words = " ".join(str(error).replace("`", '"').split())[:300]
    if not words[1:2].isupper():
        words = f"{words[:1].lower()}{words[1:]}"
    unknown = re.search(r'unknown field "([^"]*)"', words)
    near = [] if unknown is None else close_matches(unknown[1], _FIELDS)
    if near:
        return f"{words}; did you mean {near[0]}?"
    return f'{words}; a version is a text: "12.8"' if "$.facts" in words else words


_FIELDS = sorted(
    {
        name
        for kind in (Question, Lengths, Logged, Sides, Side, _Device, _Policy)
        for name in kind.__struct_fields__
    }
)
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_NO_BRACKETS = bytes({*range(256)} - {*b"[{]}"})
_BEGINNING = 1 << 16
"""Most bodies that are too deep are so from their beginning; the rest is not looked at then."""


def is_deeper(data: bytes, most: int) -> bool:
    """Whether JSON is nested more than so deep; told before anything reads it."""
    if data.count(b"{") + data.count(b"[") <= most:
        return False
    return _exceeds(data[:_BEGINNING], most) or (len(data) > _BEGINNING and _exceeds(data, most))


def _exceeds(data: bytes, most: int) -> bool:
    depth = 0
    for bracket in _STRINGS.sub(b"", data).translate(None, _NO_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > most:
            return True
    return False
