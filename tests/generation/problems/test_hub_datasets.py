import io
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import datasets
import pyarrow.parquet as pq
import pytest
from helpers.hub.commands import Console, console
from helpers.hub.repositories import Repo, entries_of

from merge_dataset.files import read_json

pytestmark = pytest.mark.slow

SCRIPT = b"raise SystemExit('it ran')"
CONVERTED = "refs/convert/parquet"
TABLE = b"""id,premise,hypothesis,label
001,None,A "man plays.,0.0
1e5,A man runs.,"null",1.0
NA,A man runs.,A man "sings.,null
2020-01-01,A man sings.,A man runs.,2
"""
CARD = b"""---
configs:
- config_name: plain_text
  data_files:
  - {split: test, path: plain_text/test-*}
  - {split: validation, path: plain_text/validation-*}
---
"""


def parquet(*hypotheses: str) -> bytes:
    """Entailment problems; classes are numbered in another order than ours."""
    text = datasets.Value("string")
    label = datasets.ClassLabel(names=["contradiction", "entailment", "neutral"])
    features = datasets.Features(premise=text, hypothesis=text, label=label)
    rows = [
        {"premise": "A sailor repairs a net by the harbour.", "hypothesis": h, "label": 1}
        for h in hypotheses
    ]
    target = io.BytesIO()
    datasets.Dataset.from_list(rows, features=features).to_parquet(target)
    return target.getvalue()


def add(repo: Repo, files: dict[str, bytes], branch: str = "main") -> str:
    return repo.add(branch, entries_of(files), "data")


NEAR, HERE = "A sailor works near the harbour.", "A sailor is here."


@pytest.fixture(scope="module")
def at_hub() -> Iterator[tuple[Console, dict[str, str]]]:
    """A copy of SNLI, a script with one configuration and one with two, and their commits."""
    with console() as typed:
        snli = typed.hub.make("dataset", "stanfordnlp/snli")
        files = {"README.md": CARD, "plain_text/test-0.parquet": parquet(NEAR)}
        first = add(snli, {**files, "plain_text/validation-0.parquet": parquet(NEAR, HERE)})
        one = typed.hub.make("dataset", "somebody/one")
        add(one, {"README.md": b"", "one.py": SCRIPT})
        converted = add(one, {"default/test/0.parquet": parquet(NEAR)}, CONVERTED)
        two = typed.hub.make("dataset", "somebody/two")
        add(two, {"two.py": SCRIPT})
        copied = {"a/test/0.parquet": parquet(NEAR)}
        copied["b/test/0.parquet"] = parquet(HERE, "There is a net.")
        add(two, copied, CONVERTED)
        typed.hub.make("dataset", "somebody/secret", private=True)
        tables = typed.hub.make("dataset", "somebody/tables")
        written = add(tables, {"README.md": b"", "test_0.csv": TABLE, "test_1.csv": TABLE})
        yield typed, {"snli": first, "one": converted, "tables": written}
        assert typed.hub.errors == []


def suggest(typed: Console, arguments: str, *, offline: bool = False) -> tuple[int, str]:
    run = f"runs/{uuid4()}"
    done = typed.run("suggest", "--recipe", "demo", "--run", run, *arguments.split(),
                     offline=offline)  # fmt: skip
    return done.code, done.err


def test_the_commit_is_recorded(at_hub: tuple[Console, dict[str, str]]) -> None:
    typed, commits = at_hub
    arguments = "generate --recipe demo --source snli --run run"
    origin = f"stanfordnlp/snli@{commits['snli']} [test]"
    for offline in (False, True):
        done = typed.run(*arguments.split(), "--out", "made", offline=offline)
        assert done.code == 0, done.err
        assert f"{origin}: no annotators' votes are here; the official file, snli_1.0" in done.err
        for file in ("run/manifest.json", "made/snli/provenance.json"):
            made = read_json(typed.folder / file)["source_data"]
            assert (made["description"], made["commit"]) == (origin, commits["snli"])
        assert f"Problems: {origin} (SHA-256" in (typed.folder / "made/README.md").read_text()
    for revision in ("main", commits["snli"]):
        code, text = suggest(typed, f"--source snli --revision {revision}", offline=True)
        assert code == (2 if revision == "main" else 0), text
    code, text = suggest(typed, "--source snli --revision main", offline=True)
    assert "--revision: 'main' of stanfordnlp/snli cannot be looked up without a conn" in text
    assert f"expected a connection, or --revision {commits['snli']}" in text


