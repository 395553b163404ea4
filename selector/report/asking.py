"""A question as words of the command line, to be pasted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from selector.domains import Domain, Value
from selector.fields import capability_text
from selector.manifest import Manifest
from selector.values import Device, Request

if TYPE_CHECKING:
    from selector.analysis.witness import Witness  # imports much, and is only looked at

__all__ = ["chosen_words", "resolve_words", "settings_of"]


def settings_of(asked: Witness, manifest: Manifest) -> list[str]:
    """The layer and the facts of a question, as ``--set`` takes them."""
    fields = manifest.vocabulary.fields
    said = [f"{n}={_word(v, fields[n].type)}" for n, v in asked.layer.fields.items()]
    return said + [f"{n}={_word(v, 'name')}" for n, v in asked.facts.values.items()]


def _word(value: Value | Domain | None, kind: str) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return capability_text(value) if kind == "capability" and isinstance(value, int) else str(value)


def chosen_words(
    reference: str | None, overlays: Sequence[str] = (), as_claimed: bool = False
) -> tuple[str, ...]:
    """The words that choose a manifest: ``("--manifest", "vllm-0.33.0")``."""
    words = ["--manifest", reference] if reference is not None else []
    words += [word for path in overlays for word in ("--overlay", path)]
    return (*words, *(["--as-claimed"] if as_claimed else []))


def resolve_words(
    chosen: Sequence[str], device: Device, settings: Sequence[str], request: Request | None
) -> list[str]:
    """The words of a command that asks a question.

    Args:
        chosen: the words that choose the manifest, as :func:`chosen_words` gives them.
        device: where it runs.
        settings: the layer and the facts, as ``--set`` takes them.
        request: the lengths, both known; ``None``: they are left unsaid.
    """
    words = ["attnsel", "resolve", *chosen, "--arch", device.capability or device.platform]
    if settings:
        words += ["--set", ",".join(settings)]
    if request is not None:
        words += ["--query-len", str(request.query_len), "--seq-len", str(request.seq_len)]
    return words
