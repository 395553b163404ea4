"""The value of a flag: from text to what it means, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from selector.fields import close_matches, one_line
from selector.serving.commands.errors import CommandError
from selector.serving.commands.flags import Flag

__all__ = ["KERNELS", "Plain", "fields_set", "load_json", "read_value", "write_value"]

Plain = Any
"""What JSON can hold."""

KERNELS = frozenset({"CUTLASS_MSA", "TRITON_MSA"})
"""Kernels of MiniMax M3, given where backends are; they choose none."""

_TRUE = {"1", "on", "t", "true", "y", "yes"}
_FALSE = {"0", "off", "f", "false", "n", "no"}
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)([kKmMgGtT])")
_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*")')
_DTYPES = {"half": "float16", "float": "float32"}
_BARE_SIZE = re.compile(rf"(?<![\w.]){_SIZE.pattern}\b")
_LONGEST_JSON = 1 << 20
_LONGEST_SIZES = 4_000
_DEEPEST = 200


def read_value(flag: Flag, raw: Plain, where: str) -> Plain:
    """Reads what was given for a flag or a key: text, or what a JSON value held.

    Gives ``None`` for an explicit nothing (``None``, an empty text, ``null``).

    Args:
        flag: the flag.
        raw: the text of its value, or a value out of JSON.
        where: what an error names: the spelling that was used.

    Raises:
        CommandError: the value is not of the flag's type.
    """
    if flag.takes == "bit":
        return bool(_read_integer(flag, raw, where))
    if raw is None or raw in ("", "None"):
        return None
    if flag.takes == "json":
        return _read_json(raw, where)
    if flag.takes in ("switch", "boolean"):
        return _read_boolean(raw, where)
    if flag.takes == "many":
        return _read_words(raw, where)
    if flag.takes == "number":
        return _read_number(raw, where)
    if flag.takes in ("size", "size_or_auto"):
        return _read_size(flag, raw, where)
    value = _read_integer(flag, raw, where) if flag.takes == "integer" else raw
    if flag.takes != "integer" and not isinstance(value, str):
        raise _refuse(where, raw, "a text")
    if flag.values and str(value) not in flag.values:
        near = close_matches(str(value)[:80], flag.values)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise _refuse(where, raw, f"one of {', '.join(flag.values)}{hint}")
    return value


def _refuse(where: str, raw: Plain, allowed: str) -> CommandError:
    shown = f'"{one_line(raw)}"' if isinstance(raw, str) else one_line(raw)
    if isinstance(raw, str) and re.match(r"\$[A-Za-z_{(]", raw):
        allowed = "known here; write the value of the shell variable"
    return CommandError(f"{one_line(where)}: {shown} is not {allowed}")


def _read_integer(flag: Flag, raw: Plain, where: str) -> int:
    least = f" of at least {flag.low}" if flag.low is not None else ""
    number: int | None = None
    if isinstance(raw, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", raw):
        number = int(raw)
    elif isinstance(raw, int) and not isinstance(raw, bool) and abs(raw) < 10**18:
        number = raw
    elif isinstance(raw, float) and raw.is_integer() and abs(raw) < 10**18:
        number = int(raw)
    if number is None or (flag.low is not None and number < flag.low):
        raise _refuse(where, raw, f"a whole number{least}")
    return number


def _read_number(raw: Plain, where: str) -> float:
    try:
        if isinstance(raw, bool) or not isinstance(raw, str | int | float):
            raise ValueError
        return float(raw)
    except (ValueError, OverflowError):
        raise _refuse(where, raw, "a number") from None


def _read_size(flag: Flag, raw: Plain, where: str) -> int | str:
    text = str(raw).strip() if isinstance(raw, str | int) and not isinstance(raw, bool) else ""
    if flag.takes == "size_or_auto" and (text == "-1" or text.lower() == "auto"):
        return "auto"
    if re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        return int(text)
    found = _SIZE.fullmatch(text)
    if found and not (found[2].isupper() and "." in found[1]):
        return _expand(found)
    raise _refuse(where, raw, "a whole number, or one with k, m, g (1000s) or K, M, G (1024s)")


def _expand(found: re.Match[str]) -> int:
    number, unit = found[1], found[2]
    power = _POWERS[unit.lower()]
    if unit.isupper():
        return int(int(float(number)) * 1024**power)
    return int(float(number) * 1000**power)


def _read_boolean(raw: Plain, where: str) -> bool:
    text = str(raw).lower() if isinstance(raw, str | int) else ""
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise _refuse(where, raw, "true or false")


def _read_words(raw: Plain, where: str) -> tuple[str, ...]:
    words = [raw] if isinstance(raw, str) else raw
    if not isinstance(words, list | tuple) or not all(isinstance(w, str | int) for w in words):
        raise _refuse(where, raw, "a list of words")
    return tuple(str(word) for word in words)


def _read_json(raw: Plain, where: str) -> Mapping[str, Plain]:
    value = load_json(raw, where) if isinstance(raw, str) else raw
    if not isinstance(value, dict):
        raise _refuse(where, raw, "a JSON object")
    return value


def load_json(text: str, where: str) -> Plain:
    """Reads JSON, with numbers such as ``80m`` as the engine allows them.

    Raises:
        CommandError: it is none (with the column), too long or too deep.
    """
    if len(text) > _LONGEST_JSON:
        raise CommandError(f"{one_line(where)}: JSON of {len(text):,} characters is too long")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        value = _load_sizes(text)
        if value is None:
            raise _no_json(text, error, where) from None
    except (RecursionError, ValueError):  # too deep, or a number of too many digits
        raise CommandError(f"{one_line(where)}: JSON that is too deep or too large") from None
    _check_depth(value, where)
    return value


def _load_sizes(text: str) -> Plain:
    """What JSON with numbers such as ``80m`` holds; ``None`` where that is not the trouble."""
    if len(text) > _LONGEST_SIZES:
        return None
    parts = _QUOTED.split(text)
    for index in range(0, len(parts), 2):
        parts[index] = _BARE_SIZE.sub(lambda found: str(_expand(found)), parts[index])
    try:
        return json.loads("".join(parts))
    except (RecursionError, ValueError):
        return None


def _no_json(text: str, error: json.JSONDecodeError, where: str) -> CommandError:
    hint = ""
    if "'" in text and '"' not in text:
        hint = "; JSON has double quotes"
    elif re.search(r"[{,]\s*[A-Za-z_]\w*\s*:", text[:_LONGEST_SIZES]):
        hint = "; its keys need double quotes, and a shell takes them away unless '…' is around"
    return CommandError(
        f'{one_line(where)}: "{one_line(text)}" is no JSON at column {error.pos + 1}: '
        f"{error.msg.lower()}{hint}"
    )


def _check_depth(value: Plain, where: str) -> None:
    layer, depth = [value], 0
    while layer:
        if depth > _DEEPEST:
            raise CommandError(f"{one_line(where)}: JSON of more than {_DEEPEST} levels")
        inner = [
            item.values() if isinstance(item, dict) else item
            for item in layer
            if isinstance(item, dict | list)
        ]
        layer = [item for items in inner for item in items]
        depth += 1


def fields_set(flag: Flag, value: Plain) -> dict[str, Plain]:
    """The fields that a flag's value becomes, in the order of the table."""
    made = {field: _as_field(how, value) for field, how in flag.sets.items()}
    return {field: made_of for field, made_of in made.items() if made_of is not None}


