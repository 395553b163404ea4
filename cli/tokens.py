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
        UsageError: it holds none, or one that can be guessed.
    """
    with file.open("rb") as stream:
        token = stream.read(4096).decode("ascii", "replace").strip()
    wanted = f"write one line of at least {_WEAKEST} ASCII characters, without blanks"
    if not token or not token.isprintable() or " " in token or "\ufffd" in token:
        raise UsageError(f"{file} holds no token; {wanted}")
    if len(token) < _WEAKEST:
        raise UsageError(f"{file}: the token is too short ({len(token)}); {wanted}")
    return token
