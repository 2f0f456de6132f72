import base64
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qs

import yaml

from helpers.hub.repositories import Entry, Repo, User, entries_of, listing

SIGNATURE = "X-Signature=s3cr3t"
"""Query of the upload addresses of large files: as secret as a password."""

NO_WAITS = """
import types
import huggingface_hub.utils._http
huggingface_hub.utils._http.time = types.SimpleNamespace(sleep=lambda seconds: None)
"""
"""Code without which the Hub's library waits half a minute before it tries again."""

_KINDS = {"datasets": "dataset", "spaces": "space", "models": "model"}
_FRAMEWORKS = {"inspect-ai", "harbor", "mteb"}
"""Some of the frameworks that the Hub knows; others are refused."""

Cut = Literal["before", "during", "after"]


@dataclass
class Fault:
    """A fault in the nth requests of a route, counted after it is set."""

    route: str
    method: str | None
    nth: range
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "made to fail"
    cut: Cut | None = None
    hold: bool = False
    seen: int = 0
    reached: threading.Event = field(default_factory=threading.Event)
    """Set when a held request is half done."""
    release: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    route: str
    user: str | None
    status: int | None
    """None if the connection was cut."""


@dataclass
class Reply:
    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Refused(Exception):
    def __init__(self, status: int, message: str, code: str | None = None, **headers: str) -> None:
        super().__init__(message)
        told = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
        self.reply = Reply({"error": message}, status, told | headers)


@dataclass(frozen=True)
class Asked:
    method: str
    groups: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    user: User | None
    path: str

    @property
    def payload(self) -> Any:
        return json.loads(self.body)


