"""Run `merge-nli publish` against a loopback Hub, and look for secrets in its output."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.forks import Ended, Forks, forks_in
from helpers.hub.endpoints import NO_WAITS, SIGNATURE, LoopbackHub
from helpers.hub.loopback import loopback_hub
from helpers.hub.repositories import User
from helpers.metric_loading import ABSENT
from helpers.processes import PYTHON_PATH

TOKEN = "hf_somebodys_token_that_must_not_be_seen"
READER = "hf_somebodys_token_that_may_only_read"
STRANGER = "hf_a_strangers_token_that_must_not_be_seen"
USERS = {
    TOKEN: User("somebody", organisations=("a-lab",)),
    READER: User("somebody", role="read"),
    STRANGER: User("stranger"),
}

_IMPORTS = """
import datasets, duckdb, yaml
import generation.cli, merge_metric.commands.publish
import merge_dataset.hub.repository, merge_dataset.hub.publication
import merge_dataset.checks.rules, merge_dataset.hub.load_back
import merge_metric.register, merge_metric.score
import merge_metric.frame.counting, merge_metric.frame.relations
from huggingface_hub import CommitOperationAdd, EvalResultEntry, HfApi, eval_result_entries_to_yaml

merge_dataset.hub.repository._WAITS = (0.01, 0.01, 0.01)
"""
_BEFORE = """
if "LOAD_BACK" not in os.environ:
    merge_dataset.hub.publication.load_back = lambda *_: {}
"""


class Desk:
    def __init__(self, hub: LoopbackHub, forks: Forks, home: Path) -> None:
        self.hub, self.forks, self.home = hub, forks, home

    def run(
        self,
        *arguments: str | Path,
        token: str | None = TOKEN,
        verify: bool = False,
        **environment: str | None,
    ) -> Ended:
        """Run `publish …`; without `verify`, nothing is loaded again."""
        environment |= {"HF_TOKEN": token, "LOAD_BACK": "1" if verify else None}
        return checked(self.forks.run("publish", *arguments, environment=environment))

    def good(self, *arguments: str | Path, **options: Any) -> Ended:
        result = self.run(*arguments, **options)
        assert result.code == 0, result.err
        return result

    def refused(self, *arguments: str | Path, code: int = 2, **options: Any) -> str:
        result = self.run(*arguments, **options)
        assert result.code == code, result.err
        return result.err

    def written(self) -> list[str]:
        """Routes of the requests that can change something."""
        return [r.route for r in self.hub.requests if r.method not in ("GET", "HEAD")]


def checked(result: Ended) -> Ended:
    for secret in (*USERS, SIGNATURE):
        assert secret not in result.out + result.err
    return result


@contextmanager
def desk_at_a_hub() -> Iterator[Desk]:
    with loopback_hub() as hub, tempfile.TemporaryDirectory() as scratch:
        hub.users |= USERS
        folder, home = Path(scratch, "work"), Path(scratch, "home")
        folder.mkdir()
        home.mkdir()
        (folder / "sitecustomize.py").write_text(ABSENT)
        path = os.pathsep.join([str(folder), PYTHON_PATH])
        environment = hub.environment(HF_HOME=home, PYTHONPATH=path)
        with forks_in(
            folder, Path(scratch, "logs"), environment, imports=NO_WAITS + _IMPORTS, before=_BEFORE
        ) as forks:
            yield Desk(hub, forks, home)
