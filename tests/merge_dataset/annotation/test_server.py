import errno
import json
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from helpers.annotating import Client

from merge_dataset.annotation import server as desk_module
from merge_dataset.annotation.answers import Answer, answers_path, append, read_events
from merge_dataset.annotation.server import Desk, serving, shuffled
from merge_dataset.annotation.session import Session, locked_answers

CAT = "snli:1/noun/dog/cat"
ANSWER = {"variant_id": CAT, "fluency": 4, "reasoning": 5, "comment": "ok"}
UNDO = {"variant_id": CAT, "undone": True}


@pytest.fixture
def client(session: Session) -> Iterator[Client]:
    with serving(session, "ann") as (_, url):
        yield Client(url)


@pytest.fixture
def saved(session: Session) -> Path:
    return answers_path(session.folder, "ann")


def test_the_page_is_told_what_to_show(client: Client) -> None:
    told = client.session()
    assert (told["annotator"], told["session"], told["position"]) == ("ann", "study", 0)
    assert told["standing"] == []
    assert told["items"] == sorted(told["items"], key=lambda item: told["items"].index(item))
    item = next(item for item in told["items"] if item["id"] == CAT)
    assert item == {
        "id": CAT, "label": "neutral", "changes": [["dog", "cat"]], "shared": [],
        "texts": [
            {"field": "premise",
             "original": [["A girl and a small ", False], ["dog", True], [" run.", False]],
             "variant": [["A girl and a small ", False], ["cat", True], [" run.", False]]},
            {"field": "hypothesis",
             "original": [["A girl has a small ", False], ["dog", True], [".", False]],
             "variant": [["A girl has a small ", False], ["cat", True], [".", False]]},
        ],
    }  # fmt: skip
    assert "bert" not in json.dumps(told)


def test_the_order_is_each_annotators_own(session: Session) -> None:
    orders = {name: [i.variant_id for i in shuffled(session.items, name)] for name in "abcd"}
    assert len({tuple(order) for order in orders.values()}) == 4
    assert {frozenset(order) for order in orders.values()} == {frozenset(session.items)}
    assert [i.variant_id for i in shuffled(session.items, "a")] == orders["a"]
    append(answers_path(session.folder, "bo"), [Answer(CAT, 1, 1, "secret")])
    with serving(session, "ann") as (_, url):
        page = Client(url)
        page.save(0, ANSWER)
        assert page.session()["standing"] == [ANSWER]
        assert "secret" not in page.ask("GET", "/session").body.decode()


def test_answers_are_saved_once(client: Client, saved: Path) -> None:
    """After a lost reply, the page sends again; two tabs may have the same annotator."""
    reply = client.save(0, ANSWER)
    assert (reply.status, reply.json) == (200, {"position": 1})
    assert read_events(saved) == [Answer(CAT, 4, 5, "ok")]
    assert client.session()["standing"] == [ANSWER]
    for _ in range(3):
        assert client.save(0, ANSWER).json == {"position": 1}
    assert client.save(1, UNDO).json == client.save(1, UNDO).json == {"position": 2}
    assert len(read_events(saved)) == 2
    reply = client.save(0, ANSWER | {"fluency": 1})
    assert (reply.status, reply.json) == (409, {"error": "2 events are saved, the page knows 0"})
    assert client.save(5, ANSWER).status == 409
    assert len(read_events(saved)) == 2


def test_it_goes_on_where_it_stopped_at_the_same_address(session: Session) -> None:
    """A page that was left open continues by itself."""
    urls, standing = [], []
    for position in range(3):
        with serving(session, "ann") as (desk, url):
            urls.append(url)
            Client(url).save(position, ANSWER | {"fluency": position + 1})
            standing.append(Client(url).session()["standing"])
            assert desk.progress() == (1, 11)
    assert len(set(urls)) == 1
    assert [len(each) for each in standing] == [1, 2, 3]
    address = session.folder / "answers/.ann.address.json"
    assert stat.S_IMODE(address.stat().st_mode) == 0o600


def test_a_full_disk_is_said_and_the_answer_can_be_sent_again(
    client: Client, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.save(0, ANSWER)

    def full(path: Path, events: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(desk_module, "append", full)
        reply = client.save(1, UNDO)
        assert (reply.status, reply.json) == (507, {"error": "No space left on device"})
    assert client.session()["position"] == 1
    assert client.save(1, UNDO).json == {"position": 2}


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"variant_id": "snli:9", "fluency": 1, "reasoning": 1}, "expected a variant of the sess"),
        (ANSWER | {"fluency": 9}, "fluency: expected a whole number from 1 to 5, got 9"),
        (UNDO, f"expected an answer to '{CAT}' to undo, got none"),
        ([], "expected a JSON object, got []"),
    ],
)
def test_other_events_are_refused(client: Client, saved: Path, event: object, message: str) -> None:
    reply = client.save(0, event)
    assert reply.status == 400
    assert message in reply.json["error"]
    assert read_events(saved) == []


