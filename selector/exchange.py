"""Questions to one server over HTTP, each within a deadline that covers all of it.

Connections are kept between questions. Every wait, for the name, the connection, each byte sent and
each byte received, ends when the question's time does: a server that drips is given up too.
"""

from __future__ import annotations

import io
import os
import socket
import threading
from base64 import b64encode
from concurrent.futures import Future
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from selector.errors import AttnselError, ValueRefusedError
from selector.fields import one_line

__all__ = ["Client", "Reply", "ServerError"]

_LONGEST = 64 << 20
"""Bytes of an answer; one of a model with many kinds of layers takes less than one of them."""

_MOST_IDLE = 16
"""Connections that are kept while nobody asks."""

_AGENT = "attnsel"


class ServerError(AttnselError, OSError):
    """A server gave no answer: it cannot be reached, fails, refuses, or is none of attnsel's.

    Attributes:
        code: ``UNREACHABLE``, ``TIMEOUT``, ``TLS``, ``CUT``, ``NOT_ATTNSEL``, ``REDIRECT``,
            ``FAILED``, ``NO_TOKEN``, ``CHANGED``, or what the server's own problem says.
        is_down: it cannot be reached or fails; it did not refuse the question.
    """

    code = "SERVER"

    def __init__(self, words: str, code: str = "SERVER", is_down: bool = False) -> None:
        super().__init__(words)
        self.code = code
        self.is_down = is_down


class Reply(NamedTuple):
    """What a server answered.

    Attributes:
        status: of HTTP.
        headers: by names in small letters.
        data: the body.
    """

    status: int
    headers: dict[str, str]
    data: bytes


class Client:
    """Asks one server, from any thread.

    Attributes:
        url: where the server is, without a ``/`` at its end.
        shows_token: whether a token goes with every question.
    """

    def __init__(self, url: str, token: str | None, timeout_s: float) -> None:
        """Reads the URL; connects to nothing.

        Args:
            url: http or https; a path is put before those of the service.
            token: shown as ``Authorization: Bearer``.
            timeout_s: longest time of one question.

        Raises:
            ValueRefusedError: the URL, the token or the time is none; or the proxy that the
                environment names is.
        """
        parts = _read_url(url)
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._timeout_s = _read_time(timeout_s)
        self._headers = {"User-Agent": _AGENT}
        self.shows_token = token is not None
        if token is not None:
            self._headers["Authorization"] = f"Bearer {_read_token(token)}"
        self._route = _Route(parts)
        self._idle: list[HTTPConnection] = []  # changed by single steps: a lock could be forked
        self._owner = os.getpid()

    def ask(self, path: str, body: bytes | None = None) -> Reply:
        """What the server answers: to a POST if there is a body, else to a GET.

        A connection that the server has closed since the last question is replaced once.

        Raises:
            ServerError: there was no whole answer in time.
        """
        until = monotonic() + self._timeout_s
        try:
            kept = self._take()
            if kept is not None:
                try:
                    return self._exchange(kept, path, body, until)
                except ConnectionError:
                    self.close()  # the others are no younger
            return self._exchange(_connect(self._route, until), path, body, until)
        except (OSError, HTTPException, ValueError) as error:  # the last by lengths below 0
            raise self._said(error) from None

    def close(self) -> None:
        """Closes the connections that nobody uses."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> HTTPConnection | None:
        if self._owner != os.getpid():  # forked: another process speaks on these
            self._owner, self._idle = os.getpid(), []
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _exchange(
        self, connection: HTTPConnection, path: str, body: bytes | None, until: float
    ) -> Reply:
        headers = self._headers | self._route.headers
        if body is not None:
            headers["Content-Type"] = "application/json"
        timed: Any = connection.sock
        timed.until = until
        try:
            target = self._route.target + path
            connection.request("GET" if body is None else "POST", target, body, headers)
            with connection.getresponse() as response:
                found = {name.lower(): value for name, value in response.getheaders()}
                reply = Reply(response.status, found, _body(response, self.url))
        except BaseException:
            connection.close()
            raise
        self._keep(connection)
        return reply

    def _keep(self, connection: HTTPConnection) -> None:
        if connection.sock is None:  # the server closes it
            return
        if len(self._idle) < _MOST_IDLE and self._owner == os.getpid():
            self._idle.append(connection)
        else:
            connection.close()

    def _said(self, error: Exception) -> ServerError:
        """What went wrong, with the server's URL."""
        if isinstance(error, ServerError):
            return error
        if isinstance(error, TimeoutError):
            words = f"no answer within {self._timeout_s:g} s"
            return ServerError(f"{self.url}: {words}", "TIMEOUT", True)
        if type(error).__module__ == "ssl":
            why = getattr(error, "verify_message", "") or getattr(error, "reason", "") or error
            words = f"no TLS: {one_line(why).lower().replace('_', ' ')}"
            return ServerError(f"{self.url}: {words}", "TLS", True)
        if isinstance(error, IncompleteRead):
            return ServerError(f"{self.url}: the answer breaks off", "CUT", True)
        if isinstance(error, OSError | UnicodeError):  # a name of which none can be
            words = one_line(getattr(error, "strerror", None) or error).lower()
            return ServerError(f"{self.url}: cannot be reached: {words}", "UNREACHABLE", True)
        return ServerError(f"{self.url}: is no HTTP server", "NOT_ATTNSEL")


