"""Lines of a text as YAML counts them, so that positions fit whatever breaks the lines."""

from __future__ import annotations

import re

__all__ = ["lines_of"]

_LINE = re.compile("[^\r\n]*(?:\r\n|[\r\n])|[^\r\n]+$")


def lines_of(text: str) -> list[str]:
    """The lines, each with its break; joined they are the text."""
    return _LINE.findall(text)
