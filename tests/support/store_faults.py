"""A proxy on loopback in front of an S3 server that fails as stores and networks do, request by request.

It speaks HTTP to both sides and hands requests on byte for byte, host name and signature included, so that the server
behind it judges the true client. What happens to a request is a function's decision.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

_HOP = {"connection", "transfer-encoding", "keep-alive"}


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request."""

    kind: str
    """`status`, `drop` (before it arrives), `lose answer` (after it was done), `cut` (half of the body arrives),
    `lose write` (acknowledged, never done), `replay` (an earlier answer to the same kind of request), `slow`."""
    status: int = 503
    code: str = "SlowDown"
    delay_s: float = 0.0


Choose = Callable[[str, str, int], Fault | None]
"""(method, path with query, how many requests came before) -> what goes wrong."""


@dataclass
class Answer:
    """What the server said."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass
class FaultProxy:
    """The proxy; `choose` may be replaced at any time."""

    port: int
    """Of the server behind it."""
    choose: Choose = field(default=lambda method, path, count: None)
    counts: Counter[str] = field(default_factory=Counter)
    """Requests by method, and faults by kind."""
    requests: list[tuple[str, str]] = field(default_factory=list)

    def __enter__(self) -> FaultProxy:
        self._lock = threading.Lock()
        self._seen: dict[str, Answer] = {}
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        """Where clients dial."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def note(self, method: str, path: str) -> Fault | None:
        """Counts a request and decides on it."""
        with self._lock:
            fault = self.choose(method, path, len(self.requests))
            self.requests.append((method, path))
            self.counts[method] += 1
            if fault is not None:
                self.counts[fault.kind] += 1
            return fault

    def forward(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
        """The server's own answer."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            link.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                link.putheader(name, value)
            link.endheaders(body)
            found = link.getresponse()
            answer = Answer(found.status, found.getheaders(), found.read())
        finally:
            link.close()
        with self._lock:
            self._seen.setdefault(_kind_of(method, path), answer)
        return answer

    def cut(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> None:
        """Half of the body reaches the server, then the connection is gone."""
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as link:
            link.sendall(head.encode("latin-1") + body[: len(body) // 2])

    def earlier(self, method: str, path: str) -> Answer | None:
        """The first answer that a request of this kind ever got."""
        with self._lock:
            return self._seen.get(_kind_of(method, path))


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    owner: FaultProxy
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = [(name, value) for name, value in self.headers.items() if name.lower() != "connection"]
        fault = self.owner.note(self.command, self.path)
        if fault is None:
            self._answer(self.owner.forward(self.command, self.path, headers, body))
            return
        time.sleep(fault.delay_s)
        if fault.kind == "slow":
            self._answer(self.owner.forward(self.command, self.path, headers, body))
        elif fault.kind == "status":
            text = f"<Error><Code>{fault.code}</Code><Message>as the test wants it</Message></Error>"
            self._answer(Answer(fault.status, [("Content-Type", "application/xml")], text.encode()))
        elif fault.kind == "lose write":
            self._answer(Answer(200, [("ETag", '"0123456789abcdef0123456789abcdef"')], b""))
        elif fault.kind == "replay" and (earlier := self.owner.earlier(self.command, self.path)) is not None:
            self._answer(earlier)
        else:
            if fault.kind == "lose answer":
                self.owner.forward(self.command, self.path, headers, body)
            if fault.kind == "cut":
                self.owner.cut(self.command, self.path, headers, body)
            self.close_connection = True

    def _answer(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        has_body = self.command != "HEAD" and answer.status not in {204, 304}
        for name, value in answer.headers:
            if name.lower() not in _HOP and (name.lower() != "content-length" or not has_body):
                self.send_header(name, value)
        if has_body:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if has_body:
            self.wfile.write(answer.body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 -- names that http.server calls

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: tests speak for themselves."""


def _kind_of(method: str, path: str) -> str:
    """Lists of one bucket are alike whatever page they ask for; other requests are themselves."""
    return f"{method} {path.partition('?')[0]}" + (" list" if "list-type" in path else "")
