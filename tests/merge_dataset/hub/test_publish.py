"""Publishing a dataset folder, over real HTTP, to a loopback Hub."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml
from helpers.dataset_files import read_rows
from helpers.forks import Ended
from helpers.hub.publishing import READER, STRANGER, TOKEN, Desk, checked
from helpers.hub.repositories import Entry
from helpers.paraphrase_run import write_paraphrase_run

from merge_dataset.card import LOADING
from merge_dataset.export import export_dataset
from merge_dataset.files import read_record, write_record
from merge_dataset.hub.benchmark import answer_pattern, benchmark, task_ids
from merge_dataset.hub.load_back import check_published_dataset
from merge_dataset.hub.repository import PublishError, Repository
from merge_dataset.layout import split_files
from merge_dataset.schema import NLI, arrow_schema, features
from merge_metric.models.templates import Template

NAME = "somebody/merge-nli"
DATA = (
    "snli/adjectives/seeds.parquet", "snli/adjectives/variants.parquet", "snli/nouns/seeds.parquet",
    "snli/nouns/variants.parquet", "snli/provenance.json", "snli/seeds.parquet",
    "snli/verbs/seeds.parquet", "snli/verbs/variants.parquet",
)  # fmt: skip
FILES = {"README.md", "eval.yaml", *DATA}
SMALL = {
    "README.md", "eval.yaml", "snli/provenance.json", "snli/seeds.parquet",
    "snli/verbs/seeds.parquet", "snli/verbs/variants.parquet",
}  # fmt: skip
"""Files of a folder with one seed."""


@pytest.fixture
def small(make_run: Callable[..., Path], tmp_path: Path) -> Path:
    export_dataset(make_run("small run", pairs="3"), tmp_path / "small")
    return tmp_path / "small"


@pytest.fixture
def published(desk: Desk, dataset: Path) -> Desk:
    publish(desk, dataset)
    desk.hub.requests.clear()
    return desk


def main(desk: Desk) -> dict[str, bytes]:
    return desk.hub.repo("dataset", NAME).at()


def publish(desk: Desk, dataset: Path, *more: str, code: int = 0, **options: Any) -> Ended:
    result = desk.run("dataset", dataset, NAME, "--yes", *more, **options)
    assert result.code == code, result.err
    return result


def append_to_card(dataset: Path, text: str) -> None:
    with (dataset / "README.md").open("a", encoding="utf-8") as card:
        card.write(text)


def test_publishing_and_again(desk: Desk, dataset: Path) -> None:
    """One commit, loaded again and compared, tagged; then nothing more. It is private on demand.

    It is loaded without the user's caches and offline modes.
    """
    desk.hub.page = 3
    own = {"HF_DATASETS_CACHE": "/none", "HF_HUB_CACHE": "/none", "HF_DATASETS_OFFLINE": "1"}
    result = publish(desk, dataset, "--private", "--format", "json", verify=True, **own)
    repo = desk.hub.repo("dataset", NAME)
    assert repo.history() == ["Data v1.0.0", "initial commit"]
    assert set(repo.at()) == {".gitattributes", *FILES}
    for path in DATA:
        assert repo.at()[path] == (dataset / path).read_bytes()
    entries = repo.commits[repo.branches["main"]].files
    assert {path for path, entry in entries.items() if entry.large} == {
        path for path in DATA if path.endswith(".parquet")
    }
    assert repo.tags == {"v1.0.0": repo.branches["main"]}
    assert repo.private
    done = result.value["done"]
    assert (done["committed"], done["tagged"]) == (True, True)
    assert done["revision"] == repo.branches["main"]
    assert done["rows"] == {
        "snli": {"seeds": 3, "variants": 11},
        "snli_nouns": {"seeds": 2, "variants": 6},
        "snli_verbs": {"seeds": 2, "variants": 3},
        "snli_adjectives": {"seeds": 1, "variants": 2},
    }
    desk.hub.requests.clear()
    again = desk.good("dataset", dataset, NAME, "--yes", "--format", "json")
    assert (again.value["nothing_to_do"], again.value["done"]) == (True, None)
    assert desk.written() == []


def test_script_lies_on_a_branch_of_its_own(published: Desk) -> None:
    """Release 3 of datasets finds relative imports by a regular expression, one per line."""
    repo = published.hub.repo("dataset", NAME)
    here = Path(__file__).parents[3] / "merge_dataset"
    script = repo.at("script")
    assert set(script) - set(repo.at()) == {"merge-nli.py", "schema.py"}
    assert script["merge-nli.py"] == (here / "merge_nli.py").read_bytes()
    assert script["schema.py"] == (here / "schema.py").read_bytes()
    assert {path: script[path] for path in FILES} == {path: repo.at()[path] for path in FILES}
    assert repo.history("script")[1:] == repo.history()
    text = published.hub.repo("dataset", NAME).at("script")["merge-nli.py"].decode()
    assert re.findall(r"^\s*from \.(\w*) import", text, flags=re.MULTILINE) == ["schema"]


def test_card_and_benchmark(published: Desk, dataset: Path) -> None:
    card = main(published)["README.md"].decode()
    assert f'data = load_dataset("{NAME}", "snli_nouns", revision="v1.0.0")' in card
    assert f"hf download {NAME} --repo-type dataset --revision v1.0.0 --local-dir merge-nli" in card
    own = (dataset / "README.md").read_text()
    assert LOADING.sub("", card) == LOADING.sub("", own)
    assert card in published.good("dataset", dataset, NAME, "--format", "json").value["card"]
    shown = published.good("dataset", dataset, NAME, "--dry-run").out
    assert card[card.index("# MERGE-NLI") :] in shown
    assert "license:\n- cc-by-sa-4.0\n" in shown
    assert "config_name:" not in shown
    listed = yaml.safe_load(main(published)["eval.yaml"].decode("ascii"))
    assert listed["name"] == "MERGE-NLI"
    assert "accuracy on variants, each distinct one once" in listed["description"]
    assert listed["evaluation_framework"] == "inspect-ai"
    (task,) = listed["tasks"]
    (template,) = (solver["args"].pop("template") for solver in task["solvers"][:1])
    asked = (
        Template.of(NLI.fields, NLI.labels).text("{premise}", "{prompt}").removesuffix("Answer:")
    )
    assert template.startswith(f"{asked}\nThe last line of your response should be of the form")
    assert task == {
        "id": "snli",
        "config": "snli",
        "split": "variants",
        "field_spec": {"input": "hypothesis", "target": "label", "choices": ["variant_id"],
            "metadata": ["premise", "variant_id", "seed_id"]},
        "solvers": [{"name": "prompt_template", "args": {}}, {"name": "generate"}],
        "scorers": [{"name": "pattern",
            "args": {"pattern": answer_pattern(NLI.fields, NLI.labels)}}],
    }  # fmt: skip


def test_what_is_no_benchmark(dataset: Path, tmp_path: Path) -> None:
    path = dataset / "snli/provenance.json"
    made = read_record(path)
    write_record(path, made | {"ablation": "union"})
    assert benchmark(dataset) is None
    write_record(path, made | {"ablation": "paper"})
    assert benchmark(dataset) is not None
    export_dataset(write_paraphrase_run(tmp_path / "paraphrases"), tmp_path / "only")
    assert benchmark(tmp_path / "only") is None
    assert task_ids(tmp_path / "only") == []


def test_changed_data_are_the_next_minor_version(published: Desk, small: Path) -> None:
    repo = published.hub.repo("dataset", NAME)
    files = dict(repo.commits[repo.branches["main"]].files)
    repo.add("main", files | {"LICENSE": Entry(b"free", False)}, "A licence")
    result = published.good("dataset", small, NAME)
    assert "version v1.1.0: the data differ from those of v1.0.0" in result.out
    assert "  - snli/nouns/seeds.parquet" in result.out.splitlines()
    publish(published, small)
    assert repo.history() == ["Data v1.1.0", "A licence", "Data v1.0.0", "initial commit"]
    assert set(repo.at()) == {".gitattributes", "LICENSE", *SMALL}
    assert repo.tags["v1.1.0"] == repo.branches["main"] != repo.tags["v1.0.0"]
    script = {"merge-nli.py", "schema.py"}
    assert set(repo.at("script")) - set(repo.at()) == script


@pytest.mark.slow
def test_older_data_do_not_replace_newer_ones(published: Desk, dataset: Path, small: Path) -> None:
    publish(published, small)
    before = dict(published.hub.repo("dataset", NAME).branches)
    published.hub.requests.clear()
    result = publish(published, dataset)
    assert "version v1.0.0: it has these data" in result.out
    assert "main holds other data than v1.0.0 and stays as it is" in result.out
    assert "Nothing to do." in result.out
    assert published.hub.repo("dataset", NAME).branches == before
    assert published.written() == []


@pytest.mark.slow
def test_a_new_card_is_no_new_version(published: Desk, dataset: Path) -> None:
    repo = published.hub.repo("dataset", NAME)
    tags = dict(repo.tags)
    append_to_card(dataset, "\nOne more thing.\n")
    result = publish(published, dataset)
    assert "main: 1 to change, 9 as they are" in result.out
    assert "tag v1.0.0: is there" in result.out
    assert repo.tags == tags
    assert repo.at()["README.md"].endswith(b"One more thing.\n")
    assert repo.at("script")["README.md"] == repo.at()["README.md"]
    assert "tag" not in published.written()


def test_version_is_there_with_other_data(published: Desk, small: Path) -> None:
    for version in ("1.0.0", "0.9.0"):
        text = publish(published, small, "--version", version, code=2).err
        assert f"newer version than v1.0.0, as versions do not change, got v{version}" in text
    assert published.written() == []
    publish(published, small, "--version", "2.0.0")
    assert set(published.hub.repo("dataset", NAME).tags) == {"v1.0.0", "v2.0.0"}


def test_a_bad_folder_is_not_published(desk: Desk, small: Path) -> None:
    (small / "snli/verbs/seeds.parquet").unlink()
    result = publish(desk, small, code=1)
    assert f"{small}: not published: " in result.err
    assert "snli_verbs" in result.err
    assert desk.hub.requests == []


@pytest.mark.slow
def test_rights(desk: Desk, small: Path) -> None:
    """A dry run without a token reports it and continues; --yes is refused."""
    shown = desk.good("dataset", small, NAME, token=None)
    assert "not logged in, which --yes needs: run `hf auth login`, or set HF_TOKEN" in shown.out
    result = publish(desk, small, token=None, code=1)
    assert "your token is not accepted; run `hf auth login` again" in result.err
    assert desk.hub.repos == {}
    result = publish(desk, small, token=READER, code=1)
    assert "your token has no right to do this; use one that may write" in result.err
    assert desk.hub.repos == {}
    result = publish(desk, small, token="hf_unknown", code=1)
    assert "your token is not accepted; run `hf auth login` again" in result.err
    assert "hf_unknown" not in result.out + result.err
    assert desk.hub.repos == {}
    result = publish(desk, small, token=STRANGER, code=1)
    assert "making somebody/merge-nli: your token has no right to do this" in result.err
    assert "(403): You don't have the rights to create a dataset under the namespace" in result.err
    assert desk.hub.repos == {}


@pytest.mark.slow
def test_hub_refuses_a_file(desk: Desk, small: Path) -> None:
    own = {"name": "x", "description": "y", "evaluation_framework": "none", "tasks": [{"id": "a"}]}
    (small / "eval.yaml").write_text(yaml.safe_dump(own))
    result = publish(desk, small, code=1)
    assert "the Hub refuses it (400): eval.yaml: unknown evaluation framework 'none'" in result.err
    assert desk.hub.repo("dataset", NAME).history() == ["initial commit"]


@pytest.mark.slow
def test_a_script_on_main_goes(desk: Desk, small: Path) -> None:
    """With a script, datasets 4 and later would not load the repository."""
    repo = desk.hub.make("dataset", NAME)
    repo.add("main", {"merge-nli.py": Entry(b"old", False)}, "The script")
    result = publish(desk, small, "--private", code=2)
    assert f"expected {NAME} to be private, it is public: change that in its settings" in result.err
    result = publish(desk, small)
    assert "  - merge-nli.py" in result.out.splitlines()
    assert "merge-nli.py" not in main(desk)


@pytest.mark.slow
def test_the_hub_fails_for_a_while(desk: Desk, small: Path) -> None:
    """Each kind of request fails once, with 429 or 5xx: everything is done, and once."""
    for number, route in enumerate(("whoami", "info", "create", "tree", "commit", "tag", "branch")):
        status = (429, 500, 502, 503, 504)[number % 5]
        desk.hub.fail(route, status, headers={"Retry-After": "0"})
    result = publish(desk, small)
    repo = desk.hub.repo("dataset", NAME)
    assert repo.history() == ["Data v1.0.0", "initial commit"]
    assert repo.tags == {"v1.0.0": repo.branches["main"]}
    assert "merge-nli.py" in repo.at("script")
    assert "asking who you are: the Hub answered 429; trying again in 0 s" in result.err
    assert "uploading to somebody/merge-nli: the Hub answered 504" in result.err
    assert desk.written().count("commit") == 3


@pytest.mark.slow
def test_the_hub_goes_on_failing(desk: Desk, small: Path) -> None:
    desk.hub.fail("commit", 503, times=4, headers={"Retry-After": "0"}, message="upside down")
    result = publish(desk, small, code=1)
    told = "the Hub failed; run the same command again later (503): upside down"
    assert f"uploading to {NAME}: {told}" in result.err
    assert desk.hub.repo("dataset", NAME).history() == ["initial commit"]
    assert desk.hub.repo("dataset", NAME).tags == {}
    desk.hub.requests.clear()
    publish(desk, small)
    assert set(main(desk)) >= SMALL
    assert "lfs-put" not in desk.written()  # the large files are there from the first attempt


@pytest.mark.slow(but=["during"])
@pytest.mark.parametrize("cut", ["before", "during", "after"])
def test_connection_cut_in_a_commit(desk: Desk, small: Path, cut: str) -> None:
    desk.hub.fail("commit", cut=cut)
    result = publish(desk, small)
    assert "trying again" in result.err
    repo = desk.hub.repo("dataset", NAME)
    assert repo.history() == ["Data v1.0.0", "initial commit"]
    assert repo.tags == {"v1.0.0": repo.branches["main"]}
    assert desk.written().count("commit") == (2 if cut == "after" else 3)


@pytest.mark.slow
def test_connection_cut_in_a_large_file(desk: Desk, small: Path) -> None:
    desk.hub.fail("lfs-put", cut="during")
    result = publish(desk, small)
    assert re.search(r"thrown while requesting PUT http\S+/lfs/[0-9a-f]{64}\?…\n", result.err)
    assert result.err.count("Retrying in 1s [Retry 1/5].") == 1
    assert [r.status for r in desk.hub.requests if r.route == "lfs-put"].count(None) == 1
    assert set(main(desk)) >= SMALL


@pytest.mark.slow
def test_killed_in_the_middle_of_a_large_file(desk: Desk, small: Path) -> None:
    (desk.home / "token").write_text(TOKEN)
    held = desk.hub.fail("lfs-put", nth=2, hold=True)
    pid = desk.forks.start("publish", "dataset", small, NAME, "--yes")
    assert held.reached.wait(60)
    os.kill(pid, signal.SIGKILL)
    assert checked(desk.forks.end(pid)).code == -signal.SIGKILL
    (desk.home / "token").unlink()
    held.release.set()
    assert desk.hub.repo("dataset", NAME).history() == ["initial commit"]
    assert "lfs-put" in desk.written()
    assert "commit" not in desk.written()
    publish(desk, small)
    assert set(main(desk)) >= SMALL


def test_offline_mode() -> None:
    with pytest.raises(PublishError, match="HF_HUB_OFFLINE is set and forbids every call; unset"):
        Repository(NAME, "dataset").look()


@pytest.mark.slow(but=["commit"])
@pytest.mark.parametrize("before", ["tree", "commit"])
def test_somebody_commits(desk: Desk, small: Path, before: str) -> None:
    """Nothing is done that was not shown."""
    repo = desk.hub.make("dataset", NAME)
    theirs = {"README.md": Entry(b"theirs", False)}
    desk.hub.before[before] = lambda: repo.add("main", theirs, "Theirs")
    text = publish(desk, small, code=1).err
    assert (
        "something else changed the repository meanwhile; run the same command again (412)" in text
    )
    assert repo.history() == ["Theirs", "initial commit"]
    publish(desk, small)
    assert repo.history() == ["Data v1.0.0", "Theirs", "initial commit"]


@pytest.mark.slow
def test_somebody_tags_meanwhile(desk: Desk, small: Path) -> None:
    repo = desk.hub.make("dataset", NAME)
    theirs = repo.branches["main"]
    desk.hub.before["tag"] = lambda: repo.tags.update({"v1.0.0": theirs})
    result = publish(desk, small, code=1)
    told = "tagging v1.0.0: something else changed the repository meanwhile; run the same command"
    assert told in result.err
    publish(desk, small)
    assert repo.tags == {"v1.0.0": theirs, "v1.1.0": repo.branches["main"]}


@pytest.mark.slow
def test_what_is_uploaded_does_not_load(desk: Desk, small: Path) -> None:
    desk.hub.tampered["snli/seeds.parquet"] = b"no Parquet"
    result = publish(desk, small, verify=True, code=1)
    assert re.search(
        rf"error: {NAME} at \w{{12}} does not load as it should: \w+Error: .+\n"
        "main holds it, without a tag; the same command, run again, checks it again.",
        result.err,
    )
    repo = desk.hub.repo("dataset", NAME)
    assert (repo.tags, set(repo.branches)) == ({}, {"main"})
    desk.hub.tampered.clear()
    sha = repo.branches["main"]
    publish(desk, small)
    assert repo.tags == {"v1.0.0": sha}


CHANGES: dict[str, Callable[[datasets.DatasetDict], object]] = {
    "a label": lambda loaded: loaded.update(
        variants=loaded["variants"].map(lambda row, n: {"label": n % 2}, with_indices=True)
    ),
    "a row less": lambda loaded: loaded.update(seeds=loaded["seeds"].select([0, 1])),
    "a row twice": lambda loaded: loaded.update(seeds=loaded["seeds"].select([0, 1, 2, 2])),
    "a split less": lambda loaded: loaded.pop("variants"),
    "a column's type": lambda loaded: loaded.update(
        seeds=loaded["seeds"].cast_column("label", datasets.Value("int64"))
    ),
}
"""Difference from the folder → a change of the rows that are loaded."""


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_loaded_is_compared(
    monkeypatch: pytest.MonkeyPatch, dataset: Path, change: str
) -> None:
    def load(_: str, config: str, **__: str) -> datasets.DatasetDict:
        loaded = datasets.DatasetDict({
            split: datasets.Dataset.from_list(
                [row for file in files for row in read_rows(dataset / file)],
                features=features(arrow_schema()),
            )
            for split, files in split_files(dataset, config).items()
        })  # fmt: skip
        if config == "snli":
            CHANGES[change](loaded)
        return loaded

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(ValueError, match=r"^snli, split \w+: expected the \d+ rows of \["):
        check_published_dataset(NAME, str(dataset), "main")
