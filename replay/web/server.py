"""A small HTTP server: some paths, a thread to each connection, loopback unless told otherwise."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import socket
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Self

from replay.errors import TransportError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

__all__ = ["MOST_BYTES", "Answer", "Request", "Route", "Server", "parse_address"]

MOST_BYTES = 4_194_304
"""Longest body that is read."""

_PATIENCE = 30.0
"""Wall seconds for which a connection may say nothing."""

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asks.

    Attributes:
        body: What was sent along.
        caller: Number of the connection.
    """

    body: bytes = b""
    caller: int = 0


Route = Callable[[Request], "Answer"]
"""What answers the requests for one path."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request is answered with.

    Attributes:
        body: The content.
        type: Its media type.
        status: 200 unless something is wrong.
    """

    body: bytes = b""
    type: str = "text/plain; charset=utf-8"
    status: int = 200


def parse_address(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT``, ``:PORT`` or ``PORT``; the host is loopback unless it is given.

    Raises:
        UsageError: It is none of these.

    Examples:
        >>> parse_address(":9400"), parse_address("0.0.0.0:9400"), parse_address("[::1]:0")
        (('127.0.0.1', 9400), ('0.0.0.0', 9400), ('::1', 0))

    """
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdecimal() and int(port) < 65_536):
        raise UsageError(f"{text!r} is no address to listen on.", "127.0.0.1:9400, or :0")
    return host or _LOOPBACK, int(port)


class Server:
    """Answers requests until it is closed.

    Args:
        address: Host and port; port 0 takes a free one.
        routes: Method and path → what answers.

    Attributes:
        host: Where it listens.
        port: The port it has.

    Raises:
        TransportError: The port is taken, or the host is not this machine's.

    Examples:
        >>> import urllib.request
        >>> with Server(("127.0.0.1", 0), {("GET", "/healthz"): lambda _: Answer(b"ok")}) as server:
        ...     urllib.request.urlopen(f"{server.url}/healthz").read()
        b'ok'

    """

    def __init__(
        self,
        address: tuple[str, int],
        routes: Mapping[tuple[str, str], Route],
    ) -> None:
        self.host = address[0]
        try:
            self._inner = _Inner(address, dict(routes))
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise TransportError(
                f"Nothing can listen on {address[0]}:{address[1]}: {why}.", "another port, or :0"
            ) from error
        self.port = int(self._inner.server_address[1])
        self._thread = threading.Thread(
            target=self._inner.serve_forever, args=(0.05,), name="web", daemon=True
        )

    @property
    def target(self) -> str:
        """Host and port, as one writes them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def target_for_others(self) -> str:
        """The same for a process on this machine, where it listens everywhere."""
        if self.host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
            return f"{_LOOPBACK}:{self.port}"
        return self.target

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{self.target}"

    @property
    def exposed(self) -> bool:
        """Whether other machines can reach it."""
        return not _is_loopback(self.host)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inner.shutdown()
        self._thread.join()
        self._inner.hang_up()
        self._inner.server_close()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Inner(socketserver.ThreadingTCPServer):
    """Keeps the open connections, so that they can be ended."""

    allow_reuse_address = True
    daemon_threads = False
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[str, int],
        routes: dict[tuple[str, str], Route],
    ) -> None:
        self.routes = routes
        self.loopback = _is_loopback(address[0])
        self.open: set[socket.socket] = set()
        self.callers = itertools.count(1)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a connection."""
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Let a connection go."""
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is nobody's concern."""

    def hang_up(self) -> None:
        """End all connections."""
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = _PATIENCE
    disable_nagle_algorithm = True
    server_version = "alert-replay"
    sys_version = ""
    server: _Inner

    def setup(self) -> None:
        """Number the connection."""
        self._caller = next(self.server.callers)
        super().setup()

    def do_GET(self) -> None:
        """Answer."""
        self._serve()

    do_POST = do_HEAD = do_GET  # noqa: N815 - the library's names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Say nothing: the terminal belongs to the replay."""

    def _serve(self) -> None:
        try:
            answer = self._answered()
        except _Refusal as refusal:
            self.close_connection = True  # what follows on this connection may be its body
            answer = Answer(f"{refusal.what}\n".encode(), status=refusal.status)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _answered(self) -> Answer:
        self._check_caller()
        path = self.path.partition("?")[0]
        method = "GET" if self.command == "HEAD" else self.command
        route = self.server.routes.get((method, path))
        if route is None:
            if any(known == path for _, known in self.server.routes):
                raise _Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} does not take {method}")
            raise _Refusal(HTTPStatus.NOT_FOUND, f"there is nothing at {path[:200]}")
        body = self._body() if method == "POST" else b""
        try:
            return route(Request(body, self._caller))
        except Exception as error:
            raise _Refusal(
                HTTPStatus.INTERNAL_SERVER_ERROR, f"failed: {type(error).__name__}"
            ) from error

    def _check_caller(self) -> None:
        """Refuse pages of other sites, which a browser on this machine may be showing."""
        host = self.headers.get("Host", "")
        origin = self.headers.get("Origin")
        if self.server.loopback and host:
            name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
            if not _is_loopback(name.removeprefix("[").removesuffix("]")):
                raise _Refusal(HTTPStatus.FORBIDDEN, "this is not the host you are looking for")
        if origin is not None and origin != f"http://{host}":
            raise _Refusal(HTTPStatus.FORBIDDEN, "pages of other sites may not ask")

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") or not (length.isascii() and length.isdecimal()):
            raise _Refusal(HTTPStatus.LENGTH_REQUIRED, "a Content-Length is needed")
        if len(length) > 12 or int(length) > MOST_BYTES:
            raise _Refusal(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MOST_BYTES} bytes are read"
            )
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise _Refusal(HTTPStatus.BAD_REQUEST, "the body ends too early")
        return body


class _Refusal(Exception):  # noqa: N818 - never leaves this module
    """A request that is not answered as asked."""

    def __init__(self, status: HTTPStatus, what: str) -> None:
        super().__init__(status, what)
        self.status = status.value
        self.what = what
