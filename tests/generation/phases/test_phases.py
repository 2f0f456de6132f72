from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import Result
from helpers.dataset_files import files_of
from helpers.run_folders import copy_of
from helpers.tasks_here import TasksHere
from helpers.tiny_models import tiny_model
from typer.testing import CliRunner

from generation import Config, build, generate, suggest
from generation.cli import app
from generation.config import BUNDLED_MLM
from generation.phases.suggest import QuestionWork, find_questions
from generation.problems import on_disk
from generation.problems.on_disk import block_sizes, sorted_problems
from generation.problems.sources import ProblemReader
from generation.problems.tagging import Tagger
from generation.run_folder import RunFolder
from generation.suggestions import questions
from generation.variants import work as blocks
from generation.variants.reasons import KEPT, SUGGESTION_REASONS
from merge_dataset.executors import Distribution, ExecutorError
from merge_dataset.files import (
    digest_of_file,
    partial_path,
    read_json,
    read_record,
    write_record,
    write_text,
)

LIMIT = 12
MADE = ("replacements", "exclusions", "seeds", "variants")


def demo_config(run: Path, **settings: object) -> Config:
    return Config.from_recipe("demo", run=str(run), limit=LIMIT, **settings)


def bytes_made(run: RunFolder) -> dict[str, str]:
    """Digests of all files that a build makes, and of all parts of the store."""
    paths = [getattr(run, name) for name in MADE] + sorted(run.store.rglob("*.answers"))
    return {str(path.relative_to(run.path)): digest_of_file(path) for path in paths}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return generate(demo_config(tmp_path_factory.mktemp("run") / "base"))


def test_run_folder_holds_what_the_readme_says(run: RunFolder) -> None:
    names = {path.name for path in run.path.iterdir()}
    assert names == {
        "config.toml", "manifest.json", "suggested.json", "suggestions", "problems.parquet",
        "questions", "stores", "replacements.parquet", "exclusions.parquet", "seeds.parquet",
        "variants.parquet",
    }  # fmt: skip
    assert not list(run.path.rglob("*.partial"))
    manifest = read_json(run.manifest)
    replacements = pq.read_table(run.replacements).to_pylist()
    for row in manifest["funnel"]:
        assert row["suggestions"] == sum(row[reason] for reason in SUGGESTION_REASONS) + row[KEPT]
        mine = [r for r in replacements if r["word_class"] == row["word_class"]]
        assert row["replacements"] == len(mine)
    variants = pq.read_table(run.variants).to_pylist()
    for word_class, count in manifest["eligible"].items():
        assert count == len({v["seed_id"] for v in variants if v["word_class"] == word_class})
    assert manifest["files"]["variants.parquet"] == digest_of_file(run.variants)
    assert manifest["mlms"][0]["revision"]
    assert manifest["tagger"].endswith("3.8.0")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_blocks_and_workers_change_no_byte(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    other = copy_of(run, tmp_path / "blocks")
    monkeypatch.setattr(on_disk, "BLOCK", 5)
    suggest(demo_config(other.path))
    assert block_sizes(other.problems) == [5, 5, 2]
    build(other.path, workers=workers)
    assert bytes_made(other) == bytes_made(run)
    assert read_json(other.manifest)["funnel"] == read_json(run.manifest)["funnel"]


@pytest.mark.slow
def test_without_a_masked_lm_bytes_are_those_of_a_run_without_it(
    run: RunFolder, tmp_path: Path
) -> None:
    """The manifest differs only in the setting, and so the fingerprint."""
    other = tiny_model("bert-uncased")
    both = generate(demo_config(tmp_path / "both", mlms=(str(other), BUNDLED_MLM)))
    without = build(both.path, into="without", without_mlms=(other.name,))
    one, two, three = (
        [getattr(of, name).read_bytes() for name in MADE] for of in (without, run, both)
    )
    assert one == two
    assert one[0] != three[0]
    named = {m for row in pq.read_table(both.variants)["mlms"].to_pylist() for m in row}
    assert named == {other.name, BUNDLED_MLM}
    result, expected = read_record(without.manifest), read_record(run.manifest)
    assert result["config"].pop("without_mlms") == [other.name]
    assert result["explained"]["settings"].pop("without_mlms").startswith("Leave out")
    assert [mlm["name"] for mlm in result["mlms"]] == [BUNDLED_MLM]
    assert result.pop("fingerprint") != expected.pop("fingerprint")
    assert result == expected
    assert "without_mlms" not in read_json(both.manifest)["config"]
    assert "without_mlms" not in both.config.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("split", "train", "split None, which .*, got 'train'"),
        ("label_map", {"yes": "entailment"}, "label_map {}, which .*, got {'yes': 'entailment'}"),
        ("mlms", ("other",), "mlms .*bert-tiny-mlm.*, which .*, got .*'other'"),
        ("ask_all", False, "ask_all True"),
    ],
)
def test_a_build_changes_nothing_that_suggest_did(
    run: RunFolder, tmp_path: Path, name: str, value: object, shown: str
) -> None:
    """The setting would be ignored, but recorded in the manifest."""
    other = copy_of(run, tmp_path / "other")
    before = bytes_made(other)
    with pytest.raises(ValueError, match=shown):
        build(other.path, into="mine", **{name: value})
    assert bytes_made(other) == before
    assert not (other.path / "mine").exists()


