"""Examples of the catalogue as whole manifests: what they leave out is that of a right one."""

from __future__ import annotations

import re
from pathlib import Path

from selector.document import read_text
from selector.lint import lint
from selector.schema import load_schema
from selector.values import Finding

__all__ = ["findings_of", "whole"]

GOOD = Path(__file__).parents[2] / "manifests" / "good"
RIGHT = GOOD.joinpath("smallest.yaml").read_text("utf-8")
_KEY = re.compile(r"(?m)^([\w\"']+):")
_SECTIONS = set(load_schema("manifest")["properties"])
_OF_ENTRY = set(load_schema("manifest")["$defs"]["entry"]["properties"])


def whole(snippet: str) -> str:
    """A manifest with an example in it.

    Args:
        snippet: a manifest, some of its sections, keys of an entry, or fields of ``accepts``. An
            ``accepts`` in block style is completed, one in braces is taken as it is.
    """
    keys = set(_KEY.findall(snippet))
    if keys >= {"attnsel", "name"}:
        return snippet
    if len(keys & _OF_ENTRY) > len(keys & _SECTIONS) or keys == {"description"}:
        return _with_entry(snippet)
    if keys & _SECTIONS:
        return _replaced(RIGHT, snippet, "")
    return _replaced(RIGHT, snippet, "      ")


def _with_entry(snippet: str) -> str:
    text = RIGHT
    if "accepts:\n" in snippet:
        accepts = snippet[snippet.index("accepts:\n") + len("accepts:\n") :]
        given = re.match(r"(?:  .*\n)+", accepts)
        assert given is not None
        stated = "".join(line[2:] for line in given[0].splitlines(keepends=True))
        text = _replaced(text, stated, "      ")
        snippet = snippet.replace("accepts:\n" + given[0], "")
    return _replaced(text, snippet, "    ")


def _replaced(text: str, snippet: str, indent: str) -> str:
    """The text with the blocks of one depth that a snippet states, in place of its own."""
    stated = set(_KEY.findall(snippet))
    kept: list[str] = []
    at = -1
    dropping = False
    for line in text.splitlines(keepends=True):
        key = re.match(rf"{indent}(\w+):", line)
        if key:
            dropping = key[1] in stated
        elif not line.startswith(f"{indent} "):
            dropping = False
        if key and not dropping and (indent or key[1] == "backends"):
            at = len(kept) if at < 0 else at
        if not dropping:
            kept.append(line)
    put = "".join(f"{indent}{line}" for line in snippet.splitlines(keepends=True))
    return "".join((*kept[:at], put, *kept[at:]))


def findings_of(snippet: str) -> list[Finding]:
    """What lint finds in an example; one of an overlay lies over a manifest that pins."""
    if "overlay:" in snippet:
        over = read_text(snippet, "over.yaml")
        base = RIGHT.replace("    mla:", "    pinned: [accepts]\n    mla:")
        return lint(read_text(base, "m.yaml"), [over])
    return lint(read_text(whole(snippet), "m.yaml"))
