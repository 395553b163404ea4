"""The rules of lint as text, as JSON, and as a page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from selector.lint.catalogue import Rule
from selector.report.text import BLANK, GLUE, Line, Piece, Style, faint, grid, line, strong
from selector.values import Severity

__all__ = ["rule_json", "rule_lines", "rules_lines", "rules_page", "summary"]

_STYLES = {Severity.ERROR: Style.BAD, Severity.WARNING: Style.WARN, Severity.NOTE: Style.FAINT}
_GROUPS = {
    "CAP0": (
        "The document and the language",
        "Found while reading. Their errors make a manifest unusable and cannot be switched off.",
    ),
    "CAP1": (
        "The meaning",
        "Looked for in manifests that can be read: what they say of themselves, and what follows.",
    ),
    "CAP2": ("Policy", "What overlays and callers ask of a manifest."),
    "CAP9": ("Lint itself", "Comments that switch findings off."),
}


def rule_json(rule: Rule) -> dict[str, Any]:
    """A rule as JSON values."""
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": str(rule.severity),
        "fixable": rule.fix is not None,
        "what": rule.what,
        "why": rule.why,
        "bad": rule.bad,
        "good": rule.good,
    }


def rules_lines(rules: Sequence[Rule]) -> list[Line]:
    """One line a rule: code, name, severity, what it finds."""
    return grid([(*_head(rule), summary(rule)) for rule in rules])


_SENTENCE = re.compile(r"(`[^`]*`|[^`.:]|[.:](?=\S))+")
"""Up to a colon or a full stop that is no part of a word or of code."""


def _head(rule: Rule) -> tuple[Piece, str, Piece]:
    style = _STYLES[rule.severity]
    return strong(rule.code), rule.name, Piece(str(rule.severity), style)


def summary(rule: Rule) -> str:
    """What a rule finds, in less than a sentence."""
    begun = _SENTENCE.match(rule.what)
    return begun[0] if begun else rule.what


def rule_lines(rule: Rule) -> list[Line]:
    """The documentation of a rule."""
    code, name, severity = _head(rule)
    mended = " · attnsel lint --fix mends what is safe" if rule.fix else ""
    return [
        line(code, " ", name, " · ", severity, mended),
        BLANK,
        line(rule.what),
        BLANK,
        line(rule.why),
        BLANK,
        line(faint("bad")),
        *_quoted(rule.bad),
        BLANK,
        line(faint("good")),
        *_quoted(rule.good),
        BLANK,
        line(faint(_switching_off(rule))),
    ]


def _quoted(example: str) -> Iterator[Line]:
    """An example, which is never wrapped."""
    for one in example.rstrip("\n").split("\n"):
        yield line(f"    {one}".replace(" ", GLUE))


def _switching_off(rule: Rule) -> str:
    if rule.code.startswith("CAP0"):
        return "It cannot be switched off: without it corrected there is no manifest."
    if rule.code.startswith("DRF"):
        return "No comment switches it off: change the manifest, or the code."
    return f"To switch it off, say why on its line: # attnsel: ignore[{rule.code}] why"


# -- the page ------------------------------------------------------------------------------------


def rules_page(rules: Sequence[Rule]) -> str:
    """The catalogue in Markdown."""
    parts = [
        "# Rules\n",
        "What `attnsel lint` finds. `attnsel rule CODE` prints the same; [`lint.md`](lint.md) says "
        "how rules are\nchosen and switched off. This page is written by `make rules`.\n",
        *_index(rules),
    ]
    for prefix, (title, about) in _GROUPS.items():
        members = [rule for rule in rules if rule.code.startswith(prefix)]
        if members:
            parts += [f"\n## {title}\n", f"{about}\n"]
            for rule in members:
                parts += _section(rule)
    return "\n".join(parts)


def _index(rules: Sequence[Rule]) -> Iterator[str]:
    yield "| rule | name | severity | `--fix` | finds |\n| --- | --- | --- | --- | --- |"
    for rule in rules:
        mended = "yes" if rule.fix else ""
        about = summary(rule).replace("|", "\\|")
        anchor = f"{rule.code}-{rule.name}".lower()
        link = f"[{rule.code}](#{anchor})"
        yield f"| {link} | {rule.name} | {rule.severity} | {mended} | {about} |"


def _section(rule: Rule) -> Iterator[str]:
    yield f"### {rule.code} {rule.name}\n"
    mended = "; `--fix` mends what is safe" if rule.fix else ""
    yield f"*{rule.severity}{mended}*\n"
    yield f"{rule.what}\n"
    yield f"{rule.why}\n"
    for title, example in (("Bad", rule.bad), ("Good", rule.good)):
        yield f"{title}:\n\n```yaml\n{example.rstrip()}\n```\n"