@pytest.mark.parametrize("name", ["../elsewhere", ".hidden", "suggestions", "tasks"])
def test_a_build_stays_inside_its_run(run: RunFolder, name: str) -> None:
    with pytest.raises(ValueError, match=f"into: expected for the build a name .*, got '{name}'"):
        build(run.path, into=name)


def test_nothing_eligible_says_how_many_there_were(run: RunFolder, tmp_path: Path) -> None:
    other = copy_of(run, tmp_path / "strict")
    with pytest.raises(
        ValueError, match=r"no seed has 5000 .*the most is \d+; add masked LMs"
    ) as error:
        build(other.path, min_replacements=5000, overwrite=True)
    counts = Counter(
        (row["seed_id"], row["word_class"])
        for row in pq.read_table(run.replacements, columns=["seed_id", "word_class"]).to_pylist()
    )
    of_seeds = Counter[str]()
    for (seed, _), count in counts.items():
        of_seeds[seed] = max(of_seeds[seed], count)
    most = max(of_seeds.values())
    assert f"the most is {most};" in str(error.value)
    assert bytes_made(other) == bytes_made(run)
    assert other.manifest.is_file()


def test_nothing_made_otherwise_is_replaced_without_a_word(run: RunFolder, tmp_path: Path) -> None:
    other = copy_of(run, tmp_path / "other")
    before = bytes_made(other)
    refused: list[tuple[Callable[..., object], str]] = [
        (partial(build, other.path, min_replacements=3), "min_replacements: 20 there, 3 now"),
        (partial(suggest, demo_config(other.path, masking="joint")), "masking: single there, jo"),
        (partial(generate, demo_config(other.path, subsamples=2)), "subsamples: 10 there, 2 now"),
        (partial(generate, demo_config(other.path, mlms=("bert-base",))), "bert-base now"),
    ]
    for command, differing in refused:
        with pytest.raises(FileExistsError, match=rf"{differing}.* or replace it with --overwrite"):
            command()
    record = read_record(other.suggested)
    changed = {**record, "source_data": {**record["source_data"], "sha256": "0" * 64}}
    write_record(other.suggested, changed)
    with pytest.raises(FileExistsError, match="the problems that were read: others there"):
        suggest(demo_config(other.path))
    write_record(other.suggested, record)
    assert bytes_made(other) == before
    assert read_json(other.manifest) == read_json(run.manifest)
    suggest(demo_config(other.path))
    assert other.manifest.is_file()


@pytest.mark.parametrize("name", ["problems.parquet", "questions/questions.json"])
def test_what_was_changed_in_between_is_not_built_on(
    run: RunFolder, tmp_path: Path, name: str
) -> None:
    other = copy_of(run, tmp_path / "other")
    content = bytearray((other.path / name).read_bytes())
    content[-30] ^= 1
    (other.path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name.rpartition('/')[2]}.* got (other|an error)"):
        build(other.path)
    assert bytes_made(other) == bytes_made(run)


def test_one_command_at_a_time(run: RunFolder, tmp_path: Path) -> None:
    other = copy_of(run, tmp_path / "other")
    left = partial_path(other.variants), partial_path(other.candidates)
    left[0].touch()
    left[1].mkdir()
    foreign = partial_path(other.path / "predictions.parquet")
    foreign.touch()
    for command in (suggest, generate):
        with other.locked(), ThreadPoolExecutor(1) as pool:
            refused = pool.submit(command, demo_config(other.path)).exception(timeout=60)
        assert isinstance(refused, BlockingIOError)
        assert "another command is at work in this folder" in str(refused)
    build(other.path)
    assert not any(path.exists() for path in left)
    assert foreign.exists()
    assert bytes_made(other) == bytes_made(run)


