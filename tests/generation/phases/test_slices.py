import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import refused
from helpers.commands import run as run_command
from helpers.dataset_files import write_plain

from generation import Config, RunFolder, build, generate, suggest
from generation.config import bundled_path
from generation.phases import slices
from generation.phases.slices import require_same_mlms, suggestions_of
from generation.problems.sources import Problems
from generation.suggestions.masked_lm import MaskedLM
from merge_dataset.checks import check_dataset
from merge_dataset.executors.plan import ExecutorError
from merge_dataset.export import export_dataset
from merge_dataset.files import read_record, write_record

LIMIT, SIZE = 14, 5
TABLES = ("replacements", "exclusions", "seeds", "variants")


def config(run: Path, **settings: Any) -> Config:
    return Config.from_recipe(
        "demo", **{"run": str(run), "source": "mine", "min_replacements": 8} | settings
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first bundled problems in three unsorted files, one unlabelled, one id used twice."""
    folder = tmp_path_factory.mktemp("files")
    text = bundled_path("demo/problems.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()[:LIMIT]]
    rows = rows[::-1]
    rows[3]["gold_label"] = "-"
    rows[9]["pairID"] = rows[1]["pairID"]
    for number in range(3):
        write_plain(folder / f"part-{number}.jsonl", rows[number * 5 : number * 5 + 5])
    write_plain(folder / "whole.jsonl", rows)
    return folder


@pytest.fixture(scope="module")
def whole(files: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = tmp_path_factory.mktemp("whole") / "run"
    return generate(config(run, data=str(files / "whole.jsonl")))


def rows_of(folder: RunFolder, name: str) -> list[dict[str, Any]]:
    made = read_record(folder.manifest)
    parts = [folder.path / each for each in made.get("slices", ["."])]
    tables = [pq.ParquetFile(part / f"{name}.parquet").read() for part in parts]
    return pa.concat_tables(tables).to_pylist()


@pytest.mark.slow
def test_slices_make_what_one_run_makes(files: Path, whole: RunFolder, tmp_path: Path) -> None:
    data = str(files / "part-*.jsonl")
    run = generate(config(tmp_path / "run", data=data, slice_problems=SIZE))
    assert [path.name for path in sorted((run.path / "slices").iterdir())] == [
        "00000-of-00003", "00001-of-00003", "00002-of-00003",
    ]  # fmt: skip
    one, made = read_record(whole.manifest), read_record(run.manifest)
    for name in TABLES:
        assert rows_of(run, name) == rows_of(whole, name), name
    for key in ("config", "problems", "eligible", "variants", "funnel", "tagger", "packages"):
        assert made[key] == one[key], key
    assert made["source_data"]["sha256"] == one["source_data"]["sha256"]
    for folder in (run, whole):
        export_dataset(folder.path, tmp_path / folder.path.parent.name / "merge-nli")
    ours, theirs = (tmp_path / each.path.parent.name / "merge-nli" for each in (run, whole))
    assert check_dataset(ours) == []
    found = sorted(path.relative_to(theirs) for path in theirs.rglob("*.parquet"))
    assert found == sorted(path.relative_to(ours) for path in ours.rglob("*.parquet"))
    assert all((ours / path).read_bytes() == (theirs / path).read_bytes() for path in found)
    for folder in (run, whole):
        build(folder.path, into="fine", tag_match="fine")
        build(folder.path, ablation="union")
    for name in ("fine", "union"):
        assert rows_of(run.named(name), "variants") == rows_of(whole.named(name), "variants")


@pytest.mark.slow
def test_a_slice_that_fails_leaves_the_others(
    files: Path, whole: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(tmp_path / "run", data=str(files / "part-*.jsonl"), slice_problems=SIZE)
    calls, score = [], MaskedLM.score

    def failing(mlm: MaskedLM, *arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("out of memory")
        return score(mlm, *arguments, **options)

    monkeypatch.setattr(MaskedLM, "score", failing)
    with pytest.raises(ExecutorError, match=r"1 of 3 slices failed: 00001-of-00003: out of memory"):
        suggest(settings)
    with pytest.raises(ExecutorError, match="1 of 3 slices failed: 00001-of-00003: expected sugg"):
        build(settings.run)
    assert not RunFolder(Path(settings.run)).manifest.exists()
    before, made = len(calls), times(tmp_path / "run", "suggested.json")
    suggest(settings)
    assert len(calls) == before + 1
    assert times(tmp_path / "run", "suggested.json").items() > made.items()
    assert rows_of(build(settings.run), "variants") == rows_of(whole, "variants")


def test_an_interrupted_command_does_not_read_the_source_again(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data.jsonl"
    data.write_bytes((files / "whole.jsonl").read_bytes())
    read, load, stops = [], slices.load_problems, True

    def counted(*arguments: Any, **options: Any) -> Problems:
        read.append(1)
        return load(*arguments, **options)

    def ask(config: Config, **_: Any) -> None:
        if stops and config.run.endswith("00001-of-00003"):
            raise KeyboardInterrupt
        write_record(RunFolder(Path(config.run)).suggested, {"mlms": []})

    def reads(**changed: Any) -> int:
        before = len(read)
        try:
            suggest(config(tmp_path / "run", data=str(data), slice_problems=SIZE, **changed))
        except KeyboardInterrupt:
            assert stops
        return len(read) - before

    monkeypatch.setattr(slices, "load_problems", counted)
    monkeypatch.setattr(slices, "suggest_run", ask)
    assert [reads(), reads(), reads(workers=2)] == [1, 0, 0]
    assert Config.read(tmp_path / "run" / "config.toml").workers == 2
    part = tmp_path / "run/slices/00002-of-00003/problems.parquet"
    whole = part.read_bytes()
    part.write_bytes(whole[:-1])
    assert [reads(), reads()] == [1, 0]
    assert part.read_bytes() == whole
    stops = False
    assert reads() == 0
    with pytest.raises(FileExistsError, match="expected no slices or the same ones"):
        reads(limit=LIMIT - 2)
    assert [len(read), reads()] == [3, 0]
    data.write_text(data.read_text().replace("a", "o", 1))
    with pytest.raises(FileExistsError, match="expected no slices or the same ones"):
        reads()
    assert len(read) == 4


def times(run: Path, name: str) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in run.glob(f"slices/*/{name}")}


@pytest.mark.slow
def test_a_build_goes_on_with_the_slices_that_are_missing(
    files: Path, whole: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(tmp_path / "run", data=str(files / "part-*.jsonl"), slice_problems=SIZE)
    run, real, fails = suggest(settings), slices.build_run, ["00002-of-00003"]

    def failing(folder: Path, **options: Any) -> RunFolder:
        if folder.name in fails:
            raise OSError("disk full")
        return real(folder, **options)

    def build_failing(**options: Any) -> dict[str, int]:
        with pytest.raises(ExecutorError, match=r"00002-of-00003: disk full\. What the others did"):
            build(run.path, **options)
        assert not run.manifest.exists()
        return times(run.path, "manifest.json")

    monkeypatch.setattr(slices, "build_run", failing)
    with pytest.raises(ValueError, match="expected limit none, which merge-nli suggest had, got 3"):
        build(run.path, limit=3)
    first = build_failing()
    assert len(first) == 2
    assert build_failing(workers=2) == first
    assert not build_failing(subsamples=2, overwrite=True).items() & first.items()
    second = build_failing(overwrite=True)
    part = RunFolder(run.path / "slices/00000-of-00003")
    write_record(part.suggested, read_record(part.suggested) | {"more": 1})
    third = build_failing()
    assert len(third.items() & second.items()) == 1
    fails.clear()
    assert rows_of(build(run.path), "variants") == rows_of(whole, "variants")
    assert len(times(run.path, "manifest.json").items() & third.items()) == 2
    assert not list(run.path.glob("slices_done*"))
    build(run.path)
    assert not times(run.path, "manifest.json").items() & third.items()


def test_slices_have_the_same_masked_lms(files: Path, tmp_path: Path) -> None:
    settings = config(tmp_path / "run", data=str(files / "part-[01].jsonl"), slice_problems=8)
    run = suggest(settings)
    last = RunFolder(run.path / "slices/00001-of-00002").suggested
    record = read_record(last)
    made = {"name": "m", "revision": "other", "dtype": "float32", "device": "cpu"}
    with pytest.raises(ValueError, match="expected the same masked LMs in all slices"):
        require_same_mlms(run, [record, record | {"mlms": [made]}])


def test_slices_on_the_command_line(files: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    given = ("suggest", "--recipe", "demo", "--source", "mine", "--run", run)
    given += ("--data", files / "part-[01].jsonl")
    text = run_command(*given, "--slice-problems", 8).output
    record = suggestions_of(RunFolder(run))
    assert f"{record['questions']} occurrences asked about" in text
    assert record["slices"] == ["slices/00000-of-00002", "slices/00001-of-00002"]
    other = refused(*given, "--slice-problems", 3)
    assert "expected no slices or the same ones, found slices of 8" in other
    assert "add --slice-problems 8" in refused(*given)
    first = f"name one, such as --run {run}/slices/00000-of-00002"
    assert first in refused("count", "--run", run)
    none = refused("suggest", "--source", "mine", "--data", tmp_path / "none-*.jsonl")
    assert "expected a file, found none" in none
