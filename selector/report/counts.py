"""Numbers of questions, as a person reads them: what is counted, how many, which share."""

from __future__ import annotations

from selector.report.text import GLUE, Line, faint, line

__all__ = ["number_words", "percent_words", "question_line", "questions_words", "share_words"]

_LONGEST = 15
"""Digits of a number that is written out."""


def question_line(indent: int = 2) -> Line:
    """What is counted: said once, before the first number."""
    words = (
        "a question: a device, layer, software and lengths; values no rule tells apart count once"
    )
    return line(" " * indent, faint(words), hang=indent)


def number_words(number: int) -> str:
    """``3,300``; ``1.4 × 10^19`` where it would have more than 15 digits."""
    if len(str(number)) <= _LONGEST:
        return f"{number:,}"
    power = len(str(number)) - 1
    tenths = (10 * number + 10**power // 2) // 10**power
    if tenths == 100:
        tenths, power = 10, power + 1
    return f"{tenths // 10}.{tenths % 10}{GLUE}×{GLUE}10^{power}"


def questions_words(number: int) -> str:
    """``1 question``, ``1.4 × 10^19 questions``."""
    return f"{number_words(number)} question{'' if number == 1 else 's'}"


def share_words(part: int, whole: int) -> str:
    """``12 %`` of a whole, in two digits; never a rounded 0 % or 100 %."""
    if part == whole:
        return "100 %"
    percent = 100 * part / whole
    if percent < 0.01:
        return "less than 0.01 %"
    if percent > 99.99:
        return "more than 99.99 %"
    if percent >= 99:
        return f"{percent:.2f} %"
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def percent_words(share: float) -> str:
    """``0.015 %``, ``100 %``: a bound on a share, in two digits."""
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"
