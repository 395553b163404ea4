"""The library's other front door: the same questions, answered by a server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import TypeVar
from urllib.parse import quote, unquote

import msgspec

from selector import errors
from selector.binding import Bound, Selector, given
from selector.domains import Domain, Value
from selector.errors import AttnselError, ValueRefusedError
from selector.exchange import Client, Reply, ServerError
from selector.fields import Vocabulary
from selector.loading import load_sources
from selector.values import Device, Facts, Fallback, Layer, Policy, Request, Resolution

__all__ = ["RemoteBound", "RemoteSelector"]

T = TypeVar("T")

_MOST_SOURCES = 100
_TURNS = 2


class RemoteSelector:
    """Answers from a manifest that a server holds, and may change between two questions.

    It is used as a :class:`~selector.Selector` is, from any thread. Connections are kept; use it
    in a ``with`` block or :meth:`close` it.

    Attributes:
        url: of the server.
    """

    def __init__(
        self,
        url: str,
        *,
        manifest: str | None = None,
        as_claimed: bool = False,
        timeout_s: float = 5.0,
        token: str | None = None,
        fallback: Selector | str | Path | None = None,
        rest_s: float = 5.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Reads what is said; asks nothing yet.

        Args:
            url: http or https; a path is put before those of the service.
            manifest: the name of one that is served; the first when ``None``.
            as_claimed: resolve with what engines claim instead of what is true.
            timeout_s: longest time of one question, in seconds: connecting, asking, answering.
            token: bearer token that the server wants.
            fallback: answers where the server cannot be reached, fails or is late, never where it
                refuses the question; a path or name is loaded now. Such a resolution has
                ``fallback``.
            rest_s: for so long after a failure the fallback answers without asking the server; then
                one question tries it again.
            clock: seconds, for ``rest_s``.

        Raises:
            ValueRefusedError: the URL, token or time is none.
            ManifestError: the fallback has errors.
            UnknownManifestError: there is no such fallback.
            OSError: the fallback cannot be opened.
        """
        self._client = Client(url, token, timeout_s)
        self.url = self._client.url
        self._manifest = manifest
        self._as_claimed = as_claimed
        self._asking = _Asking(self._client, _local(fallback, as_claimed), rest_s, clock)

    def __enter__(self) -> RemoteSelector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes its connections; the next question makes another."""
        self._client.close()

    def bind(
        self,
        device: Device | str,
        layer: Layer,
        facts: Facts | None = None,
        policy: Policy | None = None,
        *,
        closed_world: bool = False,
    ) -> RemoteBound:
        """Fixes everything but the request, as :meth:`~selector.Selector.bind`; asks nothing.

        Raises:
            TypeError: something is not of its type; a mapping makes no layer by itself.
            UnknownDeviceError: no such architecture or product.
            ValueRefusedError: a field is a set of values that has no name.
        """
        where, known, said = given(device, layer, facts, policy)
        question = {
            "manifest": self._manifest,
            "device": where,
            "layer": {name: _plain(name, value) for name, value in layer.fields.items()},
            "facts": dict(known.values),
            "policy": {**_members(said), "deny": dict(said.deny)},
            "as_claimed": self._as_claimed,
            "closed_world": closed_world,
        }

        def bind_here(selector: Selector) -> Bound:
            return selector.bind(where, layer, known, said, closed_world=closed_world)

        return RemoteBound(self._asking, question, bind_here)

    def fetch(self) -> Selector:
        """The manifest that the server holds now, with its overlays, loaded here; or the fallback.

        Raises:
            UnknownManifestError: the server has none of that name.
            ManifestError: this version of attnsel cannot read it.
            ServerError: there was no answer in time, or the manifest changed meanwhile.
        """
        return self._asking.answer(self._fetched, lambda selector, _: selector)

    def _fetched(self) -> Selector:
        first = self._asking.ask(self._path(0))
        names = first.headers.get("attnsel-sources", "").split(",")
        if not 0 < len(names) <= _MOST_SOURCES:
            raise _stranger(self.url, "it does not say which files its manifest is made of")
        digest = first.headers["attnsel-digest"]
        replies = [first, *(self._source(number, digest) for number in range(1, len(names)))]
        files = [unquote(name, errors="surrogateescape") for name in names]
        texts = [reply.data for reply in replies]
        manifest = load_sources(list(zip(files, texts, strict=True)))
        if manifest.ref.digest != digest:
            raise _stranger(self.url, "its manifest means something else here")
        return Selector(manifest.as_claimed() if self._as_claimed else manifest)

    def _source(self, number: int, digest: str) -> Reply:
        """A file of the manifest with this digest, also where several servers answer in turn.

        Raises:
            ServerError: it changed meanwhile.
        """
        for _ in range(_TURNS):
            reply = self._asking.ask(self._path(number))
            if reply.headers["attnsel-digest"] == digest:
                return reply
        words = "its manifest changed while it was read; ask again"
        raise ServerError(f"{self.url}: {words}", "CHANGED")

    def _path(self, source: int) -> str:
        name = "" if self._manifest is None else f"&manifest={quote(self._manifest, safe='')}"
        return f"/v1/manifest?source={source}{name}"


class RemoteBound:
    """A server's manifest bound to a device, a layer, facts and a policy: resolves requests."""

    def __init__(
        self,
        asking: _Asking,
        question: Mapping[str, object],
        bind_here: Callable[[Selector], Bound],
    ) -> None:
        self._asking = asking
        self._said = _text(question)[:-1] + b',"request":'
        self._bind_here = bind_here
        self._bound: Bound | None = None

    def resolve(
        self,
        query_len: int | None = None,
        seq_len: int | None = None,
        *,
        speculative_tokens: int = 0,
    ) -> Resolution:
        """The resolution of one request, as :meth:`~selector.Bound.resolve`.

        Raises:
            AttnselError: the question is refused, as the library refuses it.
            ServerError: there is no answer.
        """
        return self.resolve_one(Request(query_len, seq_len, speculative_tokens))

    def resolve_one(self, request: Request) -> Resolution:
        """The same, for a request that is already one; raises as :meth:`resolve` does."""
        body = self._said + msgspec.json.encode(request) + b"}"

        def resolve_here(selector: Selector, why: Fallback) -> Resolution:
            if self._bound is None:
                self._bound = self._bind_here(selector)
            return msgspec.structs.replace(self._bound.resolve_one(request), fallback=why)

        return self._asking.answer(lambda: self._asked(body), resolve_here)

    def _asked(self, body: bytes) -> Resolution:
        reply = self._asking.ask("/v1/resolve", body)
        try:
            return _RESOLUTION.decode(reply.data)
        except (msgspec.DecodeError, UnicodeDecodeError, AttnselError) as error:
            words = f"its answer is no resolution: {' '.join(str(error).split())}"
            raise _stranger(self._asking.url, words) from None