def test_scripts_are_not_run_and_their_copies_are_read(
    at_hub: tuple[Console, dict[str, str]],
) -> None:
    typed, commits = at_hub
    copied = f"--revision {CONVERTED}"
    for name in ("one", "two"):
        code, text = suggest(typed, f"--source mine --dataset somebody/{name}")
        assert (code, "it ran" in text) == (2, False)
        assert f"somebody/{name} is a script, and scripts of others are not run" in text
        assert f"{copied}, with --dataset-config where there are several" in text
    code, text = suggest(typed, f"--source mine --dataset somebody/one {copied}")
    assert code == 0, text
    assert f"somebody/one@{commits['one']} [test]: 1 problems" in text
    code, text = suggest(typed, f"--source mine --dataset somebody/two {copied}")
    assert (code, "could not load split 'test' of 'somebody/two'" in text) == (2, True), text
    code, text = suggest(typed, f"--source mine --dataset somebody/two {copied} --dataset-config b")
    assert code == 0, text
    assert "[b/test]: 2 problems" in text


def test_tables_of_text_are_read_as_written(at_hub: tuple[Console, dict[str, str]]) -> None:
    typed, commits = at_hub
    arguments = "suggest --recipe demo --source mine --dataset somebody/tables --overwrite --run"
    origin = f"somebody/tables@{commits['tables']} [test]: 6 problems, 2 without a label"
    for offline in (False, True):
        done = typed.run(*arguments.split(), "tables", offline=offline)
        assert done.code == 0, done.err
        assert origin in done.err
        read = pq.read_table(typed.folder / "tables/problems.parquet").to_pylist()
        texts = sorted((row["seed_id"], row["premise"], row["hypothesis"]) for row in read)
        assert texts == [
            ("mine:001", "None", 'A "man plays.'),
            ("mine:001~2", "None", 'A "man plays.'),
            ("mine:1e5", "A man runs.", "null"),
            ("mine:1e5~2", "A man runs.", "null"),
            ("mine:2020-01-01", "A man sings.", "A man runs."),
            ("mine:2020-01-01~2", "A man sings.", "A man runs."),
        ]
    (snapshot,) = typed.home.rglob(f"datasets--somebody--tables/snapshots/{commits['tables']}")
    (snapshot / "test_1.csv").unlink()
    code, text = suggest(typed, "--source mine --dataset somebody/tables", offline=True)
    assert (code, "not load split 'test' of 'somebody/tables'" in text) == (2, True), text


def test_a_table_that_another_program_cached(
    at_hub: tuple[Console, dict[str, str]], tmp_path: Path
) -> None:
    typed, _ = at_hub
    (tmp_path / "other").mkdir()
    (tmp_path / "other/test.csv").write_bytes(TABLE)
    datasets.load_dataset(str(tmp_path / "other"), cache_dir=str(tmp_path / "made"))
    (made,) = tmp_path.glob("made/*/default")
    cached = typed.home / "huggingface/datasets/somebody___other"
    cached.mkdir(parents=True)
    made.rename(cached / "default")
    code, text = suggest(typed, "--source mine --dataset somebody/other", offline=True)
    assert code == 2
    assert "--dataset: somebody/other: expected its files of text as they are, got a tab" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--source snli --split dev", "could not load split 'dev' of 'stanfordnlp/snli' (Unknown"),
        (
            "--source snli --dataset-config x",
            "could not load split 'test' of 'stanfordnlp/snli' (",
        ),
        ("--source x --dataset somebody/secret", "--dataset: somebody/secret: there is no such d"),
        ("--source x --dataset somebody/one --revision v9", "--revision: somebody/one@v9: the da"),
        ("--source x --dataset a/b/c", "--dataset: a/b/c: expected a file or folder that is there"),
        ("--source x --dataset no.jsonl", "no.jsonl: no such file or directory"),
    ],
)
def test_what_is_not_there(
    arguments: str, message: str, at_hub: tuple[Console, dict[str, str]]
) -> None:
    code, text = suggest(at_hub[0], arguments)
    assert code == 2
    assert text.strip().splitlines()[-1].startswith(f"error: {message}"), text
