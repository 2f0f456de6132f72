"""Tables of problems from datasets, against rows written by hand."""

from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.dataset_files import write_rows
from helpers.problem_folder import Problem, many_problems, problem_row, write_folder

from merge_dataset.files import describe_os_error
from merge_dataset.schema import LABELS
from merge_metric.frame.relations import draw_digests
from merge_metric.predict import problems as problems_module
from merge_metric.predict.problems import (
    SHOTS,
    description_of,
    hold_out,
    part_of_source,
    problem_schema,
    read_problems,
    sample_seeds,
    seeds_of,
    sources_of,
)

PROBLEMS: dict[str, Problem] = {
    "snli:1": ("A girl runs.", "A girl moves.", 0),
    "snli:2": ("A dog eats.", "A dog sleeps.", 2),
    "snli:1/noun/0": ("A boy runs.", "A boy moves.", 0),
    "snli:2/noun/0": ("A cat eats.", "A cat sleeps.", 2),
    "snli:1/verb/0": ("A girl swims.", "A girl moves.", 0),
    "demo:3": ("It rains.", "It rains a lot.", 1),
    "demo:3/verb/0": ("It snows.", "It snows a lot.", 1),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "merge-nli", PROBLEMS)


def rows_of(table: pa.Table) -> dict[str, Problem]:
    rows = table.to_pylist()
    assert len({row["variant_id"] for row in rows}) == len(rows)
    assert all(row["seed_id"] == row["variant_id"].partition("/")[0] for row in rows)
    return {r["variant_id"]: (r["premise"], r["hypothesis"], r["label"]) for r in rows}


def test_all_classes_of_every_source_by_default(folder: Path) -> None:
    table = read_problems(str(folder))
    assert rows_of(table) == PROBLEMS
    assert table.schema.equals(problem_schema())
    assert sources_of(table) == ["demo", "snli"]
    files = ("demo/verbs", "snli/nouns", "snli/verbs")
    assert description_of(table) == {
        "dataset": "merge-nli", "revision": None, "configs": ["demo", "snli"],
        "draws": draw_digests(folder, [f"{file}/variants.parquet" for file in files]),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"premise": "Another."}, "one problem per variant_id, got two for 'snli:1'"),
        ({"label": 1}, "one problem per variant_id, got two for 'snli:1'"),
        ({"label": 3}, "a label out of entailment, .* in every row, got 1 rows without label"),
        ({"hypothesis": None}, "texts and .* in every row, got 1 rows without hypothesis"),
    ],
)
def test_damaged_rows(folder: Path, change: dict[str, Any], message: str) -> None:
    """One id with two texts, labels out of range and empty cells are errors."""
    row = problem_row("snli:1", PROBLEMS["snli:1"]) | change
    write_rows(folder / "snli/verbs/seeds.parquet", [row])
    with pytest.raises(ValueError, match=message):
        read_problems(str(folder), ["snli_nouns", "snli_verbs"])


def test_problems_lie_on_disk(tmp_path: Path) -> None:
    everything = many_problems(300, 7) | many_problems(300, 7, "demo")
    folder = str(write_folder(tmp_path / "merge-nli", everything))
    before, configs = pa.total_allocated_bytes(), ["snli_nouns", "snli_verbs", "demo"]
    problems = read_problems(folder, configs)
    others = [seeds_of(problems), part_of_source(problems, "snli"), sample_seeds(problems, 200)]
    held = pa.total_allocated_bytes() - before
    assert held < min(table.nbytes for table in (problems, *others)) / 20
    assert rows_of(problems) == everything


def test_no_room_for_problems(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full")
    monkeypatch.setattr(problems_module, "TemporaryFile", lambda: full.open("w+b"))
    with pytest.raises(OSError, match="No space left") as caught:
        read_problems(str(folder))
    text = f"{gettempdir()}: no space left on device; make room there, then give the same"
    assert describe_os_error(caught.value).startswith(text)


def test_all_problems_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "problems.parquet"
    rows: dict[str, Any] = {"seed_id": ["snli:1", "snli:2"], "source": ["snli", "snli"]}
    rows |= {"premise": ["p", "q"], "hypothesis": ["h", "i"]}
    rows |= {"label": ["contradiction", "entailment"], "annotator_labels": [["neutral"], []]}
    table = pa.table(rows)
    pq.write_table(table, path)
    problems = read_problems(str(path))
    assert rows_of(problems) == {"snli:1": ("p", "h", 2), "snli:2": ("q", "i", 0)}
    assert len(seeds_of(problems)) == 2
    assert sources_of(problems) == ["snli"]
    with pytest.raises(ValueError, match="expected no configurations for a file of problems"):
        read_problems(str(path), ["snli"])
    pq.write_table(table.set_column(4, "label", pa.array(["yes", "no"])), path)
    with pytest.raises(ValueError, match="got 2 rows without"):
        read_problems(str(path))
    pq.write_table(table.select(["premise", "label"]), path)
    with pytest.raises(ValueError, match=r"problems.parquet: expected the columns .*seed_id"):
        read_problems(str(path))


def test_samples_keep_whole_seeds_and_nest(tmp_path: Path) -> None:
    everything = many_problems(40, 3)
    problems = read_problems(str(write_folder(tmp_path / "merge-nli", everything)))
    chosen = {}
    for count in (5, 20):
        sample = sample_seeds(problems, count)
        chosen[count] = set(sample["seed_id"].to_pylist())
        assert len(chosen[count]) == count
        expected = {n: it for n, it in everything.items() if n.partition("/")[0] in chosen[count]}
        assert rows_of(sample) == expected
        assert description_of(sample)["limit_seeds"] == count
    assert chosen[5] < chosen[20]
    assert set(sample_seeds(problems, 5, rng_seed=1)["seed_id"].to_pylist()) != chosen[5]
    assert sample_seeds(problems, 99).num_rows == problems.num_rows


def test_seeds_that_are_held_out(tmp_path: Path) -> None:
    everything = many_problems(40, 3)
    shown = description_of(hold_out(read_problems(str(write_folder(tmp_path / "a", everything)))))
    *_, repeated = (shot["seed_id"] for shot in shown[SHOTS]["snli"])
    everything["snli:39/noun/9"] = everything[repeated]
    problems = read_problems(str(write_folder(tmp_path / "merge-nli", everything)))
    left = hold_out(problems)
    shots = description_of(left)[SHOTS]["snli"]
    assert sorted(shot["label"] for shot in shots) == sorted(2 * LABELS)
    held = {shot["seed_id"] for shot in shots}
    assert repeated not in held
    assert set(left["seed_id"].to_pylist()) == set(problems["seed_id"].to_pylist()) - held
    asked = {*rows_of(left).values()}
    for shot in shots:
        texts = (shot["premise"], shot["hypothesis"], LABELS.index(shot["label"]))
        assert everything[shot["seed_id"]] == texts
        assert texts not in asked
    assert rows_of(sample_seeds(left, 20)) == rows_of(sample_seeds(problems, 20))
    assert description_of(part_of_source(left, "snli"))[SHOTS] == {"snli": shots}
    other = description_of(hold_out(problems, rng_seed=1))[SHOTS]["snli"]
    assert {shot["seed_id"] for shot in other} != held
    few = read_problems(str(write_folder(tmp_path / "few", many_problems(6, 1))))
    with pytest.raises(ValueError, match=r"shots: expected with seeds at least 2 of each label to"):
        hold_out(few)