_RESOLUTION = msgspec.json.Decoder(Resolution)


def _local(fallback: Selector | str | Path | None, as_claimed: bool) -> Selector | None:
    if fallback is None or isinstance(fallback, Selector):
        return fallback
    return Selector.load(fallback, as_claimed=as_claimed)


def _text(value: object) -> bytes:
    import json

    return json.dumps(msgspec.to_builtins(value)).encode("ascii")


def _members(policy: Policy) -> dict[str, str | None]:
    return {
        "backend": policy.backend,
        "prefill_backend": policy.prefill_backend,
        "decode_backend": policy.decode_backend,
    }


def _plain(name: str, value: Value | Domain) -> Value:
    """A value as JSON has it; of the sets, only the one that is meant by ``true`` has a name.

    Raises:
        ValueRefusedError: it is another set.
    """
    if not isinstance(value, Domain):
        return value
    known = Vocabulary().fields.get(name)
    if value == Domain.between(max(1, known.low) if known else 1, None):
        return True
    raise ValueRefusedError(f"{name} is a set of values, which cannot be sent; give one of them")


# -- who is asked --------------------------------------------------------------------------------


class _Asking:
    """Asks a server; where it cannot, the fallback answers, and for a while alone.

    Attributes:
        url: of the server.
    """

    def __init__(
        self,
        client: Client,
        fallback: Selector | None,
        rest_s: float,
        clock: Callable[[], float],
    ) -> None:
        self.url = client.url
        self._client = client
        self._fallback = fallback
        self._rest_s = rest_s
        self._clock = clock
        self._lock = threading.Lock()
        self._down: Fallback | None = None
        self._ask_at = 0.0

    def ask(self, path: str, body: bytes | None = None) -> Reply:
        """What the server answers, if it does.

        Raises:
            AttnselError: the server refuses the question, as it would be refused here.
            ServerError: there is no such answer.
        """
        reply = self._client.ask(path, body)
        if reply.status != 200:
            raise _refusal(self._client, reply)
        if "attnsel-digest" not in reply.headers:
            raise _stranger(self.url, f"it answers {_kind(reply)}")
        return reply

    def answer(self, ask: Callable[[], T], ask_here: Callable[[Selector, Fallback], T]) -> T:
        """What the server answers; or the fallback, which is told why.

        Raises:
            AttnselError: the question is refused.
            ServerError: there is no answer, and no fallback.
        """
        if self._fallback is None:
            return ask()
        down = self._resting()
        if down is None:
            try:
                return ask()
            except ServerError as error:
                if not error.is_down:
                    raise
                down = Fallback(self.url, error.code, str(error))
            finally:
                with self._lock:
                    self._down, self._ask_at = down, self._clock() + self._rest_s
        return ask_here(self._fallback, down)

    def _resting(self) -> Fallback | None:
        """Why the server is not asked now, if it is not."""
        with self._lock:
            if self._down is None:
                return None
            if self._clock() < self._ask_at:
                return self._down
            self._ask_at = self._clock() + self._rest_s  # this one tries; others do not wait for it
            return None


