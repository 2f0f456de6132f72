import importlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import evaluate
import evaluate.config
import numpy as np
import pytest
import yaml
from helpers.metric_loading import ROWS, SPACE, card_blocks, python, start
from helpers.metric_oracle import WHERE_CURVE_MEETS_S
from packaging.version import Version

from generation import cli
from merge_dataset.files import exclusive
from merge_metric.register import METRIC_NAME, default_modules_cache, module_files, register_metric
from merge_metric.seed_variant_accuracy import seed_variant_accuracy as module
from merge_metric.seed_variant_accuracy.scoring import score

LOAD = """
import json
metric = evaluate.load(PATH)
assert "merge_metric" not in sys.modules
print(json.dumps(metric.compute(**ROWS)))
"""


def loaded(path: str, cwd: Path, home: Path) -> Any:
    return json.loads(python(f"PATH, ROWS = {path!r}, {ROWS}" + LOAD, cwd, home))


@pytest.mark.slow
def test_as_a_space(tmp_path: Path) -> None:
    """A copy of the folder needs nothing else of this repository."""
    shutil.copytree(SPACE, tmp_path / METRIC_NAME, ignore=shutil.ignore_patterns("__pycache__"))
    assert loaded(METRIC_NAME, tmp_path, tmp_path / "home") == score(**ROWS)


@pytest.mark.slow
def test_registered(tmp_path: Path) -> None:
    """The bare name loads in both configurations; if not registered, evaluate raises an error."""
    missing = """
try:
    evaluate.load("seed_variant_accuracy")
except FileNotFoundError as error:
    print(error)
"""
    output = python(missing, tmp_path, tmp_path / "none")
    assert "Module 'seed_variant_accuracy' doesn't exist on the Hugging Face Hub" in output

    register_metric(tmp_path / "home" / "modules")
    examples = """
import doctest, json
metric = evaluate.load("seed_variant_accuracy")
test = doctest.DocTestParser().get_doctest(metric.inputs_description, {}, "usage", None, 0)
print(json.dumps(doctest.DocTestRunner().run(test)))
print(json.dumps(metric.compute(**ROWS)))
"""
    lines = python(f"ROWS = {ROWS}" + examples, tmp_path, tmp_path / "home").splitlines()
    failed, attempted = json.loads(lines[-2])
    assert (failed, attempted) == (0, 9), "\n".join(lines)
    assert json.loads(lines[-1]) == score(**ROWS)


def test_the_loader_reads_every_import() -> None:
    imports = evaluate.loading.get_imports(str(SPACE / f"{METRIC_NAME}.py"))
    internal = {name for kind, name, *_ in imports if kind == "internal"}
    siblings = set(module_files()) - {"__init__.py", f"{METRIC_NAME}.py"}
    assert {f"{name}.py" for name in internal} == siblings
    assert {kind for kind, *_ in imports} == {"internal", "library"}


def entries(cache: Path) -> Path:
    return cache / "evaluate_modules/metrics/evaluate-metric--seed_variant_accuracy"


