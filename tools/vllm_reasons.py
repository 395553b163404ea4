"""Codes for the reasons that recorded decisions of vLLM 0.33.0 give, strictly.

The sentences are told apart in :mod:`selector.serving.logs.reasons`, for logs of any version; here
a sentence that nobody knows is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from selector.serving.logs import reasons


@cache
def code_of(sentence: str) -> str:
    """The code of one sentence; a check that raised is ``CHECK_RAISES``.

    Raises:
        ValueError: no code is known for the sentence.
    """
    code = "CHECK_RAISES" if sentence.startswith("!") else reasons.code_of(sentence)
    if code is None:
        raise ValueError(f"no code is known for the reason {sentence!r}")
    return code


def codes_of(sentences: Iterable[str]) -> list[str]:
    """The codes of several sentences in their order, each once."""
    return list(dict.fromkeys(map(code_of, sentences)))


def class_of(error: str | None) -> str | None:
    """The exception's class name of an error, for ``ok`` and ``None`` the same."""
    return error and error.partition(":")[0]


def prefill_codes_of(refused: str) -> tuple[str, list[str]]:
    """An MLA prefill backend that was no candidate, and the codes of its sentences."""
    backend, _, sentences = refused.partition(": ")
    return backend, codes_of(re.split(r"; (?!supported:)", sentences))
