"""Run `merge-nli` on models of a loopback Hub, each command in a separate fork."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from helpers.hub.endpoints import LoopbackHub
from helpers.hub.files import Payload
from helpers.hub.forks import ROOT, Forks, Result, environment_of
from helpers.hub.layouts import CONVERSION, Layout
from helpers.hub.loopback import loopback_hub
from helpers.hub.repositories import Repo, User, entries_of
from helpers.problem_folder import many_problems, write_folder

TOKEN: Final = "hf_token_of_somebody_who_may"
STRANGER: Final = "hf_token_of_a_stranger"

PROBLEMS: Final = many_problems(6, 2)

_IMPORTS = """
import datasets, huggingface_hub, torch, transformers
import transformers.models.bert.modeling_bert, transformers.models.roberta.modeling_roberta
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer
from generation.cli import app
import merge_metric.models.classifier, merge_dataset.schema
"""
_RUN = """
if asked["offline"]:  # as these two read the variable when they are imported
    os.environ["HF_HUB_OFFLINE"] = "1"
    huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
app(asked["arguments"], prog_name="merge-nli")
"""


class Console:
    """Runs commands; `home` holds all caches; `marker` exists once a payload has run."""

    def __init__(self, hub: LoopbackHub, scratch: Path) -> None:
        self.hub = hub
        self.folder, self.home = scratch / "work", scratch / "home"
        self.marker = scratch / "payload-ran"
        self.folder.mkdir()
        self.home.mkdir()
        write_folder(self.folder / "merge-nli", PROBLEMS)
        environment = environment_of(
            hub, HOME=self.home, HF_HOME=self.home / "huggingface",
            XDG_CACHE_HOME=self.home / "cache", PYTHONPATH=ROOT, TOKENIZERS_PARALLELISM="false",
            OMP_NUM_THREADS=1, **{Payload.MARKER: self.marker},
        )  # fmt: skip
        self._forks = Forks(_IMPORTS, _RUN, self.folder, environment)
        self.close = self._forks.close

    def run(
        self, *arguments: object, offline: bool = False, token: str | None = None, **more: str
    ) -> Result:
        login = {} if token is None else {"HF_TOKEN": token}
        return self._forks.ask(arguments, more | login, offline=offline)

    def predict(self, model: object, *options: object, **more: object) -> Result:
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
        made = Console(hub, Path(scratch))
        try:
            yield made
        finally:
            made.close()


def serve(hub: LoopbackHub, name: str, layout: Layout) -> Repo:
    """Upload a layout to the Hub, with its old ids and its pull request."""
    repo = hub.serve(name, layout.files, allowed=("somebody",) if layout.gated else None)
    for old in layout.moved_from:
        hub.moved[old] = name
    if layout.conversion is not None:
        files = {**layout.files, **layout.conversion()}
        repo.propose(entries_of(files), CONVERSION, "SFconvertbot")
    return repo
