"""Run `merge-nli publish` against a loopback Hub, and look for secrets in its output."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.hub.endpoints import SIGNATURE, LoopbackHub
from helpers.hub.forks import ROOT, Forks, Result, environment_of
from helpers.hub.loopback import loopback_hub
from helpers.hub.repositories import User
from helpers.metric_loading import ABSENT

TOKEN = "hf_somebodys_token_that_must_not_be_seen"
READER = "hf_somebodys_token_that_may_only_read"
STRANGER = "hf_a_strangers_token_that_must_not_be_seen"
USERS = {
    TOKEN: User("somebody", organisations=("a-lab",)),
    READER: User("somebody", role="read"),
    STRANGER: User("stranger"),
}

_COMMAND = "from merge_metric.commands.publish import publish_app; publish_app(prog_name='publish')"

_IMPORTS = """
import datasets, duckdb, yaml
import merge_dataset.hub.repository, merge_dataset.hub.publication
import merge_dataset.checks.rules, merge_dataset.hub.load_back
import merge_metric.register, merge_metric.score
import merge_metric.frame.counting, merge_metric.frame.relations
from huggingface_hub import CommitOperationAdd, EvalResultEntry, HfApi, eval_result_entries_to_yaml
from merge_metric.commands.publish import publish_app

merge_dataset.hub.repository._WAITS = (0.01, 0.01, 0.01)
"""
_RUN = """
if not asked["verify"]:
    merge_dataset.hub.publication.load_back = lambda *_: {}
publish_app(asked["arguments"], prog_name="publish")
"""


class Desk:
    def __init__(self, hub: LoopbackHub, scratch: Path) -> None:
        self.hub = hub
        paths = os.pathsep.join([str(scratch), str(ROOT)])
        environment = environment_of(hub, HF_HOME=scratch / "home", PYTHONPATH=paths)
        self._forks = Forks(_IMPORTS, _RUN, scratch, environment)
        self.close = self._forks.close

    def run(
        self,
        *arguments: str | Path,
        token: str | None = TOKEN,
        verify: bool = False,
        **environment: str,
    ) -> Result:
        """Run `publish …`; without `verify`, nothing is loaded again."""
        login = {} if token is None else {"HF_TOKEN": token}
        return checked(self._forks.ask(arguments, login | environment, verify=verify))

    def good(self, *arguments: str | Path, **options: Any) -> Result:
        result = self.run(*arguments, **options)
        assert result.code == 0, result.err
        return result

    def refused(self, *arguments: str | Path, code: int = 2, **options: Any) -> str:
        result = self.run(*arguments, **options)
        assert result.code == code, result.err
        return result.err

    def start(
        self, *arguments: str | Path, home: Path, code: str = _COMMAND, **environment: str
    ) -> Any:
        return self._forks.start(code, arguments, HF_HOME=str(home), **environment)

    def written(self) -> list[str]:
        """Routes of the requests that can change something."""
        return [r.route for r in self.hub.requests if r.method not in ("GET", "HEAD")]


def checked(result: Result) -> Result:
    for secret in (*USERS, SIGNATURE):
        assert secret not in result.out + result.err
    return result


@contextmanager
def desk_at_a_hub() -> Iterator[Desk]:
    with loopback_hub() as hub, tempfile.TemporaryDirectory() as scratch:
        hub.users |= USERS
        folder = Path(scratch, "work")
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(ABSENT)
        desk = Desk(hub, folder)
        try:
            yield desk
        finally:
            desk.close()