def _as_field(how: str, value: Plain) -> Plain:
    if value is None:
        return None
    if how == "above_one":
        return value > 1
    if how == "given":
        return True
    if how == "backend":
        name = str(value).upper()
        return None if name in ("AUTO", "NONE") or name in KERNELS else name
    if how == "dtype":
        return _DTYPES.get(value, value)
    if how == "use_or_avoid":
        return "use" if value else "avoid"
    if how == "off":
        return False if value else None
    if how == "unset":
        return "unset" if value else None
    return value


def write_value(flag: Flag, field: str, value: Plain) -> Plain:
    """What to give a flag so that it sets a field to a value; ``None``: take the flag away.

    A text, a list of words, or a boolean for a switch.

    Raises:
        CommandError: the flag cannot set the field so.
    """
    how = flag.sets[field]
    refused = CommandError(f"{flag.name} cannot set {field} to {one_line(value)}")
    if how in ("off", "unset"):
        on = value is False if how == "off" else value == "unset"
        if not on and how == "unset":
            raise refused
        return True if on else None
    if how == "above_one":
        if value is not False:
            raise refused
        return "1"
    if how == "given":
        if value is not False:
            raise refused
        return None
    if how == "use_or_avoid":
        if value == "unset":
            return None
        if value not in ("use", "avoid"):
            raise refused
        return "true" if value == "use" else "false"
    if value == "unset" and flag.takes != "text":
        return None
    return _write_plain(flag, value)


def _write_plain(flag: Flag, value: Plain) -> Plain:
    if flag.takes in ("switch", "on"):
        return _read_boolean(value, flag.name)
    if flag.takes == "many":
        return list(
            _read_words(
                list(value)
                if isinstance(value, Sequence) and not isinstance(value, str)
                else value,
                flag.name,
            )
        )
    if isinstance(value, Mapping):
        text = json.dumps(dict(value))
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    read_value(flag, text, flag.name)
    return text