def test_other_requests_are_refused(client: Client) -> None:
    for body in (b"", b"x", b"[]", b"{}", b'{"position": 1}', b"[" * 60_000):
        reply = client.ask("POST", "/events", body)
        assert reply.status == 400
        assert reply.json == {"error": "expected a JSON object with position and event"}
    for position in (-1, "0", True, 1.5, None):
        error = f"position: expected a number from 0, got {position!r}"
        assert client.save(position, ANSWER).json == {"error": error}
    assert client.ask("POST", "/events", b" " * 65537).status == 400
    reply = client.ask("POST", "/events", headers={"Content-Length": "-1"})
    assert reply.json == {"error": "expected at most 65536 bytes"}


def test_answers_to_variants_of_no_item_do_not_count(session: Session, saved: Path) -> None:
    append(saved, [Answer("snli:77", 1, 1)])
    with locked_answers(session, "ann") as path:
        desk = Desk(session, "ann", path)
    assert desk.progress() == (0, 11)
    assert desk.state()["standing"] == []


@pytest.mark.parametrize("token", [None, "x", "é"])
@pytest.mark.parametrize(("method", "path"), [("GET", "/session"), ("POST", "/events")])
def test_without_the_token_nothing_is_told_or_saved(
    client: Client, saved: Path, method: str, path: str, token: str | None
) -> None:
    body = json.dumps({"position": 0, "event": ANSWER}).encode()
    headers = {} if token != "é" else {"Authorization": "Bearer \xe9"}
    reply = client.ask(method, path, body, token=None if token == "é" else token, headers=headers)
    assert reply.status == 403
    assert "expected the token of the address" in reply.json["error"]
    assert read_events(saved) == []


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", ""])
@pytest.mark.parametrize("path", ["/", "/session", "/page.js"])
def test_other_names_of_the_host_are_refused(client: Client, host: str, path: str) -> None:
    """A page of somebody else, with a host name pointed at this machine."""
    port = client.url.split(":")[2].split("/")[0]
    reply = client.ask("GET", path, headers={"Host": host.format(port=port)})
    assert (reply.status, reply.json) == (403, {"error": f"expected the host 127.0.0.1:{port}"})
    assert client.ask("GET", "/session", headers={"Host": f"localhost:{port}"}).status == 200


def test_where_it_listens(session: Session) -> None:
    with serving(session, "ann") as (_, url):
        port = int(url.split(":")[2].split("/")[0])
        with socket.socket() as other:
            other.bind(("127.0.0.2", port))  # refused, unless the server listens on every address
            assert other.getsockname() == ("127.0.0.2", port)
    with serving(session, "ann") as (_, url):
        old = url
    port = int(old.split(":")[2].split("/")[0])
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with serving(session, "ann") as (_, url):
            assert url != old
            assert url.partition("#")[2] == old.partition("#")[2]
        with (
            pytest.raises(OSError, match=f"--port {port}: expected a free port, got an error"),
            serving(session, "bo", port=port),
        ):
            pass


def test_pages_are_locked_down(client: Client) -> None:
    for path in ("/", "/page.css", "/page.js", "/saving.js", "/view.js"):
        reply = client.ask("GET", path, token=None)
        assert reply.status == 200
        policy = reply.headers["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Cache-Control"] == "no-store"
        assert reply.headers["Referrer-Policy"] == "no-referrer"
        assert reply.headers["Server"] == "merge-nli"
    page = client.ask("GET", "/").body.decode()
    assert "style=" not in page
    assert "http" not in page
    folder = Path(desk_module.__file__).parent / "page"
    scripts = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.js"))
    for risky in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert risky not in scripts
    for other in ("/nothing", "/../server.py", "/page/", "/page/page.js", "/?x"):
        assert client.ask("GET", other).status == client.ask("POST", other, b"{}").status == 404


def test_a_tab_that_is_closed_is_no_error(
    client: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    port = int(client.url.split(":")[2].split("/")[0])
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", port)) as tab:
            tab.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            tab.sendall(f"GET /page.js HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    assert client.session()["position"] == 0
    assert capfd.readouterr().err == ""


def test_annotators_can_work_at_the_same_time(session: Session) -> None:
    with serving(session, "ann") as (_, one), serving(session, "bo") as (_, two):
        Client(one).save(0, ANSWER)
        assert Client(two).session()["standing"] == []
        assert Client(two).ask("GET", "/session", token=one.partition("#")[2]).status == 403


@pytest.mark.slow
def test_open_connections_are_bounded(client: Client) -> None:
    where = urlsplit(client.url)
    idle = [socket.create_connection((where.hostname, where.port), timeout=10) for _ in range(32)]
    with socket.create_connection((where.hostname, where.port), timeout=10) as one_more:
        assert one_more.recv(12) == b"HTTP/1.0 503"
        assert "too many connections are open" in one_more.makefile().read()
    for connection in idle:
        connection.close()
    for _ in range(100):
        try:
            assert client.ask("GET", "/").status == 200
            break
        except ConnectionError:
            time.sleep(0.05)
    else:
        pytest.fail("expected room for a connection, got none in five seconds")
