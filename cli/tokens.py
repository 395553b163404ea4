"""Bearer tokens, which come from files: a command line can be seen by others."""

from __future__ import annotations

from pathlib import Path

from cli.asking import UsageError

__all__ = ["read_token"]

_WEAKEST = 16
"""A token of fewer characters can be guessed."""


def read_token(file: Path) -> str:
    """The token in a file.

    Raises:
        OSError: the file cannot be read.
        UsageError: it holds none.
    """
    token = file.read_bytes()[:4096].decode("ascii", "replace").strip()
    if len(token) < _WEAKEST or not token.isprintable() or " " in token or "\ufffd" in token:
        raise UsageError(f"{file} holds no token: one line of at least {_WEAKEST} ASCII characters")
    return token