def test_every_command_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands also run if the cache is not writable, or during another registration."""
    (tmp_path / "no folder").touch()
    lock = entries(tmp_path / "held").with_name(f".evaluate-metric--{METRIC_NAME}.lock")
    with exclusive(lock, ""):
        for cache in (tmp_path / "modules", tmp_path / "no folder", tmp_path / "held"):
            monkeypatch.setenv("HF_MODULES_CACHE", str(cache))
            monkeypatch.setattr(sys, "argv", ["merge-nli", "--version"])
            with pytest.raises(SystemExit, match="0"):
                cli.main()
            assert capsys.readouterr().out.startswith("merge-nli ")
    assert newest(tmp_path / "modules") == register_metric(tmp_path / "modules").name


def newest(cache: Path) -> str:
    """The entry that evaluate chooses, by its own code."""
    factory = evaluate.loading.CachedEvaluationModuleFactory(
        f"evaluate-metric--{METRIC_NAME}", dynamic_modules_path=str(cache / "evaluate_modules")
    )
    return str(factory.get_module().module_path).split(".")[-2]


def test_registering_again_marks_it_newest(tmp_path: Path) -> None:
    entry = register_metric(tmp_path)
    other = entries(tmp_path) / ("0" * 64)
    shutil.copytree(entry, other)
    future = (entry / f"{METRIC_NAME}.py").stat().st_mtime + 1000
    os.utime(other / f"{METRIC_NAME}.py", (future, future))
    assert newest(tmp_path) == other.name
    inode = (entry / "scoring.py").stat().st_ino
    assert register_metric(tmp_path) == entry
    assert newest(tmp_path) == entry.name
    assert (entry / "scoring.py").stat().st_ino == inode
    assert other.is_dir()


@pytest.mark.parametrize("damage", ["truncated", "missing", "file", "empty"])
def test_broken_entry_is_replaced(tmp_path: Path, damage: str) -> None:
    entry = register_metric(tmp_path)
    if damage == "truncated":
        (entry / "scoring.py").write_text("")
    elif damage == "missing":
        (entry / "scoring.py").unlink()
    else:
        shutil.rmtree(entry)
        entry.touch() if damage == "file" else entry.mkdir()
    assert register_metric(tmp_path) == entry
    assert (entry / "scoring.py").read_bytes() == (SPACE / "scoring.py").read_bytes()
    assert newest(tmp_path) == entry.name


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"XDG_CACHE_HOME": "/xdg"},
        {"HF_HOME": "~/hf", "XDG_CACHE_HOME": "/xdg"},
        {"HF_HOME": "/hf", "HF_MODULES_CACHE": "/modules"},
    ],
)
def test_default_cache_is_that_of_evaluate(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        for name in ("HF_HOME", "HF_MODULES_CACHE", "XDG_CACHE_HOME"):
            patched.delenv(name, raising=False)
        for name, value in variables.items():
            patched.setenv(name, value)
        expected = importlib.reload(evaluate.config).HF_MODULES_CACHE
        assert default_modules_cache() == expected
    importlib.reload(evaluate.config)


CARD = (SPACE / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    level, text = re.search(rf"^(#+) {re.escape(title)}\n(.*)", CARD, re.M | re.S).groups()
    return re.split(rf"^#{{1,{len(level)}}} ", text, flags=re.M)[0]


def rows(text: str) -> list[list[str]]:
    cells = [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    rules = [place for place, row in enumerate(cells) if set("".join(row)) <= {"-"}]
    return [row for place, row in enumerate(cells) if place not in rules and place + 1 not in rules]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_python_blocks_run_and_print_what_they_say(tmp_path: Path) -> None:
    register_metric(tmp_path / "home" / "modules")
    blocks = card_blocks("python")
    assert len(blocks) == 3
    text = re.findall(r"^print\(.*\)  # (.*)$", "\n".join(blocks), flags=re.M)
    assert len(text) == 8
    output = python("\n".join(blocks), tmp_path, tmp_path / "home")
    assert output.splitlines() == text


def test_outputs_are_the_keys_of_a_result() -> None:
    documented = [name for row in rows(section("Outputs")) for name in names(row[0])]
    assert len(documented) == len(set(documented))
    both = dict.fromkeys(("probabilities", "seed_probabilities"), np.full((4, 3), 1 / 3))
    groups, clusters = {"half": ["a", "b", "a", "b"]}, {"premise": ["p"] * 4}
    drawn = [[0], [1], [0], [1]]
    result = score(**ROWS, **both, subsamples=drawn, groups=groups, clusters=clusters)
    assert {"<key>_ci", "<key>_std"} <= set(documented)
    figures = {key for key in result if f"{key}_ci" in result}
    spread = {f"{key}_std" for key in figures if key not in WHERE_CURVE_MEETS_S}
    derived = {f"{key}_ci" for key in figures} | spread
    assert derived <= set(result)
    assert set(result) - derived == set(documented) - {"<key>_ci", "<key>_std"}
    assert figures <= set(documented)


def test_inputs_are_those_of_the_module() -> None:
    columns, options = section("Inputs").split("| option |")
    shown = [name for row in rows(columns) for name in names(row[0])]
    assert shown == list(module.CONFIGURATIONS["subsamples"])
    documented = {name: row[1] for row in rows("| option |" + options) for name in names(row[0])}
    assert set(documented) == set(module.OPTIONS)
    assert documented["correctness_threshold"] == "90"
    assert documented["n_bootstrap"] == "1000"
    assert documented["rng_seed"] == "0"


def test_front_matter() -> None:
    """The card has the entries that the Hub needs to show and run the Space."""
    matter = yaml.safe_load(CARD.split("---\n")[1])
    assert matter["sdk"] == "gradio"
    assert matter["tags"] == ["evaluate", "metric"]
    assert (SPACE / matter["app_file"]).is_file()
    assert "license" in matter
    needed = requirements()
    assert Version(needed["gradio"]) <= Version(matter["sdk_version"])
    assert {"evaluate", "datasets", "numpy", "gradio"} <= set(needed)


def requirements() -> dict[str, str]:
    lines = (SPACE / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split(">=") for line in lines if line and not line.startswith("#"))


def test_citation_is_the_modules() -> None:
    (block,) = card_blocks("bibtex")
    assert block.strip() == module.CITATION.strip()


@pytest.fixture
def published(shared_data: Path) -> dict[str, Any]:
    return json.loads((shared_data.parent / "spec" / "paper_tables.json").read_text())


@pytest.mark.real
def test_matching_thresholds_of_the_paper(published: dict[str, Any]) -> None:
    """Thresholds of Figure 5, for every model and source."""
    figure = dict(published["figure5_mc"])
    assert figure.pop("columns") == ["snli", "mnli-m", "mnli-mm"]
    table = {row[0]: list(map(int, row[1:])) for row in rows(section(VALUES)) if len(row) == 4}
    assert table == figure


VALUES = "Values from the papers"


Load = Callable[..., Any]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Makes metrics whose rows are stored in a folder, which must be empty in the end."""

    def make(config_name: str = "default", **more: Any) -> Any:
        return module.SeedVariantAccuracy(
            config_name=config_name, cache_dir=str(tmp_path / "cache"), **more
        )

    yield make
    assert list((tmp_path / "cache").rglob("*.arrow")) == []