@pytest.mark.slow
def test_an_unfinished_suggest_is_not_taken_for_the_one_before(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = copy_of(run, tmp_path / "unfinished")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("generation.phases.suggest.ask_task", killed)
        with pytest.raises(KeyboardInterrupt):
            suggest(demo_config(other.path, word_classes=("noun",)), overwrite=True)
    for ablation in (None, "union"):
        with pytest.raises(FileNotFoundError, match="expected suggestions in"):
            build(other.path, ablation=ablation)


def test_a_build_beside_its_run_leaves_the_run_as_it_was(run: RunFolder, tmp_path: Path) -> None:
    other = copy_of(run, tmp_path / "other")
    fine = build(other.path, into="fine", tag_match="fine", min_replacements=15)
    assert fine.manifest.is_file()
    assert [Config.read(made.config).tag_match for made in (fine, other)] == ["fine", "coarse"]
    assert bytes_made(other) == bytes_made(run)


BLOCKS = 5
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def suggested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of several blocks after `suggest`; each test names its own build in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_disk, "BLOCK", 3)
        run = str(tmp_path_factory.mktemp("suggested") / "run")
        suggest(Config.from_recipe("demo", run=run, limit=3 * BLOCKS - 1))
    return Path(run)


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> TasksHere:
    return TasksHere(monkeypatch)


@pytest.fixture
def build_into(suggested: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `build` into a folder of the run, with a separate dataset."""
    monkeypatch.chdir(suggested.parent)

    def run(into: str, *options: Any) -> Result:
        fixed = ("build", "--run", "run", "--into", into, "--out", tmp_path / into / "data")
        return CliRunner().invoke(app, [*map(str, fixed), *map(str, options)])

    return run


def files(folder: Path) -> dict[str, bytes]:
    """All files of a folder except locks, so that leftover files are found."""
    return files_of(folder, r"\.lock.*")


TASKS = ("--executor", "local", "--tasks")


@pytest.mark.slow(but=["2"])
@pytest.mark.parametrize("count", [1, 2, 5], ids=str)
def test_the_number_of_tasks_changes_no_byte(
    build_into: Run,
    tasks: TasksHere,
    suggested: Path,
    tmp_path: Path,
    count: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    whole, dealt = f"whole{count}", f"dealt{count}"
    options = ("--repair-articles", "--min-mlms", 1)
    assert build_into(whole, *options).exit_code == 0
    done = build_into(dealt, *options, *TASKS, count, "--gpus-per-task", 1)
    assert done.exit_code == 0, done.output
    assert tasks.blocks == [f"block {number}" for number in range(BLOCKS)]
    assert "this step has no use for GPUs, so its tasks get none" in caplog.text
    assert tasks.distribution == Distribution(executor="local", tasks=count)
    made = files(suggested / whole)
    assert len(made) == 6
    assert files(suggested / dealt) == made
    assert files(tmp_path / dealt / "data") == files(tmp_path / whole / "data")


Find = Callable[..., dict[str, bytes]]


@pytest.fixture
def find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Find:
    """Finds a run's questions, in several blocks, by name; returns their files."""
    monkeypatch.setattr(on_disk, "BLOCK", 4)
    monkeypatch.setattr(questions, "BLOCK", 8)
    monkeypatch.setattr(Tagger, "load", partial(lambda it, *_, **__: it, Tagger.load()))

    def find(name: str, tasks: int | None = None, **settings: Any) -> dict[str, bytes]:
        run = RunFolder(tmp_path / name)
        config = Config.from_recipe("demo", run=str(run.path), limit=4 * BLOCKS - 1, **settings)
        if not run.problems.is_file():
            with sorted_problems(run.problems) as add:
                ProblemReader(config).read(add)
        write_text(run.config, config.to_toml())
        there = Distribution(executor="local", tasks=tasks or 1, gpus=1)
        find_questions(QuestionWork(run, config), there if tasks else None)
        assert sorted(path.name for path in run.path.iterdir()) == [
            "config.toml", "problems.parquet", "questions"
        ]  # fmt: skip
        files = filter(Path.is_file, run.questions.rglob("*"))
        return {path.relative_to(run.path).as_posix(): path.read_bytes() for path in files}

    return find


def test_a_block_that_failed_is_done_anew(find: Find, tasks: TasksHere) -> None:
    tasks.failing = ("block 4",)
    with pytest.raises(ExecutorError, match="block 4: OSError: no room"):
        find("dealt", 2)
    tasks.failing = ()
    assert find("dealt", 2) == find("here")
    assert len(tasks.blocks) == BLOCKS


@pytest.mark.parametrize("there", [{"tagger": "en_other 1"}, {"numpy": "1"}], ids=str)
def test_tasks_on_other_machines(
    there: dict[str, Any], find: Find, tasks: TasksHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_with = blocks._made_with
    monkeypatch.setattr(blocks, "_made_with", lambda work: made_with(work) | there)
    call = blocks.run_blocks

    def elsewhere(*arguments: Any) -> Any:
        monkeypatch.setattr(blocks, "_made_with", made_with)
        return call(*arguments)

    monkeypatch.setattr(blocks, "run_blocks", elsewhere)
    with pytest.raises(ExecutorError, match=r"tagger and versions, .* has "):
        find("run", 1)
