"""The HTTP server: what it answers, and what it refuses."""

from __future__ import annotations

import http.client
import socket

import pytest

from replay.errors import TransportError, UsageError
from replay.web import MOST_BYTES, Answer, Server, parse_address


def broken(_):
    raise KeyError("secret")


ROUTES = {
    ("GET", "/"): lambda request: Answer(str(request.caller).encode()),
    ("POST", "/echo"): lambda request: Answer(request.body),
    ("GET", "/broken"): broken,
}


@pytest.fixture
def server():
    with Server(("127.0.0.1", 0), ROUTES) as running:
        yield running


def ask(server, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def spoken(server, raw):
    """What comes back when these very bytes are sent."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_answers(server):
    assert ask(server, "POST", "/echo", b"hello") == (200, b"hello")
    assert ask(server, "GET", "/?a=b")[0] == 200
    assert ask(server, "HEAD", "/") == (200, b"")


def test_one_connection_keeps_its_number(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    numbers = []
    for _ in range(3):
        connection.request("GET", "/")
        numbers.append(connection.getresponse().read())
    connection.close()
    assert len(set(numbers)) == 1
    assert ask(server, "GET", "/")[1] not in numbers


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "words"),
    [
        ("GET", "/nowhere", {}, 404, b"nothing at /nowhere"),
        ("GET", "/echo", {}, 405, b"does not take GET"),
        ("POST", "/echo", {"Content-Length": str(MOST_BYTES + 1)}, 413, b"at most"),
        ("POST", "/echo", {"Content-Length": "9" * 400}, 413, b"at most"),
        ("POST", "/echo", {"Content-Length": "-1"}, 411, b"Content-Length"),
        ("POST", "/echo", {"Transfer-Encoding": "chunked"}, 411, b"Content-Length"),
        ("GET", "/", {"Host": "evil.example"}, 403, b"not the host"),
        ("GET", "/", {"Origin": "http://evil.example"}, 403, b"other sites"),
        ("GET", "/broken", {}, 500, b"failed: KeyError"),
    ],
)
def test_refusals(server, method, path, headers, status, words):
    found, body = ask(server, method, path, None, headers)
    assert found == status
    assert words in body
    assert b"Traceback" not in body
    assert b"secret" not in body


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x" * 70_000 + b": y\r\n\r\n",
        b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nshort",
        b"\x00\xff\xfe",
    ],
)
def test_nonsense_does_not_end_it(server, raw):
    answer = spoken(server, raw)
    assert b"Traceback" not in answer
    assert not answer.startswith(b"HTTP/1.1 2")
    assert ask(server, "GET", "/")[0] == 200


def test_a_port_that_is_taken_is_told(server):
    with pytest.raises(TransportError, match=f":{server.port}: .*in use"):
        Server(("127.0.0.1", server.port), {})


def test_a_host_that_is_not_ours_is_told():
    with pytest.raises(TransportError, match=r"Nothing can listen on 192\.0\.2\.1:"):
        Server(("192.0.2.1", 0), {})


def test_it_closes_with_connections_open():
    with Server(("127.0.0.1", 0), ROUTES) as server:
        idle = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        busy = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        busy.request("GET", "/")
        assert busy.getresponse().read()
    assert idle.recv(1) == b""
    idle.close()
    busy.close()


@pytest.mark.parametrize("text", ["", "x", "host:", "127.0.0.1", ":65536", ":-1", ":\u0661"])
def test_addresses_that_are_none(text):
    with pytest.raises(UsageError, match="no address"):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "exposed"), [(":0", False), ("localhost:0", False), ("0.0.0.0:0", True)]
)
def test_who_can_reach_it(text, exposed):
    with Server(parse_address(text), ROUTES) as server:
        assert server.exposed is exposed
        assert server.target_for_others.startswith(("127.0.0.1:", "localhost:"))
        assert ask(server, "GET", "/")[0] == 200
