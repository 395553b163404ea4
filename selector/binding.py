"""The library's front door: load a manifest, bind it to a device and a layer, resolve requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from selector.asking import ask, check_facts, check_space, together, with_request
from selector.devices import find_device, note_on
from selector.fields import BATCH_FIELDS
from selector.judge import judge
from selector.manifest import Manifest
from selector.resolve import Route, resolve, resolve_batch, routes_of
from selector.resources import DEFAULT_MANIFEST, manifest_path, resource
from selector.rules import Question
from selector.values import Device, Facts, Layer, Phase, Policy, Request, Resolution, Verdict

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Bound", "Selector", "closed_facts", "given"]


class Selector:
    """Answers from one manifest. Immutable: the same question always gets the same answer."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        overlays: Sequence[str | Path] = (),
        as_claimed: bool = False,
    ) -> Selector:
        """A selector for a manifest file, a shipped manifest's name, or the default manifest.

        Args:
            path: file or name; the shipped ``capabilities.yaml`` when ``None``.
            overlays: files with local changes, applied in order.
            as_claimed: resolve with what engines claim instead of what is true.

        Raises:
            ManifestError: the manifest has errors; all are listed.
            UnknownManifestError: there is no such file, nor a shipped manifest of that name.
            OSError: the file, or an overlay, cannot be opened.
        """
        from selector.loading import load, not_found  # YAML and hashing: only loading needs them

        file = resource(DEFAULT_MANIFEST) if path is None else manifest_path(str(path))
        try:
            manifest = load(file, overlays)
        except FileNotFoundError as error:
            if error.filename != str(file):
                raise
            raise not_found(str(file)) from None
        return cls(manifest.as_claimed() if as_claimed else manifest)

    @classmethod
    def loads(cls, text: str, file: str = "manifest.yaml") -> Selector:
        """The same, from text."""
        from selector.loading import loads

        return cls(loads(text, file))

    def bind(
        self,
        device: Device | str,
        layer: Layer,
        facts: Facts | None = None,
        policy: Policy | None = None,
        *,
        closed_world: bool = False,
    ) -> Bound:
        """Fixes everything but the request.

        Args:
            device: a device, or its architecture or product name (``"sm120"``, ``"H200"``).
            layer: what the model needs, for one tensor-parallel rank.
            facts: what is installed; ``None``: nothing is known, answers are conditional.
            policy: what to deny or force.
            closed_world: take what is unknown not to be there.

        Raises:
            TypeError: something is not of its type; a mapping makes no layer by itself.
            UnknownDeviceError: no such architecture or product.
            ContradictionError: no such layer can exist.
            ValueRefusedError: a fact is no version, or no answer of a probe.
        """
        where, known, said = given(device, layer, facts, policy)
        check_facts(self.manifest, known)
        if closed_world:
            known = closed_facts(self.manifest, known)
        question = ask(self.manifest, where, layer, known, closed_world)
        check_space(self.manifest, question)
        counted = not BATCH_FIELDS.isdisjoint(layer.fields)
        return Bound(self.manifest, where, question, known, said, counted=counted)


_EXPECTED = (
    (Device, "device", 'a Device or a name such as "H200"'),
    (Layer, "layer", "a Layer: Layer.of(**fields) makes one, load_model those of a model"),
    (Facts, "facts", 'Facts, such as Facts({"torch": "2.9"})'),
    (Policy, "policy", "a Policy"),
)


def given(
    device: Device | str, layer: Layer, facts: Facts | None, policy: Policy | None
) -> tuple[Device, Facts, Policy]:
    """What was given, with what silence means.

    Raises:
        TypeError: something is not of its type.
        UnknownDeviceError: no such architecture or product.
    """
    where = find_device(device) if isinstance(device, str) else device
    known = Facts() if facts is None else facts
    said = Policy() if policy is None else policy
    for value, (kind, name, wanted) in zip((where, layer, known, said), _EXPECTED, strict=True):
        if not isinstance(value, kind):
            raise TypeError(f"{name} is {_a(type(value).__name__)}; it takes {wanted}")
    return where, known, said


def _a(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def closed_facts(manifest: Manifest, facts: Facts) -> Facts:
    """The facts where nothing is installed but what they say and every installation has."""
    taken = {name: name in manifest.standard or None for name in manifest.facts}
    return Facts({**taken, **facts.values})


class Bound:
    """A manifest bound to a device, a layer, facts and a policy: resolves requests.

    Attributes:
        counted: the layer says how many requests run together, however many are asked about.
    """

    def __init__(
        self,
        manifest: Manifest,
        device: Device,
        question: Question,
        facts: Facts,
        policy: Policy,
        *,
        counted: bool = False,
    ) -> None:
        self.manifest = manifest
        self.device = device
        self.question = question
        self.facts = facts
        self.policy = policy
        self.counted = counted

    def resolve(
        self,
        query_len: int | None = None,
        seq_len: int | None = None,
        *,
        speculative_tokens: int = 0,
    ) -> Resolution:
        """The resolution of one request.

        Args:
            query_len: new tokens; unknown when ``None``.
            seq_len: new plus cached tokens; unknown when ``None``.
            speculative_tokens: draft tokens verified with each decode.

        Raises:
            ContradictionError: a length is below 1, or the query is longer than the sequence.
            UnknownBackendError: the policy names a backend that is not in the manifest.
        """
        return self.resolve_one(Request(query_len, seq_len, speculative_tokens))

    def resolve_one(self, request: Request, *, brief: bool = False) -> Resolution:
        """The same, for a request that is already one.

        Args:
            request: the lengths.
            brief: leave out the candidates that are never chosen; the choices are the same.

        Raises:
            UnknownBackendError: the policy names a backend that is not in the manifest.
        """
        answer = resolve(
            self.manifest,
            self.device,
            self.question,
            self.facts,
            request,
            self.policy,
            brief=brief,
        )
        return note_on(answer)

    def asked(self, request: Request) -> Question:
        """The question with a request's lengths."""
        return with_request(self.manifest, self.question, request)

    def judge(
        self, backend: str, request: Request, policy: Policy | None = None
    ) -> Mapping[Phase, Verdict]:
        """What one backend says in each phase, by itself: not whether it would be chosen.

        Args:
            backend: its name.
            request: the lengths.
            policy: what to deny instead of what was bound.

        Raises:
            UnknownBackendError: the backend is not in the manifest.
        """
        entry = self.manifest.entry(backend)
        said = self.policy if policy is None else policy
        return judge(self.manifest, entry, self.asked(request), self.facts, said)

    def resolve_batch(self, requests: Sequence[Request]) -> tuple[Resolution, ...]:
        """The resolutions of requests that run together, in order; lengths must be known.

        Raises:
            ContradictionError: a length is unknown, or so many cannot run together.
            UnknownBackendError: the policy names a backend that is not in the manifest.
        """
        answers = resolve_batch(
            self.manifest, self.device, self._together(requests), self.facts, requests, self.policy
        )
        return tuple(note_on(answer) for answer in answers)

    def routes(self, requests: Sequence[Request], backend: str) -> tuple[Route, ...]:
        """What a backend would make of requests that run together, were the layer given to it.

        Whether it accepts the layer is not asked; lengths must be known.

        Raises:
            ContradictionError: a length is unknown, or so many cannot run together.
            UnknownBackendError: the backend is not in the manifest.
        """
        question = self._together(requests)
        return routes_of(self.manifest, question, self.facts, requests, self.policy, backend)

    def _together(self, requests: Sequence[Request]) -> Question:
        """The question, which says how many requests run together."""
        if self.counted:
            return self.question
        return together(self.manifest, self.question, len(requests))
