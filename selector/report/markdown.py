"""Text that others wrote, within Markdown: shown as it is, and calling nobody."""

from __future__ import annotations

import re

__all__ = ["code", "prose"]


def code(text: str) -> str:
    """The text as code, whatever backticks are in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def prose(text: str) -> str:
    """The text without markup; ``@name`` names nobody, and ``#1`` no issue."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("`", "\\`")
    return re.sub(r"([@#])(?=\w)", r"\1<!-- -->", text)