def _body(response: HTTPResponse, url: str) -> bytes:
    """The whole body.

    Raises:
        IncompleteRead: the connection ended before it.
        ServerError: it is too long.
    """
    data = b"" if (response.length or 0) > _LONGEST else response.read(_LONGEST + 1)
    if len(data) > _LONGEST or (response.length or 0) > _LONGEST:
        words = f"{url}: the answer is longer than {_LONGEST:,} bytes"
        raise ServerError(words, "NOT_ATTNSEL")
    if response.length:
        raise IncompleteRead(b"", response.length)
    return data


# -- connections ---------------------------------------------------------------------------------


class _Timed:
    """A connected socket, of which every wait ends when the question's time does."""

    def __init__(self, sock: socket.socket) -> None:
        self.until = 0.0
        self._sock = sock

    def wait_no_longer(self) -> None:
        """Lets the next wait last as long as there is time.

        Raises:
            TimeoutError: there is none.
        """
        left = self.until - monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self.wait_no_longer()
            rest = rest[self._sock.send(rest) :]

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self, self._sock.makefile("rb", 0)))

    def close(self) -> None:
        self._sock.close()


class _TimedReader(io.RawIOBase):
    def __init__(self, timed: _Timed, raw: io.RawIOBase) -> None:
        self._timed = timed
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._timed.wait_no_longer()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _connect(route: _Route, until: float) -> HTTPConnection:
    """A connection.

    Looking up a name cannot be given up, so all of it is done by a thread that can be left behind.

    Raises:
        OSError: it cannot be made, or not in time.
    """
    connection = route.connection(max(0.001, until - monotonic()))
    done: Future[None] = Future()

    def connect() -> None:
        try:
            connection.connect()
        except BaseException as error:
            connection.close()
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=connect, name="attnsel-connect", daemon=True).start()
    try:
        done.result(max(0.0, until - monotonic()))
    except TimeoutError:
        done.add_done_callback(lambda _: connection.close())
        raise
    sock: Any = _Timed(connection.sock)
    connection.sock = sock
    return connection


class _Route:
    """How a server is come to: by itself, or through the proxy that the environment names.

    Attributes:
        target: begins what is asked for in a request.
        headers: of every request, for the proxy.
    """

    def __init__(self, parts: SplitResult) -> None:
        self._host = parts.hostname or ""
        self._is_tls = parts.scheme == "https"
        self._port = parts.port or (443 if self._is_tls else 80)
        self._proxy = _proxy(parts)
        self._proxy_headers = {} if self._proxy is None else _credentials(self._proxy)
        self.target = parts.path.rstrip("/")
        self.headers: dict[str, str] = {}
        if self._proxy is not None and not self._is_tls:
            self.target = f"http://{parts.netloc}{self.target}"
            self.headers = self._proxy_headers

    def connection(self, timeout_s: float) -> HTTPConnection:
        """A connection that is not yet made; each of its steps takes no longer than that."""
        host, port = self._host, self._port
        if self._proxy is not None:
            host, port = self._proxy.hostname or "", self._proxy.port or 80
        if not self._is_tls:
            return HTTPConnection(host, port, timeout=timeout_s)
        connection = HTTPSConnection(host, port, timeout=timeout_s)
        if self._proxy is not None:
            connection.set_tunnel(self._host, self._port, self._proxy_headers)
        return connection


def _proxy(parts: SplitResult) -> SplitResult | None:
    """The proxy for a URL, as ``urllib`` finds it in the environment.

    Raises:
        ValueRefusedError: it is no http proxy.
    """
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    said = getproxies().get(parts.scheme)
    if not said or proxy_bypass(parts.netloc):
        return None
    try:
        proxy = urlsplit(said if "://" in said else f"http://{said}")
        if proxy.scheme == "http" and proxy.hostname and proxy.port != 0:
            return proxy
    except ValueError:
        pass
    raise ValueRefusedError(
        f"{parts.scheme}_proxy names no http proxy such as http://proxy:3128; "
        f"no_proxy={parts.hostname} goes around it"
    )


def _credentials(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    shown = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(shown.encode()).decode()}"}


# -- what is given -------------------------------------------------------------------------------


def _read_url(url: str) -> SplitResult:
    """The parts of a URL.

    Raises:
        ValueRefusedError: it is none, or says more than where the server is.
    """
    try:
        parts = urlsplit(url)
        if "@" in parts.netloc:
            raise ValueRefusedError("the server's URL holds credentials; a token is given apart")
        is_plain = url.isascii() and url.isprintable() and " " not in url
        if is_plain and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            if parts.query or parts.fragment:
                raise ValueRefusedError(
                    f'"{one_line(url)}" goes on after its path; end it before ? or #'
                )
            return parts
    except ValueRefusedError:
        raise
    except ValueError:
        pass
    shown = one_line(url.rpartition("@")[2])
    raise ValueRefusedError(
        f'"{shown}" is not the URL of a server, such as http://127.0.0.1:8080 or https://host/path'
    )


def _read_time(timeout_s: float) -> float:
    if 0 < timeout_s <= 3600:
        return timeout_s
    raise ValueRefusedError(f"a timeout of {one_line(timeout_s)} s is not above 0 and within 3600")


def _read_token(token: str) -> str:
    if token and token.isascii() and token.isprintable() and " " not in token:
        return token
    raise ValueRefusedError("the token is not one word of ASCII characters")
