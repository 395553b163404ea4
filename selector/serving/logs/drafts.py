"""A draft of an error: the lines that hold one text, until its last bracket closes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from selector.serving.logs.lines import Line

__all__ = ["MARK", "Draft", "has_mark"]


def _spelled(words: str) -> str:
    """A pattern for words that a line may end in, and between."""
    return r"\s*".join(r"\n?".join(map(re.escape, word)) for word in words.split())


MARK = re.compile(
    rf"(?P<none>{_spelled('No valid attention backend')})"
    rf"|(?P<prefill>{_spelled('No valid MLA prefill backend')})"
    rf"|(?P<forced>{_spelled('Selected backend')})"
    rf"|(?P<args>{_spelled('non-default args:')}|args:\s*Namespace(?=\())"
)
"""How the texts begin, in lines joined by their ends."""

_SIGNS = ("backend", "valid att", "valid MLA", "Selected ", "args:")
_NEARBY = ("valid", "No ", "elected", "Selec", "args:")
_REASONS = re.compile(rf"{_spelled('Reason')}s?\s*:")
_BRACKET = re.compile(r"[\[\](){}]")
_NEXT_BACKEND = re.compile(r"\s*,?\s*['\"<]?[A-Za-z][\w.]{0,80}['\">]?\s*:\s*\[")
_RAISED = re.compile(r"(?:[\w.]{1,100}(?:Error|Exception)(?::\s*|\(\s*)|[\"'(`]\s*)+$")
_ELSEWHERE = re.compile(r"Traceback \(most recent|[\w.]{1,100}(?:Error|Exception): ")
_CODE = re.compile(r"\s*(?:File \"|[~^]+\s*$|$)")
_DIGIT = re.compile(r"\d")

_OPEN_ENDS = tuple(",.:([{")
_LONGEST = 65_536
_MOST_LINES = 4000
_LONGEST_LEAD = 300


def has_mark(raw: str, before: Iterable[str]) -> bool:
    """Whether a text may begin here or in the lines before; cheap: it is asked of every line."""
    for sign in _SIGNS:
        if sign in raw:
            return any(near in line for line in (raw, *before) for near in _NEARBY)
    return False


class Draft:
    """One text of a log, as far as it was read.

    Args:
        kind: ``none``, ``prefill``, ``forced`` or ``args``.
        first: the line it begins in.
        lead: what stands before it in that line.
    """

    def __init__(self, kind: str, first: Line, lead: str) -> None:
        self.kind = kind
        self.line = first.number
        self._closed = False
        raised = _RAISED.search(lead[-_LONGEST_LEAD:])
        self.is_raised = raised is not None
        lead = lead[-_LONGEST_LEAD:][: raised.start()] if raised else lead
        self._lead = lead if len(lead) < _LONGEST_LEAD else ""
        self._level = first.level
        self._pieces: list[Line] = []
        self._size = 0
        self._width = 0
        self._counts = kind == "args"
        self._tail = ""
        self._depth = 0
        self._opened = ""
        self._loose = False

    @property
    def is_closed(self) -> bool:
        """Whether the text was read to its end."""
        return self._closed or self._loose

    def is_old(self, number: int) -> bool:
        """Whether the line with this number is too far away to belong to it."""
        return number - self.line > _MOST_LINES

    def add(self, line: Line) -> bool:
        """Takes a line in, if it belongs here; true when the text ends with or before it."""
        if self._pieces:
            if line.level and self._level and line.level != self._level:
                return False
            line = self._without_lead(line)
            if _ELSEWHERE.match(line.text):
                return True
            if _CODE.match(line.text):
                return False
            if self._loose and not _NEXT_BACKEND.match(line.text):
                return True
            if not self._loose and self._had_room_for(line.text):
                return True
        text = line.text[: _LONGEST - self._size]
        self._width = max(self._width, len(text))
        self._pieces.append(line._replace(text=text))
        self._size += len(text) + 1
        self._scan(text)
        return self._closed or self._size >= _LONGEST

    def text(self, are_known: Callable[[str], bool]) -> str:
        """The text on one line.

        Args:
            are_known: whether a word is one that these texts use; tells where a line ended in the
                middle of a word.
        """
        mid_word = self._is_cut_in_words(are_known)
        parts = [self._pieces[0].text]
        for left, right in zip(self._pieces, self._pieces[1:], strict=False):
            glued = (left.partial or mid_word) and not left.after and not right.before
            parts.append(right.text if glued else f" {right.text}")
        return " ".join("".join(parts).split())

    def _had_room_for(self, text: str) -> bool:
        """Whether the last line could have held this one's first word: then nothing was wrapped."""
        last = self._pieces[-1]
        if last.partial or last.text[-1:] in _OPEN_ENDS:
            return False
        return len(last.text) + 1 + len(text.split(maxsplit=1)[0]) <= self._width

    def _without_lead(self, line: Line) -> Line:
        """Without a prefix that no pattern knows, when the first line had the same one."""
        size = len(self._lead)
        if not size or _DIGIT.sub("0", line.text[:size]) != _DIGIT.sub("0", self._lead):
            return line
        return line._replace(text=line.text[size:])

    def _is_cut_in_words(self, are_known: Callable[[str], bool]) -> bool:
        """Whether lines were broken at a column, not at a blank."""
        inside = {w for p in self._pieces for w in p.text.split()[1:-1]}
        votes = 0
        for left, right in zip(self._pieces, self._pieces[1:], strict=False):
            if left.partial or left.after or right.before:
                continue
            first, second = left.text.split()[-1:], right.text.split()[:1]
            if not first or not second:
                continue
            whole = first[0] + second[0]
            if first[0][-1] in ",.:":
                votes -= 1
            elif whole in inside or are_known(whole):
                votes += 0 if are_known(first[0]) and are_known(second[0]) else 1
            elif are_known(first[0]) or are_known(second[0]):
                votes -= 1
        return votes > 0

    def _scan(self, text: str) -> None:
        """Counts the brackets behind ``Reasons:``; the last one closes the draft."""
        at = 0
        if not self._counts:
            joined = f"{self._tail}\n{text}" if self._tail else text
            found = _REASONS.search(joined)
            if not found:
                self._tail = joined[-12:]
                return
            self._counts = True
            text, at = joined, found.end()
        for found in _BRACKET.finditer(text, at):
            if found[0] in "([{":
                self._opened = self._opened or found[0]
                self._depth += 1
                self._loose = False
            elif self._depth:
                self._depth -= 1
                if not self._depth and self._ends(text, found.end()):
                    self._closed = True
                    return

    def _ends(self, text: str, at: int) -> bool:
        """Whether the text ends where its outermost bracket does."""
        if self._opened != "[" or self.kind in ("forced", "args"):
            return True
        if not text[at:].strip(", "):
            self._loose = True
            return False
        return not _NEXT_BACKEND.match(text, at)
