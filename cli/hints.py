"""What may have been meant, where a command line is not understood."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["hint"]

_EXTRA = re.compile(r"unexpected extra arguments?(?:\(s\))? \((\S+)")
_LOGS = (".log", ".txt", ".out", ".err", ".gz")


def hint(command: str, error: Any) -> str:
    """``; …`` to add to what is wrong with a command's options; empty: nothing is known.

    Args:
        command: the command's name.
        error: Typer's complaint about it.
    """
    words = str(error.format_message())
    if command == "preflight" and re.match(r"No such option: \S+$", words):  # none is near
        return "; the serve command goes after --: attnsel preflight --gpu A100 -- vllm serve …"
    found = _EXTRA.search(words)
    if found is None:
        return ""
    return _for_argument(command, found[1].rstrip(")"))


def _for_argument(command: str, said: str) -> str:
    """Which option a word belongs to that stands alone."""
    if command == "explain" and (said.endswith(_LOGS) or Path(said).is_file()):
        return f"; did you mean --log {said}?"
    if command in ("resolve", "explain"):
        from selector.models import presets

        known = said in presets() or said.endswith(".json")
        return f"; did you mean --model {said}?" if known else ""
    return ""
