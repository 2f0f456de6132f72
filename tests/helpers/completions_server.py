"""A small loopback server that answers as OpenAI-compatible servers do, well or badly."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from merge_metric.models.pair_model import ModelRequest
from merge_metric.models.remote import RemoteModel


@dataclass
class Reply:
    body: Any = None
    """Body of the reply: an object to send as JSON, or bytes to send unchanged."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    """Announce more bytes than are sent, then hang up."""


@dataclass
class Request:
    path: str
    payload: dict[str, Any]
    headers: dict[str, str]


class Server:
    """A server with its `url`, its requests, and the most requests answered at once."""

    def __init__(self, answer: Callable[[Request, int], Reply]) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self._open = 0
        self.requests: list[Request] = []
        self.most_at_once = 0
        self.url = ""

    def reply(self, request: Request) -> Reply:
        with self._lock:
            number = len(self.requests)
            self.requests.append(request)
            self._open += 1
            self.most_at_once = max(self.most_at_once, self._open)
        try:
            return self._answer(request, number)
        finally:
            with self._lock:
                self._open -= 1


@contextmanager
def serving(answer: Callable[[Request, int], Reply]) -> Iterator[Server]:
    """Run a server; `answer` gets each request and the number of earlier requests."""
    server = Server(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            payload = json.loads(self.rfile.read(length))
            reply = server.reply(Request(self.path, payload, dict(self.headers)))
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body) + 10 * reply.cut))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = reply.cut

        def log_message(self, *_: Any) -> None:
            pass

    with answering(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        server.url = f"{url}/v1"
        yield server


@contextmanager
def answering(http: ThreadingHTTPServer) -> Iterator[str]:
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def remote_model(url: str, **options: Any) -> RemoteModel:
    """A model on a server; options are those of requests, or of `RemoteModel` itself."""
    names = ("prompt", "words", "api_key", "timeout", "retries", "backoff")
    own = {"backoff": 0.01} | {name: options.pop(name) for name in names if name in options}
    return RemoteModel(ModelRequest(**{"model": "tiny", "base_url": url, **options}), **own)