class LoopbackHub:
    def __init__(self) -> None:
        self.url = ""
        self.users: dict[str, User] = {}
        self.repos: dict[tuple[str, str], Repo] = {}
        self.requests: list[Seen] = []
        self.large: dict[str, bytes] = {}
        self.page = 1000
        self.before: dict[str, Callable[[], object]] = {}  # route → an action by another user, once
        self.tampered: dict[str, bytes] = {}  # path → content served in place of the true one
        self.moved: dict[str, str] = {}  # old id of a model → its new id
        self.watch: Callable[[str, Asked], object] = lambda route, asked: None
        self.errors: list[Exception] = []
        self._faults: list[Fault] = []
        self._lock = threading.RLock()

    def reset(self) -> None:
        """Forget everything except the users."""
        assert self.errors == []
        for kept in (self.repos, self.requests, self.large, self._faults):
            kept.clear()
        self.page = 1000
        self.before, self.tampered, self.moved = {}, {}, {}
        self.watch = lambda route, asked: None

    def repo(self, kind: str, name: str) -> Repo:
        return self.repos[kind, name]

    def make(self, kind: str, name: str, *, private: bool = False, sdk: str | None = None) -> Repo:
        made = self.repos[kind, name] = Repo(private=private, sdk=sdk)
        attributes = b"*.parquet filter=lfs diff=lfs merge=lfs -text\n"
        made.add("main", {".gitattributes": Entry(attributes, False)}, "initial commit")
        return made

    def fail(
        self,
        route: str,
        status: int | None = None,
        *,
        nth: int = 1,
        times: int = 1,
        method: str | None = None,
        **more: Any,
    ) -> Fault:
        fault = Fault(route, method, range(nth, nth + times), status, **more)
        self._faults.append(fault)
        return fault

    def forgive(self) -> None:
        self._faults.clear()

    def environment(self, token: str | None = None, **ours: object) -> dict[str, str]:
        """Environment without the user's Hub settings and offline mode, with this Hub's address."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
        login = {} if token is None else {"HF_TOKEN": token}
        return kept | login | {k: str(v) for k, v in ours.items()} | {
            "HF_ENDPOINT": self.url, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_UPDATE_DOWNLOAD_COUNTS": "0", "no_proxy": "127.0.0.1,localhost",
            "http_proxy": self.url, "https_proxy": self.url, "COLUMNS": "200",
        }  # fmt: skip

    def serve(
        self, name: str, files: Mapping[str, bytes], *, allowed: tuple[str, ...] | None = None
    ) -> Repo:
        made = self.make("model", name)
        made.allowed = allowed
        made.add("main", entries_of(files), "upload")
        return made

    def strayed(self) -> list[str]:
        """List requests not needed to read a model, such as those to conversion services."""
        needed = {"info", "tree", "paths", "resolve", "storage", "refs"}
        odd = [r for r in self.requests if r.route not in needed]
        return [f"{request.method} {request.path}" for request in odd]

    def fault(self, route: str, method: str) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.route == route and fault.method in (None, method):
                    fault.seen += 1
                    if fault.seen in fault.nth:
                        return fault
        return None

    def answer(self, route: str, asked: Asked) -> Reply:
        with self._lock:
            self.before.pop(route, lambda: None)()
            handler: Callable[[Asked], Reply] = getattr(self, f"_{route.replace('-', '_')}")
            try:
                return handler(asked)
            finally:
                self.watch(route, asked)

    # --- Routes ---

    def _whoami(self, asked: Asked) -> Reply:
        token = {"displayName": "test", "role": asked.user.role}
        told = {"type": "user", "name": asked.user.name}
        told["auth"] = {"type": "access_token", "accessToken": token}
        return Reply(told | {"orgs": [{"name": name} for name in asked.user.organisations]})

    def _create(self, asked: Asked) -> Reply:
        value = asked.payload
        kind = value.get("type") or "model"
        owner = value.get("organization") or (asked.user.name if asked.user else "")
        name = f"{owner}/{value['name']}"
        folder = "" if kind == "model" else f"{kind}s/"
        address = f"{self.url}/{folder}{name}"
        if asked.user is None:
            raise Refused(401, "Invalid username or password.")
        if not asked.user.may_write(name):
            raise Refused(
                403, f"You don't have the rights to create a {kind} under the namespace {owner!r}"
            )
        assert (kind, name) not in self.repos
        assert kind != "space" or value["sdk"]
        private = value.get("visibility") == "private" or bool(value.get("private"))
        self.make(kind, name, private=private, sdk=value.get("sdk"))
        return Reply({"url": address, "name": name, "id": "1"})

    def _validate(self, asked: Asked) -> Reply:
        _, header, _ = asked.payload["content"].split("---\n", 2)
        yaml.safe_load(header)
        return Reply({"errors": [], "warnings": []})

    def _info(self, asked: Asked) -> Reply:
        repo, _ = self._found(asked)
        sha = self._resolved(repo, asked.groups.get("revision") or "main")
        files = repo.commits[sha].files
        return Reply(
            {
                "_id": "1",
                "id": self._name(asked),
                "author": asked.groups.get("owner"),
                "sha": sha,
                "private": repo.private,
                "gated": False if repo.allowed is None else "manual",
                "disabled": False,
                "downloads": 0,
                "likes": 0,
                "tags": [],
                "siblings": [
                    {"rfilename": path} | (entry.sized() if asked.query.get("blobs") else {})
                    for path, entry in files.items()
                ],
            }
        )

    def _refs(self, asked: Asked) -> Reply:
        repo, _ = self._found(asked)

        def listed(refs: Mapping[str, str], prefix: str) -> list[dict[str, str]]:
            return [
                {"name": name, "ref": f"{prefix}{name}", "targetCommit": sha}
                for name, sha in refs.items()
                if not name.startswith("refs/")
            ]

        branches, tags = listed(repo.branches, "refs/heads/"), listed(repo.tags, "refs/tags/")
        return Reply({"branches": branches, "tags": tags, "converts": []})

    def _tree(self, asked: Asked) -> Reply:
        repo, _ = self._found(asked)
        sha = self._resolved(repo, asked.groups["revision"])
        base = asked.groups.get("path") or ""
        recursive = asked.query.get("recursive", "").lower() in ("1", "true")
        entries = listing(repo.commits[sha].files, base, recursive=recursive)
        if base and not entries:
            raise Refused(404, f"{base} does not exist", "EntryNotFound")
        start = int(asked.query.get("cursor", "0"))
        headers = {}
        if start + self.page < len(entries):
            more = f"recursive={recursive}&cursor={start + self.page}"
            place = f"/api/{asked.groups['kinds']}/{self._name(asked)}/tree/{sha}"
            place += f"/{base}" if base else ""
            headers["Link"] = f'<{self.url}{place}?{more}>; rel="next"'
        return Reply(entries[start : start + self.page], headers=headers)

    def _paths(self, asked: Asked) -> Reply:
        repo, _ = self._found(asked)
        files = repo.commits[self._resolved(repo, asked.groups["revision"])].files
        wanted = parse_qs(asked.body.decode()).get("paths", [])
        return Reply([files[path].described(path) for path in wanted if path in files])

    def _preupload(self, asked: Asked) -> Reply:
        repo, _ = self._writable(asked)
        revision = asked.groups["revision"]
        files = repo.commits[self._resolved(repo, revision)].files
        answers = []
        for file in asked.payload["files"]:
            # By the Hub's own .gitattributes, or by size.
            is_large = file["path"].endswith(".parquet") or file["size"] > 10_000_000
            held = files.get(file["path"])
            oid = held and (held.sha256 if held.large else held.git_oid)
            answer = {"path": file["path"], "shouldIgnore": False}
            answer["uploadMode"] = "lfs" if is_large else "regular"
            answers.append(answer | ({"oid": oid} if oid else {}))
        return Reply({"files": answers})

    def _lfs_batch(self, asked: Asked) -> Reply:
        self._writable(asked, propose="ref" not in asked.payload)
        objects = []
        for item in asked.payload["objects"]:
            upload = {"href": f"{self.url}/lfs/{item['oid']}?{SIGNATURE}", "header": {}}
            actions = {} if item["oid"] in self.large else {"actions": {"upload": upload}}
            objects.append({"oid": item["oid"], "size": item["size"], **actions})
        return Reply({"transfer": "basic", "objects": objects})

    def _lfs_put(self, asked: Asked) -> Reply:
        oid = hashlib.sha256(asked.body).hexdigest()
        assert oid == asked.groups["oid"]
        self.large[oid] = asked.body
        return Reply(b"")

    def _commit(self, asked: Asked) -> Reply:
        repo, name = self._writable(asked)
        branch = asked.groups["revision"]
        header, *lines = [json.loads(line) for line in asked.body.splitlines()]
        parent = header["value"].get("parentCommit")
        if parent is not None and parent != repo.branches[branch]:
            raise Refused(412, "A commit has happened since. Please refresh and try again.")
        files = dict(repo.commits[repo.branches[branch]].files)
        for line in lines:
            self._apply(files, line["key"], line["value"])
        _check_benchmark(files)
        summary = header["value"]["summary"]
        kinds = asked.groups["kinds"]
        address = f"{self.url}/{'' if kinds == 'models' else f'{kinds}/'}{name}"
        request = {}
        if asked.query.get("create_pr"):
            sha = repo.propose(files, summary, asked.user.name, header["value"]["description"])
            request["pullRequestUrl"] = f"{address}/discussions/{len(repo.pull_requests)}"
        else:
            sha = repo.add(branch, files, summary)
        return Reply({"commitUrl": f"{address}/commit/{sha}", "commitOid": sha, **request})

    def _apply(self, files: dict[str, Entry], key: str, value: dict[str, Any]) -> None:
        match key:
            case "file":
                files[value["path"]] = Entry(base64.b64decode(value["content"]), False)
            case "lfsFile":
                files[value["path"]] = Entry(self.large[value["oid"]], True)
            case "deletedFile":
                del files[value["path"]]
            case _:
                raise ValueError(key)

    def _tag(self, asked: Asked) -> Reply:
        repo, _ = self._writable(asked)
        sha = self._resolved(repo, asked.groups["revision"])
        if asked.payload["tag"] in repo.tags:
            raise Refused(409, "Tag reference exists already")
        repo.tags[asked.payload["tag"]] = sha
        return Reply({})

    def _branch(self, asked: Asked) -> Reply:
        repo, _ = self._writable(asked)
        branch = asked.groups["revision"]
        if branch in repo.branches:
            raise Refused(409, "Reference already exists")
        repo.branches[branch] = self._resolved(repo, asked.payload.get("startingPoint", "main"))
        return Reply({})

    def _discussions(self, asked: Asked) -> Reply:
        repo, name = self._found(asked)
        result = [
            {
                "num": request.number,
                "title": request.title,
                "status": request.status,
                "isPullRequest": True,
                "createdAt": "2025-10-28T10:58:59.000Z",
                "author": {"name": request.author},
                "repo": {"name": name, "type": _KINDS[asked.groups["kinds"]]},
            }
            for request in repo.pull_requests
            if asked.query.get("author") in (None, request.author)
            and asked.query.get("status") in (None, request.status)
        ]
        return Reply({"discussions": result, "count": len(result), "start": 0})

    def _resolve(self, asked: Asked) -> Reply:
        repo, name = self._found(asked)
        restricted = f"Access to model {name} is restricted"
        if repo.allowed is not None and asked.user is None:
            message = f"{restricted}. You must have access to it and be authenticated to access it."
            raise Refused(401, f"{message} Please log in.", "GatedRepo")
        if repo.allowed is not None and asked.user.name not in repo.allowed:
            message = f"{restricted} and you are not in the authorized list."
            raise Refused(403, f"{message} Visit {self.url}/{name} to ask for access.", "GatedRepo")
        sha = self._resolved(repo, asked.groups["revision"])
        entry = repo.commits[sha].files.get(asked.groups["path"])
        if entry is not None and asked.groups["path"] in self.tampered:
            entry = Entry(self.tampered[asked.groups["path"]], entry.large)
        if entry is None:
            raise Refused(404, "Entry not found", "EntryNotFound", **{"X-Repo-Commit": sha})
        etag = entry.sha256 if entry.large else entry.git_oid
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": sha, "Accept-Ranges": "bytes"}
        if entry.large and "kinds" not in asked.groups:
            # As on the Hub: facts come from here, bytes from another host, which gets no token.
            self.large[entry.sha256] = entry.content
            headers |= {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(entry.content))}
            place = self.url.replace("127.0.0.1", "localhost")
            return Reply("", 302, headers | {"Location": f"{place}/storage/{entry.sha256}"})
        return self._part(asked, entry.content, headers)

    def _storage(self, asked: Asked) -> Reply:
        assert "Authorization" not in asked.headers
        oid = asked.groups["oid"]
        return self._part(asked, self.large[oid], {"ETag": f'"{oid}"', "Accept-Ranges": "bytes"})

    def _part(self, asked: Asked, content: bytes, headers: dict[str, str]) -> Reply:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", asked.headers.get("Range", ""))
        if wanted is None:
            return Reply(content, headers=headers)
        total, start = len(content), int(wanted[1])
        end = min(int(wanted[2] or total - 1), total - 1)
        headers["Content-Range"] = f"bytes {start}-{end}/{total}"
        return Reply(content[start : end + 1], 206, headers)

    # --- Permissions ---

    def _name(self, asked: Asked) -> str:
        owner, name = asked.groups.get("owner"), asked.groups["name"]
        return f"{owner}/{name}" if owner else name

    def _found(self, asked: Asked) -> tuple[Repo, str]:
        name = self._name(asked)
        if name in self.moved:
            place = asked.path.replace(f"/{name}", f"/{self.moved[name]}", 1)
            raise Refused(307, "moved", Location=place)
        repo = self.repos.get((_KINDS[asked.groups.get("kinds") or "models"], name))
        visible = repo is not None and (
            not repo.private or (asked.user is not None and asked.user.owns(name))
        )
        if repo is None or not visible:
            if asked.user is None:
                # huggingface_hub can tell without the code, but only from https addresses.
                raise Refused(401, "Invalid username or password.", "RepoNotFound")
            raise Refused(404, "Repository not found", "RepoNotFound")
        return repo, name

    def _resolved(self, repo: Repo, revision: str) -> str:
        sha = repo.resolve(revision)
        if sha is None:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return sha

    def _writable(self, asked: Asked, *, propose: bool = False) -> tuple[Repo, str]:
        repo, name = self._found(asked)
        if asked.user is None:
            raise Refused(401, "Invalid username or password.")
        if propose or asked.query.get("create_pr"):
            if asked.user.role != "write":
                raise Refused(403, "Your token may not open pull requests")
        elif not asked.user.may_write(name):
            raise Refused(403, f"You don't have write access to {name}")
        return repo, name


_REPO = r"(?:(?P<owner>[\w.-]+)/)?(?P<name>[\w.-]+?)"
_API = rf"/api/(?P<kinds>datasets|spaces|models)/{_REPO}"
_GIT = rf"/(?:(?P<kinds>datasets|spaces)/)?{_REPO}"
_REVISION = r"(?P<revision>[^/]+)"

ROUTES: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (method, route, re.compile(pattern))
    for method, route, pattern in (
        ("GET", "whoami", r"/api/whoami-v2"),
        ("POST", "create", r"/api/repos/create"),
        ("POST", "validate", r"/api/validate-yaml"),
        ("GET", "refs", rf"{_API}/refs"),
        ("GET", "tree", rf"{_API}/tree/{_REVISION}(?:/(?P<path>.+))?"),
        ("POST", "paths", rf"{_API}/paths-info/{_REVISION}"),
        ("POST", "preupload", rf"{_API}/preupload/{_REVISION}"),
        ("POST", "commit", rf"{_API}/commit/{_REVISION}"),
        ("POST", "tag", rf"{_API}/tag/{_REVISION}"),
        ("POST", "branch", rf"{_API}/branch/{_REVISION}"),
        ("GET", "discussions", rf"{_API}/discussions"),
        ("GET", "info", rf"{_API}(?:/revision/{_REVISION})?"),
        ("POST", "lfs-batch", rf"{_GIT}\.git/info/lfs/objects/batch"),
        ("PUT", "lfs-put", r"/lfs/(?P<oid>[0-9a-f]{64})"),
        ("GET", "storage", r"/storage/(?P<oid>[0-9a-f]{64})"),
        ("GET", "resolve", rf"{_GIT}/resolve/{_REVISION}/(?P<path>.+)"),
    )
)
"""Method, name and path of each route; HEAD counts as GET."""


def _check_benchmark(files: Mapping[str, Entry]) -> None:
    """Check a benchmark by the Hub's specification of `eval.yaml` (docs: hub/eval-results)."""
    if "eval.yaml" not in files:
        return
    value = yaml.safe_load(files["eval.yaml"].content)
    wanted = {"name", "description", "evaluation_framework", "tasks"}
    if not isinstance(value, dict) or not wanted <= set(value):
        raise Refused(400, f"eval.yaml: expected {sorted(wanted)}")
    if any("id" not in task for task in value["tasks"]):
        raise Refused(400, "eval.yaml: every task needs an id")
    framework = value["evaluation_framework"]
    if framework not in _FRAMEWORKS:
        raise Refused(400, f"eval.yaml: unknown evaluation framework {framework!r}")
    needed = {"field_spec", "solvers", "scorers"} if framework == "inspect-ai" else set()
    if any(not needed <= set(task) for task in value["tasks"]):
        raise Refused(400, f"eval.yaml: every task of {framework} needs {sorted(needed)}")
