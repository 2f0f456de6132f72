import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from helpers.dataset_files import files_of, write_rows
from helpers.forks import Ended
from helpers.hub.publishing import STRANGER, TOKEN, Desk
from helpers.hub.repositories import Entry, Repo, entries_of
from helpers.scored_folder import predicted, without
from huggingface_hub import ModelInfo, eval_result_entries_to_yaml

from merge_dataset.hub.load_back import check_metric
from merge_metric.commands.publish import EXAMPLE
from merge_metric.frame.predictions import with_metadata
from merge_metric.register import SPACE, module_files
from merge_metric.seed_variant_accuracy.scoring import score

DATASET, MODEL = "somebody/merge-nli", "somebody/model"
FILE = ".eval_results/somebody__merge-nli.yaml"


@pytest.fixture
def desk(desk: Desk) -> Desk:
    desk.hub.make("model", MODEL)
    return desk


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    return write(tmp_path / "p.parquet", name=MODEL)


@pytest.fixture
def dataset(desk: Desk, folder: Path) -> Repo:
    repo = desk.hub.make("dataset", DATASET)
    repo.tags["v1.0.0"] = repo.add("main", entries_of(files_of(folder)), "Data")
    return repo


def write(path: Path, *, name: str, left_out: tuple[str, ...] = ()) -> Path:
    table = pa.Table.from_pylist(without(predicted("snli"), *left_out))
    pq.write_table(with_metadata(table, {"name": name}), path)
    return path


def words(predictions: Path, folder: Path, *more: str) -> tuple[str | Path, ...]:
    where = ("--dataset", folder, "--dataset-repo", DATASET)
    return ("results", predictions, MODEL, *where, *more)


def publish(desk: Desk, predictions: Path, folder: Path, *more: str, **options: Any) -> Ended:
    return desk.good(*words(predictions, folder, *more), **options)


def refused(desk: Desk, predictions: Path, folder: Path, *more: str, **options: Any) -> str:
    return desk.refused(*words(predictions, folder, *more), **options)


def results(desk: Desk, revision: str = "main") -> list[dict[str, Any]]:
    value = yaml.safe_load(desk.hub.repo("model", MODEL).at(revision)[FILE])
    assert isinstance(value, list)
    return value


def test_publishing_and_again(desk: Desk, dataset: Repo, predictions: Path, folder: Path) -> None:
    result = publish(desk, predictions, folder, "--yes", "--date", "2025-10-28")
    (entry,) = results(desk)
    (shown,) = ModelInfo(id=MODEL, evalResults=[{"filename": FILE, "data": entry}]).eval_results
    assert (shown.dataset_id, shown.task_id, shown.value) == (DATASET, "snli", 70.0)
    assert eval_result_entries_to_yaml([shown]) == [entry]
    notes = entry.pop("notes")
    assert entry == {
        "dataset": {"id": DATASET, "task_id": "snli", "revision": dataset.tags["v1.0.0"]},
        "value": 70.0,
        "date": "2025-10-28",
    }
    assert notes.startswith("value: accuracy on variants, each once; seed-variant accuracy at 90 %")
    assert "90 % 33.33, 95 % interval 0.0-50.0; accuracy on seeds 66.67; 3 seeds, 10 var" in notes
    repo = desk.hub.repo("model", MODEL)
    assert repo.history() == [f"Results on {DATASET} v1.0.0", "initial commit"]
    assert f"main is at {repo.branches['main']}\nPublished: {desk.hub.url}/{MODEL}\n" in result.out
    desk.hub.requests.clear()
    again = publish(desk, predictions, folder, "--yes", "--date", "2025-10-28")
    assert again.out.splitlines()[-1] == "Nothing to do."
    assert desk.written() == []


