"""Answers as plain JSON values: the codes and values that the texts are made from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from selector.changes.case import Case
from selector.values import Resolution

__all__ = ["answer_json", "case_json", "json_text", "resolution_json", "to_json"]


def to_json(value: object) -> Any:
    """A value type as JSON values; positions become ``[file, line, column]``."""
    return msgspec.to_builtins(value, enc_hook=_encode)


def json_text(value: object, *, ascii_only: bool = False) -> str:
    """One JSON document as text, indented, with a line end; as commands print it."""
    try:  # five times as fast as an indent of json's own
        text = msgspec.json.format(json.dumps(value, ensure_ascii=ascii_only), indent=2)
    except (msgspec.DecodeError, UnicodeEncodeError):  # half of a surrogate pair
        text = json.dumps(value, indent=2)
    return f"{text}\n"


def _encode(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def resolution_json(resolution: Resolution) -> dict[str, Any]:
    """A resolution as JSON values."""
    plain: dict[str, Any] = to_json(resolution)
    return plain


def answer_json(cases: Sequence[Case]) -> dict[str, Any]:
    """A resolution, or for several groups of layers ``{"layers": [...]}``, the rarest first."""
    answers = [case_json(case) for case in cases]
    return answers[0] if len(answers) == 1 else {"layers": answers}


def case_json(case: Case) -> dict[str, Any]:
    """A resolution, and which layers of which model it is about."""
    answer = resolution_json(case.resolution)
    if case.model is not None and case.group is not None:
        answer["model"] = {
            "name": case.model.name,
            "model_type": case.model.model_type,
            "group": case.group.name,
            "count": case.group.count,
            "origins": {name: origin.value for name, origin in case.group.origins.items()},
            "notes": list(case.model.notes),
        }
    return answer
