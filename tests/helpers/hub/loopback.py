"""A Hub on loopback, over real HTTP, to publish and load; as a proxy it refuses all requests."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from helpers.completions_server import answering
from helpers.hub.endpoints import ROUTES, Asked, LoopbackHub, Refused, Reply, Seen
from helpers.hub.repositories import User


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in one piece, as a second piece would wait for an acknowledgement
    hub: LoopbackHub

    def do_CONNECT(self) -> None:
        """Refuse a request for another host, made to this server as a proxy."""
        self._send("outside", Reply({"error": "no way out of here"}, 502))

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        method = "GET" if self.command == "HEAD" else self.command
        # Match before unquoting: a revision's slash is %2F.
        matches = (
            (route, pattern.fullmatch(parts.path))
            for wanted, route, pattern in ROUTES
            if wanted == method
        )
        route, match = next(((r, m) for r, m in matches if m), ("none", None))
        if not parts.path.startswith("/") or parts.netloc:
            route, match = "outside", None
        if match is None:
            self._read_body()
            self._send(route, Reply({"error": f"no such route: {self.path}"}, 404))
            return
        fault = self.hub.fault(route, self.command)
        if fault is not None and fault.cut == "before":
            self._hang_up(route)
            return
        if fault is not None and (fault.cut == "during" or fault.hold):
            self._read_body(half=True)
            if fault.hold:
                fault.reached.set()
                fault.release.wait(60)
            self._hang_up(route)
            return
        body = self._read_body()
        if fault is not None and fault.status is not None:
            headers = {"X-Error-Message": fault.message, **fault.headers}
            self._send(route, Reply({"error": fault.message}, fault.status, headers))
            return
        groups = {k: unquote(v) for k, v in match.groupdict().items() if v is not None}
        query = {k: v[0] for k, v in parse_qs(parts.query).items()}
        try:
            told = (self.command, groups, query, self.headers, body, self._user(), self.path)
            reply = self.hub.answer(route, Asked(*told))
        except Refused as refused:
            reply = refused.reply
        except Exception as error:
            self.hub.errors.append(error)
            reply = Reply({"error": f"a mistake in the loopback Hub: {error!r}"}, 501)
        if fault is not None and fault.cut == "after":
            self._hang_up(route)
            return
        self._send(route, reply)

    do_GET = do_HEAD = do_POST = do_PUT = _serve

    def _user(self) -> User | None:
        given = self.headers.get("Authorization")
        if given is None:
            return None
        user = self.hub.users.get(given.removeprefix("Bearer "))
        if user is None:
            raise Refused(401, "Invalid credentials in Authorization header")
        return user

    def _read_body(self, *, half: bool = False) -> bytes:
        length = int(self.headers.get("Content-Length") or 0)
        return self.rfile.read(length // 2 if half else length)

    def _hang_up(self, route: str) -> None:
        self._saw(route, None)
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, route: str, reply: Reply) -> None:
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self._saw(route, reply.status)
        self.send_response(reply.status)
        kind = "application/octet-stream" if isinstance(reply.body, bytes) else "application/json"
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), **reply.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _saw(self, route: str, status: int | None) -> None:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        name = getattr(self.hub.users.get(given), "name", None)
        self.hub.requests.append(Seen(self.command, self.path, route, name, status))


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Ignore a client that was killed."""


@contextmanager
def loopback_hub() -> Iterator[LoopbackHub]:
    hub = LoopbackHub()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    with answering(server) as hub.url:
        try:
            yield hub
        finally:
            for fault in hub._faults:
                fault.release.set()