@pytest.mark.usefixtures("dataset")
def test_results_on_other_tasks_stay(desk: Desk, predictions: Path, folder: Path) -> None:
    """Where they cannot be read, they do not count as none, which would remove them."""
    old = [
        {"dataset": {"id": DATASET, "task_id": "snli-2"}, "value": 12.5, "notes": "mine"},
        {"dataset": {"id": DATASET, "task_id": "snli"}, "value": 99.9},
    ]
    repo = desk.hub.repo("model", MODEL)
    other = {".eval_results/other.yaml": Entry(b"[]", False)}
    repo.add("main", {FILE: Entry(yaml.safe_dump(old).encode(), False), **other}, "Earlier")
    desk.hub.fail("resolve", 503, times=99)
    text = refused(desk, predictions, folder, "--yes", code=1)
    assert f"reading {FILE} of {MODEL}: the Hub failed" in text
    assert results(desk) == old
    desk.hub.forgive()
    publish(desk, predictions, folder, "--yes")
    assert [entry["dataset"]["task_id"] for entry in results(desk)] == ["snli", "snli-2"]
    assert [entry["value"] for entry in results(desk)] == [70.0, 12.5]
    assert results(desk)[1] == old[0]
    assert set(repo.at()) == {FILE, *other}


@pytest.mark.slow
@pytest.mark.usefixtures("dataset")
def test_pull_request_and_again(desk: Desk, predictions: Path, folder: Path) -> None:
    text = refused(desk, predictions, folder, "--yes", token=STRANGER, code=1)
    assert "(403): You don't have write access to somebody/model" in text
    first = publish(desk, predictions, folder, "--pr", "--yes", token=STRANGER)
    assert f"Published: {desk.hub.url}/{MODEL}/discussions/1" in first.out
    repo = desk.hub.repo("model", MODEL)
    assert repo.history() == ["initial commit"]
    assert [entry["value"] for entry in results(desk, "refs/pr/1")] == [70.0]
    (request,) = repo.pull_requests
    assert (request.title, request.author) == (f"Results on {DATASET} v1.0.0", "stranger")
    assert "- snli: 70.0" in request.description
    commits = len(repo.commits)
    again = publish(desk, predictions, folder, "--pr", "--yes", token=STRANGER)
    assert "/discussions/1" in again.out
    assert (len(repo.commits), len(repo.pull_requests)) == (commits, 1)


def test_figures_of_data_that_are_not_published(
    desk: Desk, dataset: Repo, predictions: Path, folder: Path
) -> None:
    rows = pq.read_table(folder / "snli/seeds.parquet").to_pylist()
    write_rows(folder / "snli/seeds.parquet", [{**row, "source": "x"} for row in rows])
    text = refused(desk, predictions, folder, "--yes", code=1)
    assert f"expected a version of {DATASET} with the data of {folder}, got v1.0.0" in text
    dataset.tags.clear()
    assert "got no version, with other data" in refused(desk, predictions, folder, code=1)
    del desk.hub.repos["dataset", DATASET]
    text = refused(desk, predictions, folder, code=1)
    assert "got no repository that you may see: publish the folder first" in text
    assert desk.hub.repo("model", MODEL).history() == ["initial commit"]


@pytest.mark.slow
@pytest.mark.usefixtures("dataset")
def test_results_there_are_none(desk: Desk, predictions: Path, folder: Path) -> None:
    """A file of this name with other content is not overwritten; errors for no model, no token."""
    for content in (b"value: 3", b"- 3", b"- {value: 3}", b"{", b"a: [1"):
        desk.hub.repo("model", MODEL).add("main", {FILE: Entry(content, False)}, "Odd")
        text = refused(desk, predictions, folder, "--yes", code=1)
        assert f"{FILE} in the model repository: expected a list of results" in text
    assert desk.written() == []
    del desk.hub.repos["model", MODEL]
    text = refused(desk, predictions, folder, code=1)
    assert f"{MODEL}: expected a model repository, found none to see" in text
    desk.hub.make("model", MODEL)
    shown = publish(desk, predictions, folder, token=None)
    assert "not logged in, which --yes needs" in shown.out
    refused(desk, predictions, folder, "--yes", token=None, code=1)
    assert desk.written() == ["preupload"]  # which only asks how files would be sent
    publish(desk, predictions, folder, "--yes", token=TOKEN)


