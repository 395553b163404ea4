"""Plain scalars: what they are read as, and those that YAML versions read differently.

The rule set is small: on what it reads, YAML 1.1, YAML 1.2 and JSON agree. Everything else is
text, and where a YAML version would read it as something else, :func:`trap_of` names the trap.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

__all__ = [
    "Meaning",
    "Trap",
    "cut",
    "lacks_space",
    "meaning_words",
    "meanings",
    "read_plain",
    "trap_of",
]

Meaning = tuple[str, object]
"""What a YAML version may read: its type, and the value."""


class Trap(NamedTuple):
    """A scalar that YAML versions, or people, read differently.

    Attributes:
        seen: what is wrong.
        fix: what to write for a value.
        meant: what the versions that read no text read.
    """

    seen: str
    fix: str
    meant: tuple[Meaning, ...] = ()


def _spellings(words: dict[str, bool | None]) -> dict[str, bool | None]:
    """Each word in small letters, with a capital, and in capitals: others are text everywhere."""
    return {
        spelled: value
        for word, value in words.items()
        for spelled in (word, word.capitalize(), word.upper())
    }


_AGREED = _spellings({"": None, "~": None, "null": None, "true": True, "false": False})
_SWITCHES = _spellings(
    {"yes": True, "no": False, "on": True, "off": False, "y": True, "n": False},
)
_SPECIAL = ("=", "<<")
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")


def read_plain(text: str) -> str | int | bool | None:
    """What a plain scalar is read as; text where it is nothing else."""
    if text in _AGREED:
        return _AGREED[text]
    return int(text) if _WHOLE.fullmatch(text) else text


def trap_of(text: str) -> Trap | None:
    """What is wrong with a plain scalar that YAML versions read differently, if anything."""
    if text[:1] not in "-+.0123456789" and text not in _SWITCHES and text not in _SPECIAL:
        return None  # nearly all of a manifest
    if read_plain(text) != text:
        return None
    shown = cut(text)
    if text in _SWITCHES:
        meant = _SWITCHES[text]
        word = "true" if meant else "false"
        return Trap(
            f"{shown} is a boolean in YAML 1.1 and text in 1.2",
            f'write {word} or "{shown}"',
            (("boolean", meant),),
        )
    if text in _SPECIAL:
        return Trap(f"{shown} is a special value in YAML 1.1 and text in 1.2", f'write "{shown}"')
    for form, word_it in _FORMS:
        if form.fullmatch(text):
            return word_it(text, shown)
    return None


def _base_60(text: str, shown: str) -> Trap:
    fix = f'write "{shown.replace(":", ".")}" or "{shown}"'
    sign = -1 if text[0] == "-" else 1
    total: float = 0
    for part in text.lstrip("-+").replace("_", "").split(":"):
        total = total * 60 + (float(part) if "." in part else int(part))
    meant = (("number", sign * total),)
    if text.lstrip("-+")[0] == "0":
        return Trap(f"{shown} is a base-60 number in some YAML versions only", fix, meant)
    number = f"{sign * total:.15g}"
    seen = f"{shown} is the base-60 number {number} in YAML 1.1 and text in 1.2"
    return Trap(seen, fix, meant)


def _octal(text: str, shown: str) -> Trap:
    of_1_2 = ("number", int(text))
    if not re.fullmatch(r"[-+]?[0-7]+", text):
        return Trap(
            f"{shown} is text in YAML 1.1 and {int(text)} in 1.2", "drop the zero", (of_1_2,)
        )
    octal = int(text, 8)
    seen = f"{shown} is {octal} in YAML 1.1 and {int(text)} in 1.2"
    return Trap(seen, "drop the zero", (("number", octal), of_1_2))


def _other_base(text: str, shown: str) -> Trap:
    seen, fix = f"{shown} is a number in some YAML versions only", "write it in plain decimal"
    try:
        number: float = int(text.replace("_", ""), 0)
    except ValueError:  # underscores alone, or digits of another base
        return Trap(seen, fix)
    return Trap(seen, fix, (("number", number),) if len(text) < 40 else ())


def _large(text: str, shown: str) -> Trap:
    return Trap(f"{shown} is too large a number", "no field is that large")


def _decimal(text: str, shown: str) -> Trap:
    number = float(text.replace("_", ""))
    as_read = f"the number {number:.15g}" if abs(number) < 1e15 else "a number"
    meant = (("number", number),) if math.isfinite(number) else ()
    return Trap(f"{shown} is read as {as_read}", f'write "{shown}"', meant)


def _no_number(text: str, shown: str) -> Trap:
    meant = (("number", text.lower().lstrip("+")),)
    return Trap(f"{shown} is read as a number", f'write "{shown}"', meant)


def _date(text: str, shown: str) -> Trap:
    return Trap(f"{shown} is a date in YAML 1.1 and text in 1.2", f'write "{shown}"')


_FORMS: tuple[tuple[re.Pattern[str], Callable[[str, str], Trap]], ...] = (
    (re.compile(r"[-+]?[0-9][0-9_]{0,17}(:[0-5]?[0-9]){1,9}(\.[0-9_]{0,17})?"), _base_60),
    (re.compile(r"[-+]?0[0-9]{1,17}"), _octal),
    (re.compile(r"[-+]?0[xobXOB][0-9a-fA-F_]+"), _other_base),
    (re.compile(r"[-+]?[0-9]{19,}"), _large),
    (
        re.compile(r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9]+)([eE][-+]?[0-9]+)?"),
        _decimal,
    ),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), _no_number),
    (re.compile(r"[-+]?[0-9][0-9_]*"), _other_base),  # with underscores: others are told above
    (re.compile(r"[0-9]{4}-[0-9][0-9]?-[0-9][0-9]?([Tt ].*)?"), _date),
)


def meanings(text: str) -> tuple[Meaning, ...]:
    """What YAML versions may read a plain scalar as, other than text."""
    value = read_plain(text)
    if value is None or isinstance(value, bool):
        return (("boolean" if value is not None else "null", value),)
    if isinstance(value, int):
        return (("number", value),)
    trap = trap_of(text)
    return trap.meant if trap else ()


def meaning_words(meaning: Meaning) -> str:
    """A meaning in words: ``the number 12.1``, ``true``, ``null``."""
    kind, value = meaning
    if kind == "number":
        return f"the number {value:.15g}" if isinstance(value, int | float) else f"{value}"
    return "null" if kind == "null" else str(value).lower()


_NO_SPACE = re.compile(r"[A-Za-z_][\w.-]*:(?!//)[^\s:]")
_NO_DASH = re.compile(r"-[A-Za-z_\"'{\[]")


def lacks_space(text: str) -> str:
    """The sign that a space is missing behind, where text looks like a key or an item.

    ``"colon"`` for ``key:value``, ``"dash"`` for ``-item``, else nothing.
    """
    if _NO_SPACE.match(text):
        return "colon"
    return "dash" if _NO_DASH.match(text) else ""


def cut(text: str) -> str:
    """Text on one line, and not too long for a message."""
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else flat[:57] + "…"