def many(n: int = 240) -> dict[str, list[Any]]:
    """Columns of n variants, four per seed."""
    rng = np.random.default_rng(0)
    gold = np.repeat(rng.integers(0, 3, n // 4), 4)
    own = np.repeat(rng.integers(0, 3, n // 4), 4)
    return {
        "predictions": np.where(rng.random(n) < 0.7, gold, rng.integers(0, 3, n)).tolist(),
        "references": gold.tolist(),
        "seed_ids": np.repeat(np.arange(n // 4), 4).tolist(),
        "seed_predictions": own.tolist(),
    }


def part(columns: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    return {name: column[start:stop] for name, column in columns.items()}


def test_batches_and_single_rows(load: Load) -> None:
    columns, metric = many(40), load()
    for first in range(0, 40, 7):
        metric.add_batch(**part(columns, first, first + 7))
    metric.add_batch(**part(columns, 0, 0))
    expected = score(**columns)
    assert metric.compute() == expected
    for row in range(40):
        one = {name: columns[name][row] for name in ("seed_ids", "seed_predictions")}
        reference = np.int64(columns["references"][row])
        metric.add(prediction=columns["predictions"][row], reference=reference, **one)
    assert metric.compute() == expected
    metric.add_batch(**part(columns, 0, 30))
    assert len(metric) == 30
    assert metric.compute(**part(columns, 30, 40)) == expected


@pytest.mark.parametrize("rows", [list, np.array, tuple])
def test_subsamples(load: Load, rows: Callable[..., Any]) -> None:
    """The second configuration gathers lists of ints, including empty ones."""
    drawn = [[0, 1], [0], [2, 0, 1], [1, 2]] * 59 + [[0], [1, 2], [], [0, 1]]
    columns = {**many(), "subsamples": [rows(numbers) for numbers in drawn]}
    columns["subsamples"][-2] = []
    metric = load("subsamples")
    metric.add_batch(**part(columns, 0, 100))
    result = metric.compute(**part(columns, 100, 240))
    assert result == score(**many(), subsamples=drawn)
    assert result["n_variants"] == 239
    for row in range(4):
        entry = {name: columns[name][row] for name in ("seed_ids", "seed_predictions")}
        metric.add(prediction=0, reference=0, subsamples=[0], **{**entry, "seed_predictions": 0})
    assert metric.compute()["n_subsamples"] == 1


def test_options_reach_score(load: Load) -> None:
    probabilities = np.full((4, 3), 1 / 3)
    options: dict[str, Any] = {
        "correctness_threshold": 50, "n_bootstrap": 10, "rng_seed": 3,
        "labels": ["yes", "no", "maybe"], "opposites": [("yes", "no")],
        "probabilities": probabilities, "seed_probabilities": probabilities,
        "groups": {"half": [1, 2, 1, 2]}, "variant_ids": [1, 2, 3, 4],
        "clusters": {"premise": ["a", "a", "b", "b"]}, "merge_labels": "maybe=no",
    }  # fmt: skip
    assert set(options) == set(module.OPTIONS)
    result = load().compute(**ROWS, **options)
    assert result == score(**ROWS, **options)
    assert result["seed_variant_accuracy"] == 1.0
    assert result["strict_fooling_rate"] == 0.5


DRAWN: list[Any] = [[0], [1]] * 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"predictions": [0.9, 0.1, 0.2, 0.3]}, "predictions: .* got 0.9 in row 0"),
        ({"predictions": [0, 0, 0]}, "same length, .* predictions 3, references 4"),
        ({"subsamples": [[0.5], [1], [0], [1]]}, "subsamples: .* got 0.5 in one"),
        ({"subsamples": ["0", "1", "0", "1"]}, "expected lists of ints, such as .*, got .0. in"),
        ({"subsamples": [[0], [1]]}, "expected columns of the same length"),
    ],
)
def test_bad_columns_change_nothing(load: Load, changed: dict[str, Any], message: str) -> None:
    """Columns are refused before `evaluate` turns 0.9 or "0" into 0; earlier rows are kept."""
    metric = load("subsamples" if "subsamples" in changed else "default")
    good = ROWS | ({"subsamples": DRAWN} if "subsamples" in changed else {})
    for kept in (0, 2):
        metric.add_batch(**part(good, 0, kept))
        for method in (metric.compute, metric.add_batch):
            with pytest.raises(ValueError, match=message):
                method(**{**good, **changed})
    assert metric.compute(**part(good, 2, 4)) == score(**good)


def test_bad_names_and_options(load: Load) -> None:
    metric = load()
    with pytest.raises(ValueError, match="seed_predictions: expected one entry per variant, got N"):
        metric.compute(predictions=[0], references=[0])
    with pytest.raises(ValueError, match="Bad inputs for evaluation module"):
        metric.add_batch(**ROWS, subsamples=DRAWN)
    assert metric.compute(**ROWS, subsamples=DRAWN) == score(**ROWS, subsamples=DRAWN)
    metric.add_batch(**ROWS)  # which bad options do not lose
    for options, message in (
        ({"correctness_threshold": 0.9}, "did you mean 90"),
        ({"opposites": [("entailment", "no")]}, "opposites: expected pairs of labels"),
        ({"threshold": 90}, "unexpected keyword argument 'threshold'"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            metric.compute(**options)
    assert metric.compute() == score(**ROWS)
    with pytest.raises(TypeError, match="NoneType"):
        load("subsamples").compute(**ROWS)
    with pytest.raises(ValueError, match="expected the configuration 'default' or 'subsamples'"):
        load("subsample")


@pytest.mark.parametrize("keep_in_memory", [False, True])
def test_rows_that_cannot_be_scored_are_forgotten(load: Load, keep_in_memory: bool) -> None:
    """Empty input, before and after a computation, and rows that contradict earlier ones."""
    metric = load(keep_in_memory=keep_in_memory)
    for before, columns, message in (
        ({}, {}, "expected at least one variant, got none"),
        ({}, {name: [] for name in ROWS}, "expected at least one variant, got none"),
        (ROWS, {**ROWS, "references": [1] * 4}, "references: expected one gold label per seed"),
    ):
        if before:
            metric.add_batch(**before)
        with pytest.raises(ValueError, match=message):
            metric.compute(**columns)
        assert len(metric) == 0
        assert metric.compute(**ROWS) == score(**ROWS)


class LocalAccuracy(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        ints = datasets.Value("int64")
        features = datasets.Features({"predictions": ints, "references": ints})
        return evaluate.MetricInfo(
            description="", citation="", inputs_description="", features=features
        )

    def _compute(self, predictions: list[int], references: list[int], **_: Any) -> dict[str, float]:
        return {"accuracy": float(np.mean(np.equal(predictions, references)))}


def test_combined_with_another_metric(load: Load, tmp_path: Path) -> None:
    other = LocalAccuracy(cache_dir=str(tmp_path / "cache"))
    both = evaluate.combine([load(), other])
    expected = score(**ROWS) | {"accuracy": 0.75}
    assert both.compute(**ROWS) == expected
    both.add_batch(**part(ROWS, 0, 2))
    both.add_batch(**part(ROWS, 2, 4))
    assert both.compute() == expected
    for row in range(4):
        ids = {name: ROWS[name][row] for name in ("seed_ids", "seed_predictions")}
        both.add(prediction=ROWS["predictions"][row], reference=0, **ids)
    assert both.compute() == expected


PROCESS = """
import json, pathlib, sys, time
from helpers.metric_loading import ROWS

number, path, done = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
metric = evaluate.load(path, process_id=number, num_process=2, experiment_id="two")
mine = {name: column[number::2] for name, column in ROWS.items()}
try:
    metric.compute(**{**mine, "references": [number, number]})
except ValueError as error:
    print(error)
    done.touch()
while not done.exists():
    time.sleep(0.05)
print(json.dumps(metric.compute(**mine)))
"""


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    """Rows of both are gathered: a seed's variants may be in several; also after an error."""
    code = f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n" + PROCESS
    arguments = (str(SPACE), str(tmp_path / "done"))
    processes = [
        start(code, tmp_path, tmp_path / "home", str(number), *arguments) for number in (0, 1)
    ]
    outputs = [process.communicate(timeout=100) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    error, result = outputs[0][0].splitlines()
    assert "references: expected one gold label per seed" in error
    assert json.loads(result) == score(**ROWS)
    assert outputs[1][0].splitlines() == ["null"]
    assert list((tmp_path / "home" / "metrics").rglob("*.arrow")) == []