@pytest.mark.usefixtures("dataset")
def test_predictions_of_a_part_or_another_model(desk: Desk, folder: Path, tmp_path: Path) -> None:
    """Results of a part would mix with those of the whole; a model may have another name."""
    cut = write(tmp_path / "cut.parquet", name=MODEL, left_out=("snli:a/noun/1",))
    assert "missing" in refused(desk, cut, folder, "--yes")
    assert desk.hub.requests == []
    other = write(tmp_path / "other.parquet", name="a/b")
    told = f"says that it is of a/b, not of {MODEL}: is that the same model?"
    assert told in publish(desk, other, folder).err
    assert "is that the same" not in publish(desk, write(other, name=MODEL), folder).err


def test_what_is_no_task(desk: Desk, predictions: Path, folder: Path) -> None:
    message = refused(desk, predictions, folder, "--config", "snli_nouns")
    assert "expected tasks of the dataset's eval.yaml (demo, snli), got snli_nouns" in message
    for text in ("tasks: 3", "tasks: [{}]", "[", "x"):
        (folder / "eval.yaml").write_text(text)
        message = refused(desk, predictions, folder)
        assert "eval.yaml: expected a list `tasks` of tasks with an `id`, got" in message
    assert desk.hub.requests == []


NAME = "somebody/seed_variant_accuracy"


def local() -> dict[str, bytes]:
    """All files in the metric's folder that git keeps."""
    return {path.name: path.read_bytes() for path in SPACE.iterdir() if path.is_file()}


FIGURES = {"seed_accuracy": 1.0, "variant_accuracy": 0.75, "seed_variant_accuracy": 0.5}
"""The figures of the example, computed by hand."""


@pytest.mark.slow
def test_publishing_the_space_and_again(desk: Desk) -> None:
    arguments = ("metric", NAME, "--private", "--yes", "--format", "json")
    result = desk.good(*arguments, verify=True)
    repo = desk.hub.repo("space", NAME)
    assert (repo.sdk, repo.private) == ("gradio", True)
    assert repo.history() == ["The metric of merge-nli", "initial commit"]
    published = repo.at()
    del published[".gitattributes"]
    assert published == local()
    done = result.value["done"]
    assert (done["revision"], done["figures"]) == (repo.branches["main"], FIGURES)
    loaded = {r.path.rpartition("/")[2] for r in desk.hub.requests if r.route == "resolve"}
    assert set(module_files()) - {"__init__.py"} <= loaded
    desk.hub.requests.clear()
    again = desk.good("metric", NAME, "--yes")
    assert f"main is at {repo.branches['main']}, as before" in again.out
    assert f'evaluate.load("{NAME}")' in again.out
    assert desk.written() == []


def test_modules_of_an_earlier_version_go(desk: Desk) -> None:
    repo = desk.hub.make("space", NAME, sdk="gradio")
    repo.add("main", {"old.py": Entry(b"", False), "logo.png": Entry(b"x", False)}, "Earlier")
    desk.good("metric", NAME, "--yes")
    assert set(repo.at()) == {"logo.png", *local()}


def test_space_that_computes_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    example = {"arguments": EXAMPLE, "result": score(**EXAMPLE)}
    for changed, told in (
        ({"variant_accuracy": 0.5}, "of this version, got {'variant_accuracy': 0.5}"),
        ({"signature": "other"}, "of this version, got {'signature': 'other'}"),
    ):
        metric = SimpleNamespace(compute=lambda changed=changed, **given: score(**given) | changed)
        monkeypatch.setitem(sys.modules, "evaluate", SimpleNamespace(load=lambda _, m=metric: m))
        with pytest.raises(ValueError, match=re.escape(told)):
            check_metric(NAME, json.dumps(example))


def test_spaces_that_cannot_be(desk: Desk) -> None:
    text = desk.refused("metric", "somebody/sva")
    assert "expected a Space called OWNER/seed_variant_accuracy, got 'somebody/sva'" in text
    assert desk.hub.requests == []
    text = desk.refused("metric", NAME, "--yes", token=STRANGER, code=1)
    assert "You don't have the rights to create a space under the namespace" in text
    text = desk.refused("metric", NAME, "--yes", token=None, code=1)
    assert "your token is not accepted; run `hf auth login` again" in text
    assert desk.hub.repos.keys() == {("model", MODEL)}
    desk.hub.make("space", NAME, sdk="gradio")
    text = desk.refused("metric", NAME, "--private", "--yes")
    assert "to be private, it is public" in text
