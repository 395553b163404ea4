"""Comments that switch findings off, and findings about such comments.

``# attnsel: ignore[CAP105] why`` is for its own line, or for the next line when it stands alone;
``# attnsel: ignore-file[CAP105] why`` is for the whole file. Errors found while reading cannot be
switched off: without them corrected there is no manifest.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice

import msgspec
import yaml

from selector.fields import close_matches, one_line
from selector.lint.catalogue import codes, find_rule
from selector.lint.lines import lines_of
from selector.values import Finding, Position, Severity

__all__ = ["UNUSED", "Comment", "comments", "without_suppressed"]

_BEGIN = r"#[ \t]*attnsel\b"
_MARK = re.compile(
    _BEGIN + r"[ \t]*(?P<colon>:?)[ \t]*(?P<how>[\w-]*)[ \t]*"
    r"(?:\[(?P<codes>[^\]]*)\])?(?P<why>.*?)(?=" + _BEGIN + r"|[\r\n]|$)",
    re.IGNORECASE,
)
_CODE = re.compile(r"(?:CAP|DRF)[0-9]", re.IGNORECASE)
_HOW = ("ignore", "ignore-file")
_OTHER_TOOLS = ("noqa", "disable", "nolint", "skip", "allow", "off")
_WRITE = "write `# attnsel: ignore[CODE] why`"
_NEVER = ("CAP0", "CAP9")
"""What cannot be switched off: errors of reading, and what is said of the comments themselves."""

MOST, MOST_CODES = 1000, 20
"""So many comments of a file, and codes of a comment, are read: more is no honest manifest."""

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
    """The comments of a file that are about lint, in order; its text can be read as YAML."""
    if not any(map(_is_meant, _MARK.finditer(text))):
        return []
    lines = lines_of(text)
    inside, following = _inside_scalars(text), _following(lines)
    found: list[Comment] = []
    for number, line in enumerate(lines, 1):
        for match in _MARK.finditer(line):
            begin = match.start()
            if begin and line[begin - 1] not in " \t#":
                continue  # no comment for YAML
            if _is_meant(match) and not inside(number, begin):
                alone = not line[:begin].strip(" \t#")
                target = following[number] if alone else number
                found.append(_comment(Position(file, number, begin + 1), match, target))
                if len(found) == MOST:
                    return found
    return found


def _is_meant(match: re.Match[str]) -> bool:
    """Whether a comment that begins with our name is about lint, and not prose or a manifest."""
    how, named = match["how"].lower(), match["codes"]
    if named is not None and _CODE.search(named):
        return True
    if not match["colon"]:
        return named is not None and how in _HOW
    return how in _OTHER_TOOLS or (how[:1].isalpha() and bool(close_matches(how, _HOW, 0.7)))


def _comment(at: Position, match: re.Match[str], target: int) -> Comment:
    how = match["how"] if match["colon"] else f"{match['how']} without a colon"
    parts = islice(re.finditer(r"[^,\s]+", match["codes"] or ""), MOST_CODES)
    named = tuple((part[0], match.start("codes") + part.start() + 1) for part in parts)
    why = match["why"].strip(" \t-:#")
    line = None if match["how"] == "ignore-file" else target
    return Comment(at, match.end() + 1, how, named, why, line)


def _following(lines: list[str]) -> list[int]:
    """For each line, from 1: the next one that is no comment and not blank, else itself."""
    following = [0] * (len(lines) + 1)
    after = 0
    for number in range(len(lines), 0, -1):
        following[number] = after or number
        if (shown := lines[number - 1].strip()) and not shown.startswith("#"):
            after = number
    return following


def _inside_scalars(text: str) -> Callable[[int, int], bool]:
    """Tells whether a place (line from 1, column from 0) lies in a scalar, as block text does."""
    begins, ends = [], []
    try:
        for token in yaml.scan(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(token, yaml.ScalarToken):
                begin, end = token.start_mark, token.end_mark
                if token.style in ("|", ">"):  # a comment may stand behind the sign
                    begins.append((begin.line + 2, 0))
                else:
                    begins.append((begin.line + 1, begin.column))
                ends.append((end.line + 1, end.column))
    except yaml.YAMLError:
        pass  # told as a finding already

    def inside(line: int, column: int) -> bool:
        place = bisect_right(begins, (line, column)) - 1
        return place >= 0 and (line, column) < ends[place]

    return inside


def without_suppressed(
    found: Iterable[Finding],
    texts: Mapping[str, str],
    takes: Callable[[str], bool],
    judged: Collection[str],
) -> list[Finding]:
    """Findings without those that comments switch off, and with those about the comments.

    Args:
        found: all findings.
        texts: file → its text, of the files that can be read.
        takes: tells whether a rule is looked at, by lint or by drift, whoever asks; a comment for
            one that is not may do nothing.
        judged: files whose comments are told when they do nothing: none where not all rules could
            be asked, and not a manifest under overlays, as it needs them when it stands alone.
    """
    left = list(found)
    said = [comment for file, text in texts.items() for comment in comments(file, text)]
    about: list[Finding] = []
    for comment in said:
        idle = []
        for code, column in comment.named:
            kept = [f for f in left if not _is_off(f, comment, code)]
            if len(kept) == len(left):
                idle.append((code, column))
            left = kept
        if takes(MALFORMED):
            about += _malformed(comment, idle)
        if takes(UNUSED) and comment.at.file in judged and comment.how in _HOW:
            about += _unused(comment, [(c, at) for c, at in idle if takes(c)])
    return [*left, *about]


def _is_off(finding: Finding, comment: Comment, code: str) -> bool:
    return (
        finding.code == code
        and comment.how in _HOW
        and finding.file == comment.at.file
        and comment.line in (None, finding.line)
        and not (finding.severity is Severity.ERROR and code.startswith("CAP0"))
    )


def _unused(comment: Comment, idle: Iterable[tuple[str, int]]) -> Iterator[Finding]:
    for code, column in idle:
        if not code.startswith(_NEVER):
            message = f"{code} is switched off here, and nothing is found"
            at = comment.at._replace(column=column)
            yield find_rule(UNUSED).finding(at, message, "remove it")


def _known() -> list[str]:
    """The codes of lint and of drift; both heed these comments."""
    from selector.drift.rules import RULES  # which are made of lint's form of a rule

    return [*codes(), *(rule.code for rule in RULES)]


def _malformed(comment: Comment, idle: list[tuple[str, int]]) -> Iterator[Finding]:
    rule = find_rule(MALFORMED)
    known = _known()
    if comment.how not in _HOW:
        yield rule.finding(comment.at, f'"{one_line(comment.how)}" is no instruction', _WRITE)
        return
    if not comment.named:
        yield rule.finding(comment.at, "a comment that names no code", _WRITE)
    for code, column in comment.named:
        at = comment.at._replace(column=column)
        if code not in known:
            near = close_matches(code.upper(), known)
            hint = f"did you mean {near[0]}?" if near else "name one such as CAP105"
            yield rule.finding(at, f'no rule has the code "{one_line(code)}"', hint)
        elif code.startswith(_NEVER) and (code, column) in idle:
            yield rule.finding(at, f"{code} cannot be switched off", "correct what it finds")
    if comment.named and not comment.why:
        yield rule.finding(comment.at, "a comment that says no reason", "say why behind it")
