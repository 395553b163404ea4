"""Comments that switch findings off, and findings about such comments.

``# attnsel: ignore[CAP105] why`` is for its own line, or for the next line when it stands alone;
``# attnsel: ignore-file[CAP105] why`` is for the whole file. Errors found while reading cannot be
switched off: without them corrected there is no manifest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
import yaml

from selector.fields import one_line
from selector.lint.catalogue import codes, find_rule
from selector.values import Finding, Position, Severity

__all__ = ["Comment", "comments", "without_suppressed"]

_MARK = re.compile(r"#\s*attnsel:\s*(?P<how>[\w-]*)\s*(?:\[(?P<codes>[^\]\n]*)\])?(?P<why>.*)")
UNUSED, MALFORMED = "CAP901", "CAP902"


class Comment(msgspec.Struct, frozen=True):
    """A comment that switches findings off.

    Attributes:
        at: where it begins.
        end: the column behind it.
        how: ``ignore`` or ``ignore-file``; anything else is a mistake.
        named: the codes it names, each with its column.
        why: what it says beside.
        line: the line whose findings it is for; ``None``: the file's.
    """

    at: Position
    end: int
    how: str
    named: tuple[tuple[str, int], ...]
    why: str
    line: int | None


def comments(file: str, text: str) -> list[Comment]:
    """The comments of a file that are about lint, in order."""
    if "attnsel:" not in text:
        return []
    lines = text.split("\n")
    found = []
    inside = _inside_scalars(text)
    for number, line in enumerate(lines, 1):
        match = _MARK.search(line)
        if match is None or inside(number, match.start()):
            continue
        if match.start() and line[match.start() - 1] not in " \t":
            continue  # no comment for YAML
        alone = not line[: match.start()].strip()
        target = _next_line(lines, number) if alone else number
        named = tuple(_codes(match))
        how = match["how"]
        found.append(
            Comment(
                Position(file, number, match.start() + 1),
                match.end() + 1,
                how,
                named,
                match["why"].strip(" -:"),
                None if how == "ignore-file" else target,
            )
        )
    return found


def _codes(match: re.Match[str]) -> Iterator[tuple[str, int]]:
    if match["codes"] is not None:
        for part in re.finditer(r"[^,\s]+", match["codes"]):
            yield part[0], match.start("codes") + part.start() + 1


def _next_line(lines: list[str], number: int) -> int:
    """The next line that is no comment and not blank."""
    for later in range(number, len(lines)):
        if lines[later].strip() and not lines[later].lstrip().startswith("#"):
            return later + 1
    return number


def _inside_scalars(text: str) -> Callable[[int, int], bool]:
    """Tells whether a place (line from 1, column from 0) lies in a scalar, as block text does."""
    spans = []
    try:
        for token in yaml.scan(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(token, yaml.ScalarToken):
                begin, end = token.start_mark, token.end_mark
                spans.append(((begin.line + 1, begin.column), (end.line + 1, end.column)))
    except yaml.YAMLError:
        pass  # told as a finding already
    return lambda line, column: any(a <= (line, column) < b for a, b in spans)


def without_suppressed(
    found: Iterable[Finding], texts: Mapping[str, str], takes: Callable[[str], bool]
) -> list[Finding]:
    """Findings without those that comments switch off, and with those about the comments.

    Args:
        found: all findings.
        texts: file → its text.
        takes: tells whether a rule is looked at; a comment for one that is not may do nothing.
    """
    left = list(found)
    said = [comment for file, text in texts.items() for comment in comments(file, text)]
    about: list[Finding] = []
    for comment in said:
        for code, column in comment.named:
            kept = [f for f in left if not _is_off(f, comment, code)]
            at = comment.at._replace(column=column)
            if code not in codes() or comment.how not in ("ignore", "ignore-file"):
                continue
            if len(kept) == len(left) and takes(code) and takes(UNUSED):
                message = f"{code} is switched off here, and nothing is found"
                about.append(find_rule(UNUSED).finding(at, message, "remove it"))
            left = kept
        if takes(MALFORMED):
            about += _malformed(comment)
    return [*left, *about]


def _is_off(finding: Finding, comment: Comment, code: str) -> bool:
    return (
        finding.code == code
        and finding.file == comment.at.file
        and comment.line in (None, finding.line)
        and not (finding.severity is Severity.ERROR and code.startswith("CAP0"))
    )


def _malformed(comment: Comment) -> Iterator[Finding]:
    rule = find_rule(MALFORMED)
    if comment.how not in ("ignore", "ignore-file"):
        message = f'"{one_line(comment.how)}" is no instruction'
        yield rule.finding(comment.at, message, "write `# attnsel: ignore[CODE] why`")
        return
    if not comment.named:
        yield rule.finding(
            comment.at, "a comment that names no code", "write `# attnsel: ignore[CODE] why`"
        )
    for code, column in comment.named:
        at = comment.at._replace(column=column)
        if code not in codes():
            yield rule.finding(at, f'no rule has the code "{one_line(code)}"', "correct it")
        elif code.startswith("CAP0"):
            yield rule.finding(at, f"{code} cannot be switched off", "correct what it finds")
    if not comment.why:
        yield rule.finding(comment.at, "a comment that says no reason", "say why behind it")
