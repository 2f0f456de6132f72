import json
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any, Final
from urllib.parse import urlsplit

MAIN: Final = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs the tests may ignore it
from generation.cli import app
app(prog_name="merge-nli")
"""


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Client:
    url: str

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        token: str | None = "",
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """Send a request with a token: by default the address's token; with None, no token."""
        where = urlsplit(self.url)
        sent = {} if token is None else {"Authorization": f"Bearer {token or where.fragment}"}
        connection = HTTPConnection(str(where.hostname), where.port, timeout=10)
        try:
            connection.request(method, path, body, sent | (headers or {}))
            response = connection.getresponse()
            return Reply(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def session(self) -> Any:
        return self.ask("GET", "/session").json

    def save(self, position: int, event: object) -> Reply:
        body = json.dumps({"position": position, "event": event}).encode()
        return self.ask("POST", "/events", body)
