"""Server of the annotation page, on the loopback interface, for one annotator with a token.

Other pages in the annotator's browser have no access: every request must name this host (against
DNS rebinding), and all requests but those for the page's files must carry the address's token.
"""

import json
import os
import secrets
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import BoundedSemaphore, Lock, Thread
from typing import Any, Final

from merge_dataset.annotation.answers import (
    SCALE,
    Undo,
    append,
    current,
    parse_event,
    read_events,
    replay,
    require_kind,
)
from merge_dataset.annotation.session import Session, locked_answers, shown, shuffled


class OutdatedPage(Exception):
    """The page does not know of answers that were given meanwhile."""


class Desk:
    """Answers of one annotator, to read and to save; other annotators' answers are not shown.

    A page sends the position, from 0, at which it saves an event. So an event that is sent again,
    because the reply was lost, is not saved twice; and a page that is behind another one is told.
    """

    def __init__(self, session: Session, annotator: str, path: Path) -> None:
        """Read the answers in the file `path`, which must be locked."""
        self.session = session
        self.annotator = annotator
        self._path = path
        self._lock = Lock()
        self._events = read_events(path)
        replay(self._events)

    def state(self) -> dict[str, Any]:
        """Return everything that the page needs to continue."""
        with self._lock:
            standing = replay(self._events)
            position = len(self._events)
        return {
            "annotator": self.annotator,
            "session": self.session.folder.resolve().name,
            "kind": self.session.kind,
            "scale": list(SCALE.values()),
            "items": [
                shown(item, self.session.kind)
                for item in shuffled(self.session.items, self.annotator)
            ],
            "standing": [
                asdict(answer) for answer in standing if answer.variant_id in self.session.items
            ],
            "position": position,
        }

    def save(self, position: int, record: object) -> int:
        """Save an event; return the number of events; raise OutdatedPage if the page lacks some."""
        event = parse_event(record)
        if event.variant_id not in self.session.items:
            raise ValueError(f"expected a variant of the session, got {event.variant_id!r}")
        if not isinstance(event, Undo):
            require_kind(event, self.session.kind)
        with self._lock:
            if self._events[position:] == [event]:
                return len(self._events)
            if position != len(self._events):
                raise OutdatedPage(
                    f"{len(self._events)} events are saved, the page knows {position}"
                )
            replay([*self._events, event])
            try:
                append(self._path, [event])
            except OSError:
                self._events = read_events(self._path)
                raise
            self._events.append(event)
            return len(self._events)

    def progress(self) -> tuple[int, int]:
        """Count the variants that are answered, and all variants."""
        with self._lock:
            answers = current(replay(self._events))
        return len(answers.keys() & self.session.items.keys()), len(self.session.items)


LOOPBACK: Final = "127.0.0.1"

_PAGE: Final = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/saving.js": ("saving.js", "text/javascript"),
    "/view.js": ("view.js", "text/javascript"),
}
"""Path → file beside this module, and media type; the files have no data of the session."""

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}

_LONGEST: Final = 2**16
"""Most bytes of a request's body."""

_CONNECTIONS: Final = 32
"""Most connections at a time: a page opens several at once, one per request."""

_FULL: Final = b'{"error": "too many connections are open; close other pages of this address"}'
_BUSY: Final = (
    b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_FULL), _FULL)
)


@contextmanager
def serving(session: Session, annotator: str, *, port: int = 0) -> Iterator[tuple[Desk, str]]:
    """Serve the page in a thread, on its last port if free; yield the desk and the address."""
    with locked_answers(session, annotator) as path:
        desk = Desk(session, annotator, path)
        remembered = path.with_name(f".{annotator}.address.json")
        try:
            address = json.loads(remembered.read_text(encoding="utf-8"))
            old_port, token = int(address["port"]), str(address["token"])
        except (OSError, ValueError, TypeError, KeyError):
            old_port, token = 0, secrets.token_urlsafe(24)
        try:
            server = _Server((LOOPBACK, port or old_port), _Handler)
        except OSError as error:
            if port:
                message = f"--port {port}: expected a free port, got an error: {error}"
                raise OSError(message) from error
            server = _Server((LOOPBACK, 0), _Handler)
        server.desk, server.token = desk, token
        # Only this user may read the file.
        descriptor = os.open(remembered, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"port": server.server_port, "token": token}, file)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield desk, f"http://{LOOPBACK}:{server.server_port}/#{token}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def serve_until_stopped(
    session: Session, annotator: str, *, port: int, browser: bool, tell: Callable[[str], object]
) -> None:
    """Serve the page, optionally open it in a browser, and report progress, until Ctrl+C."""
    answered = "{:,} of {:,} variants answered.".format
    with serving(session, annotator, port=port) as (desk, url):
        tell(f"{url}\n{answered(*desk.progress())} Ctrl+C stops; every answer is saved.")
        if browser:
            webbrowser.open(url)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            tell(f"\n{answered(*desk.progress())}")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    desk: Desk
    token: str

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._free = BoundedSemaphore(_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a new thread; while too many connections are open, only with an error."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            with suppress(OSError):
                request.sendall(_BUSY)  # less than a socket's buffer, so this does not block
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then free the place for another connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a tab that was closed before it got an answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Refused(Exception):
    """Refusal of a request, with status and message."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30

    def do_GET(self) -> None:
        """Answer with a file of the page, with the state, or with the result of saving."""
        try:
            port = self.server.server_port
            if self.headers.get("Host") not in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
                raise _Refused(HTTPStatus.FORBIDDEN, f"expected the host {LOOPBACK}:{port}")
            content, kind = self._respond()
            status = HTTPStatus.OK
        except _Refused as refused:
            status, message = refused.args
            content, kind = json.dumps({"error": message}).encode(), "application/json"
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def _respond(self) -> tuple[bytes, str]:
        if self.command == "GET" and self.path in _PAGE:
            name, kind = _PAGE[self.path]
            return (files(__package__) / "page" / name).read_bytes(), kind
        if self.path != ("/session" if self.command == "GET" else "/events"):
            raise _Refused(HTTPStatus.NOT_FOUND, f"nothing is at {self.path}")
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if not secrets.compare_digest(given.encode(), self.server.token.encode()):
            raise _Refused(
                HTTPStatus.FORBIDDEN, "expected the token of the address that the command printed"
            )
        if self.command == "GET":
            return json.dumps(self.server.desk.state()).encode(), "application/json"
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _LONGEST:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"expected at most {_LONGEST} bytes")
        try:
            body = json.loads(self.rfile.read(int(length)))
            position, event = body["position"], body["event"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            wanted = "expected a JSON object with position and event"
            raise _Refused(HTTPStatus.BAD_REQUEST, wanted) from error
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            wanted = f"position: expected a number from 0, got {position!r}"
            raise _Refused(HTTPStatus.BAD_REQUEST, wanted)
        try:
            saved = self.server.desk.save(position, event)
        except ValueError as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, str(error)) from error
        except OutdatedPage as error:
            raise _Refused(HTTPStatus.CONFLICT, str(error)) from error
        except OSError as error:
            why = error.strerror or str(error)
            raise _Refused(HTTPStatus.INSUFFICIENT_STORAGE, why) from error
        return json.dumps({"position": saved}).encode(), "application/json"

    def version_string(self) -> str:
        """Return the name of the program without versions."""
        return "merge-nli"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, as the page shows errors."""
