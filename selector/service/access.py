"""Who may ask, and the headers that every answer has."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

from selector.live import Snapshot
from selector.service.calls import Answer
from selector.service.problems import Problem

__all__ = ["EXPLORER", "Access", "headers_of"]

EXPLORER = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/explorer.js": ("explorer.js", "text/javascript; charset=utf-8"),
    "/answers.js": ("answers.js", "text/javascript; charset=utf-8"),
    "/drawing.js": ("drawing.js", "text/javascript; charset=utf-8"),
    "/explorer.css": ("explorer.css", "text/css; charset=utf-8"),
}
"""Path → file of the explorer, and its type."""

_OPEN = frozenset((*EXPLORER, "/healthz", "/readyz", "/openapi.json"))
"""What anybody may read: what says nothing of a manifest."""

_PAGE = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ALWAYS = [
    (b"content-security-policy", _PAGE),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
]


class Access:
    """A bearer token that requests must show, and where it is read again."""

    def __init__(self, token: str | None, read: Callable[[], str] | None = None) -> None:
        """Takes the token; ``None``: everyone may ask.

        Args:
            token: what requests must show.
            read: gives the token anew; ``None``: it stays as it is.
        """
        self._wanted = None if token is None else _shown(token)
        self._read = read

    def read_again(self) -> bool:
        """Takes the token anew; whether it is another one.

        Raises:
            AttnselError: there is none; the old one stays.
            OSError: the same.
        """
        if self._read is None:
            return False
        before, self._wanted = self._wanted, _shown(self._read())
        return before != self._wanted

    def admits(self, scope: Any) -> bool:
        """Whether a request shows the token; takes as long for one that is nearly right."""
        if self._wanted is None:
            return True
        shown = [value for name, value in scope["headers"] if name == b"authorization"]
        given: bytes = shown[0] if len(shown) == 1 else b""
        scheme, _, rest = given.partition(b" ")
        return hmac.compare_digest(scheme.lower().title() + b" " + rest.strip(), self._wanted)

    def is_open(self, path: str) -> bool:
        """Whether anybody may ask for a path."""
        return path in _OPEN

    def refusal(self) -> Problem:
        """The problem of a request without the token."""
        return Problem(
            401,
            "NO_TOKEN",
            "a token is needed: send Authorization: Bearer TOKEN",
            headers={"www-authenticate": 'Bearer realm="attnsel"'},
        )


def _shown(token: str) -> bytes:
    """What a request shows that has a token."""
    return b"Bearer " + token.encode()


def headers_of(answer: Answer, id: str, snapshot: Snapshot) -> list[tuple[bytes, bytes]]:
    """The headers of an answer: its own, those of a snapshot, and those that all have."""
    return [
        (b"content-type", answer.media.encode()),
        (b"x-request-id", id.encode()),
        (b"attnsel-manifest", snapshot.name.encode("ascii", "backslashreplace")),
        (b"attnsel-digest", snapshot.digest.encode()),
        (b"attnsel-generation", b"%d" % snapshot.generation),
        *_ALWAYS,
        *(
            (name.lower().encode(), value.encode("latin-1"))
            for name, value in answer.headers.items()
        ),
    ]
