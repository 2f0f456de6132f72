"""Run `merge-nli` on models of a loopback Hub, each command in a separate fork."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from helpers.forks import Ended, Forks, forks_in
from helpers.hub.endpoints import NO_WAITS, LoopbackHub
from helpers.hub.files import Payload
from helpers.hub.layouts import CONVERSION, Layout
from helpers.hub.loopback import loopback_hub
from helpers.hub.repositories import Repo, User, entries_of
from helpers.problem_folder import many_problems, write_folder

TOKEN: Final = "hf_token_of_somebody_who_may"
STRANGER: Final = "hf_token_of_a_stranger"

PROBLEMS: Final = many_problems(6, 2)

_IMPORTS = """
import datasets, torch, transformers
import transformers.models.bert.modeling_bert, transformers.models.roberta.modeling_roberta
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer
import generation.cli, merge_metric.models.classifier, merge_dataset.schema
"""
_BEFORE = """
if "HF_HUB_OFFLINE" in os.environ:  # these two read the variable when they are imported
    huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
"""


class Console:
    """Runs commands; `home` holds all caches; `marker` exists once a payload has run."""

    def __init__(self, hub: LoopbackHub, forks: Forks, home: Path, marker: Path) -> None:
        self.hub, self.folder, self.home, self.marker = hub, forks.folder, home, marker
        self._forks = forks

    def run(
        self, *arguments: object, offline: bool = False, token: str | None = None, **more: str
    ) -> Ended:
        set_ = {"HF_TOKEN": token, "HF_HUB_OFFLINE": "1" if offline else None}
        return self._forks.run(*map(str, arguments), environment=more | set_)

    def predict(self, model: object, *options: object, **more: object) -> Ended:
        (self.folder / "predicted.parquet").unlink(missing_ok=True)
        return self.run(
            "predict", "--dataset", "merge-nli", "--config", "snli", "--model", model,
            "--out", "predicted.parquet", *options, **more,
        )  # fmt: skip

    def probabilities(self, file: str = "predicted.parquet") -> np.ndarray:
        """Probabilities of entailment, neutral and contradiction from the file of `predict`."""
        import pyarrow.parquet as pq

        rows = pq.read_table(self.folder / file).to_pylist()
        rows.sort(key=lambda row: row["variant_id"])
        return np.array([row["probabilities"] for row in rows])

    def forget(self) -> None:
        shutil.rmtree(self.home)
        self.home.mkdir()
        self.hub.requests.clear()


@contextmanager
def console() -> Iterator[Console]:
    with loopback_hub() as hub, tempfile.TemporaryDirectory() as scratch:
        hub.users |= {TOKEN: User("somebody"), STRANGER: User("stranger")}
        folder, home, logs, marker = (
            Path(scratch, name) for name in ("work", "home", "logs", "payload-ran")
        )
        home.mkdir()
        environment = hub.environment(
            HOME=home, HF_HOME=home / "huggingface", XDG_CACHE_HOME=home / "cache",
            TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS=1, **{Payload.MARKER: marker},
        )  # fmt: skip
        write_folder(folder / "merge-nli", PROBLEMS)
        with forks_in(
            folder, logs, environment, imports=NO_WAITS + _IMPORTS, before=_BEFORE
        ) as forks:
            yield Console(hub, forks, home, marker)


def serve(hub: LoopbackHub, name: str, layout: Layout) -> Repo:
    """Upload a layout to the Hub, with its old ids and its pull request."""
    repo = hub.serve(name, layout.files, allowed=("somebody",) if layout.gated else None)
    for old in layout.moved_from:
        hub.moved[old] = name
    if layout.conversion is not None:
        files = {**layout.files, **layout.conversion()}
        repo.propose(entries_of(files), CONVERSION, "SFconvertbot")
    return repo