# -- answers that are none -----------------------------------------------------------------------


class _Problem(msgspec.Struct):
    code: str
    detail: str


_PROBLEM = msgspec.json.Decoder(_Problem)

_REFUSALS: dict[str, type[AttnselError]] = {
    kind.code: kind
    for kind in (
        errors.ContradictionError,
        errors.UnknownBackendError,
        errors.UnknownDeviceError,
        errors.UnknownFieldError,
        errors.UnknownManifestError,
        errors.ValueRefusedError,
    )
}


def _refusal(client: Client, reply: Reply) -> AttnselError:
    """Why there is no answer."""
    url, status = client.url, reply.status
    problem = _problem(reply)
    if status == 401:
        words = "refuses the token" if client.shows_token else "wants a bearer token"
        return ServerError(f"{url}: {words}", "NO_TOKEN")
    if problem is not None and problem.code in _REFUSALS and status < 500:
        return _REFUSALS[problem.code](problem.detail)
    if problem is not None:
        return ServerError(f"{url}: {problem.detail}", problem.code, status >= 500)
    if status >= 500:
        return ServerError(f"{url}: fails: it answers {_kind(reply)}", "FAILED", True)
    if 300 <= status < 400:
        words = f"it answers {status} and points elsewhere, which is not followed; give that URL"
        return ServerError(f"{url}: {words}", "REDIRECT")
    return _stranger(url, f"it answers {_kind(reply)}")


def _problem(reply: Reply) -> _Problem | None:
    if not reply.headers.get("content-type", "").startswith("application/problem+json"):
        return None
    try:
        return _PROBLEM.decode(reply.data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _kind(reply: Reply) -> str:
    """``404 text/html``."""
    media = reply.headers.get("content-type", "").partition(";")[0].strip()
    return f"{reply.status} {media[:60]}".strip()


def _stranger(url: str, words: str) -> ServerError:
    return ServerError(
        f"{url}: is no attnsel server, or one of another version: {words}", "NOT_ATTNSEL"
    )
