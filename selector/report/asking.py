"""A question as words of the command line, to be pasted."""

from __future__ import annotations

from collections.abc import Sequence

from selector.values import Device, Request

__all__ = ["resolve_words"]


def resolve_words(
    chosen: Sequence[str], device: Device, settings: Sequence[str], request: Request | None
) -> list[str]:
    """The words of a command that asks a question.

    Args:
        chosen: the words that choose the manifest: ``("--manifest", "vllm-0.33.0")``.
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
