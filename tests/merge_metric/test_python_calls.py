"""Public functions, with arguments for which users got Python's own errors."""

import logging
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from helpers.dataset_files import write_predictions as write_rows
from helpers.report_data import problems

import generation
import merge_dataset
import merge_metric
from merge_metric import (
    Evaluation,
    analyse,
    compare_models,
    evaluate_model,
    gather_evidence,
    read_frames,
    read_predictions,
    seed_results,
)

PROBLEMS = problems(12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return PROBLEMS.write(tmp_path_factory.mktemp("called") / "merge-nli")


@pytest.fixture(scope="module")
def files(folder: Path) -> list[Path]:
    return [
        write_rows(folder.parent / f"{name}.parquet", PROBLEMS.predictions(ability, name))
        for name, ability in (("good", 0.9), ("poor", 0.4))
    ]


def ask(folder: Path, name: str, label: str, config: Any = "snli", **options: Any) -> Evaluation:
    options = {"n_bootstrap": 0, "progress": False} | options
    return evaluate_model(lambda pairs: [label] * len(pairs), folder, config, name=name, **options)


@pytest.fixture(scope="module")
def evaluations(folder: Path) -> list[Evaluation]:
    return [ask(folder, "always", "neutral"), ask(folder, "never", "contradiction")]


Call = Callable[[Any, Any], Any]

OF_FILES: dict[str, Call] = {
    "analyse": lambda given, dataset: analyse("fooling", given, dataset)[0].to_text(),
    "compare_models": lambda given, dataset: compare_models(given, dataset, "snli", n_bootstrap=20)[
        "snli"
    ].as_dict(),
    "gather_evidence": lambda given, dataset: (
        gather_evidence(given, dataset, "snli", n_bootstrap=0).names
    ),
    "read_frames": lambda given, dataset: [
        (run.model, run.config, len(run.counts.seed_ids)) for run in read_frames(given, dataset)
    ],
    "seed_results": lambda given, dataset: seed_results(given, dataset).to_pylist(),
}
"""Functions of one or several predictions files and a dataset folder."""

RECORDS = {"Comparison", "Evaluation", "Frame", "RunFolder", "Table"}
"""Records that functions return."""
PAGE = (Path(__file__).parents[2] / "merge_metric/your-own-model.md").read_text(encoding="utf-8")


def test_settings_as_users_write_them(tmp_path: Path) -> None:
    """One text for several, a list for a tuple, a path for text; anything else is an error."""
    Config = generation.Config
    one = Config.from_recipe(
        "demo", mlms="./mine", run=tmp_path, source="mine", data=tmp_path / "pairs.csv"
    )
    assert (one.mlms, one.run, one.data) == (("./mine",), str(tmp_path), f"{tmp_path}/pairs.csv")
    assert Config(mlms=["a", Path("b")]) == Config(mlms=("a", "b"))  # type: ignore[arg-type]
    recipe = tmp_path / "mine.toml"
    recipe.write_text('word_classes = ["noun"]\n', encoding="utf-8")
    assert Config.from_recipe(recipe) == Config.from_recipe(str(recipe))
    assert Config.from_recipe(recipe).recipe == "mine"
    for make, wrong in (
        (lambda: Config(mlms=[3]), "mlms: expected a list of strings"),
        (lambda: Config(limit="4"), "limit: expected a whole number or nothing, got '4'"),
    ):
        with pytest.raises(ValueError, match=wrong):
            make()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("package", [merge_metric, merge_dataset, generation])
def test_the_page_has_all_public_names(package: ModuleType) -> None:
    section = PAGE.split("### All public names")[1].split("\n### ")[0]
    assert [name for name in {*package.__all__} - RECORDS if f"`{name}" not in section] == []


@pytest.mark.parametrize("name", OF_FILES)
def test_forms_of_predictions(
    name: str, folder: Path, files: list[Path], evaluations: list[Evaluation]
) -> None:
    """Texts, paths and evaluations, one or several; one text is no list of letters."""
    call = OF_FILES[name]
    assert call([*map(str, files)], str(folder)) == call(files, folder)
    by_file = [f"{evaluation.name}={evaluation.predictions}" for evaluation in evaluations]
    assert call(evaluations, folder) == call(by_file, folder)
    if name != "compare_models":
        assert call(str(files[0]), folder) == call(files[:1], folder)
    else:
        with pytest.raises(ValueError, match=r"two models or more, got good$"):
            call(str(files[0]), folder)


def test_models_compared(folder: Path, files: list[Path], evaluations: list[Evaluation]) -> None:
    """Evaluations, runs and files can be compared together, with names or without."""
    first, second = evaluations
    expected = first.compare(second, n_bootstrap=20)["snli"].as_dict()
    frames = [*first.frames, *second.frames]
    for given in (evaluations, iter(frames)):
        assert compare_models(given, n_bootstrap=20)["snli"].as_dict() == expected
    (mixed,) = compare_models({"a": first, "b": frames[1], "c": files[0]}).values()
    assert sorted(row["model"] for row in mixed.models.rows) == ["a", "b", "c"]
    (clustered,) = first.compare(second, cluster="premise", n_bootstrap=20).values()
    assert "those with the same premise together" in clustered.to_text()
    with pytest.raises(ValueError, match="evaluations with `cluster`, got the frame of always"):
        compare_models(frames, cluster="premise")
    alone = compare_models(files, n_bootstrap=20)["all rows"]
    assert {row["model"] for row in alone.models.rows} == {"good", "poor"}


def test_models_that_cannot_be_compared(folder: Path, evaluations: list[Evaluation]) -> None:
    message = "different names, got 2 called 'always'; say what each is called: `evaluate_model"
    with pytest.raises(ValueError, match=message):
        compare_models([evaluations[0], evaluations[0]])
    for method in (evaluations[0].compare, evaluations[0].plot_curves):
        with pytest.raises(ValueError, match=message):
            method(evaluations[0])
    both = [ask(folder, name, "neutral", ["snli", "snli_nouns"]) for name in "ab"]
    assert [*compare_models(both, n_bootstrap=20)] == ["snli", "snli_nouns"]
    assert [*compare_models(both, configs="snli_nouns", n_bootstrap=20)] == ["snli_nouns"]


def test_figures_of_an_evaluation(folder: Path, evaluations: list[Evaluation]) -> None:
    """The former error was: 'Evaluation' object is not subscriptable."""
    first = evaluations[0]
    assert [*first] == ["snli"]
    assert first["snli"] is first.results["snli"]
    assert first["seed_accuracy"] == first["snli"]["seed_accuracy"]
    several = ask(folder, "a", "neutral", ["snli", "snli_nouns"], n_bootstrap=20)
    with pytest.raises(KeyError, match="seed_accuracy"):
        several["seed_accuracy"]
    frame = several.to_pandas()
    assert frame["config"].tolist() == ["snli", "snli_nouns"]
    for row, result in enumerate(several.results.values()):  # no interval takes a figure's name
        single = {k: v for k, v in result.items() if isinstance(v, int | float | str)}
        assert {key: frame[key][row] for key in single} == single
        for key in ("seed_accuracy", "matching_threshold"):
            bounds = [frame[f"{key}_ci_{end}"][row] for end in ("low", "high")]
            assert bounds == result[f"{key}_ci"]
    assert "seed_accuracy_ci_low" not in first.to_pandas()


def test_predictions_are_written_as_the_suffix_says(
    evaluations: list[Evaluation], tmp_path: Path
) -> None:
    first = evaluations[0]
    with pytest.raises(ValueError, match=r"z\.csv: .* end in \.parquet, .*, got '\.csv'"):
        first.save(tmp_path / "z.csv")
    assert [*tmp_path.iterdir()] == []
    parquet, lines = (first.save(str(tmp_path / f"z.{end}")) for end in ("parquet", "jsonl"))
    assert parquet.read_bytes() == first.predictions.read_bytes()
    assert lines.read_text(encoding="utf-8").startswith('{"variant_id":')
    assert read_predictions(lines).to_pylist() == read_predictions(parquet).to_pylist()


def test_a_sample_is_no_lack(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        result = ask(folder, "some", "neutral", limit_seeds=4)
    assert "missing" not in caplog.text
    assert result["n_seeds_left_out"] == 8
    assert result.groups().title.startswith("snli, a sample of its seeds")
    assert "missing" not in result.groups().title
