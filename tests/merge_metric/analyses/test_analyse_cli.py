import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.analysed import answered, random_dataset, write_answers, write_dataset
from helpers.commands import refused, run
from helpers.dataset_files import write_predictions
from helpers.metric_oracle import Row
from helpers.pages import commands, section
from helpers.sensitivity_data import answer_rows, write_lines
from numpy.typing import NDArray

from merge_metric.analyses import ANALYSES, overlap

ROOT = Path(__file__).parents[3]
MAP = '[a]\nequivalent = ["bert"]\nsize = ["bert-large"]\n[b]\nequivalent = ["albert"]\nsize = []\n'


@pytest.fixture(scope="module")
def models() -> dict[str, list[Row]]:
    rng = random.Random(8)
    rows = random_dataset(rng, seeds=60)
    return {"a": answered(rows, rng, 0.3), "b": answered(rows, rng, 0.6)}


@pytest.fixture(scope="module")
def folder(models: dict[str, list[Row]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two dataset folders, predictions for each, test predictions, a map to masked LMs."""
    folder = tmp_path_factory.mktemp("analysed")
    for name in ("merge-nli", "merge-nli-union"):
        write_dataset(folder / name, models["a"])
    for name, rows in models.items():
        write_answers(folder / f"{name}.parquet", rows)
        write_answers(folder / f"{name}-union.parquet", rows, name=name)
        answers = {row.seed_id: (row.gold, row.own) for row in rows}
        answers |= {f"s:other-{n}": ("neutral", "neutral") for n in range(40)}
        table = [
            {"variant_id": seed, "seed_id": seed, "label": gold, "prediction": own}
            for seed, (gold, own) in answers.items()
        ]
        pq.write_table(pa.Table.from_pylist(table), folder / f"{name}-test.parquet")
    (folder / "mlms.toml").write_text(MAP)
    return folder


def words(folder: Path, name: str, *more: str) -> list[object]:
    """Words of the command for both models; in `more`, {} is the folder."""
    options = [text.replace("{}", str(folder)) for text in more]
    files = (folder / "a.parquet", folder / "b.parquet")
    return ["analyse", name, *files, *options, "--dataset", folder / "merge-nli"]


def analyse(folder: Path, name: str, *more: str) -> str:
    return run(*words(folder, name, *more)).stdout


EXTRA: dict[str, list[str]] = {
    "accuracy": ["--test", "a={}/a-test.parquet", "--test", "b={}/b-test.parquet"],
    "mlms": ["--mlm-map", "{}/mlms.toml", "--n-bootstrap", "5"],
    "origins": ["--n-bootstrap", "5"],
    "signals": ["--n-bootstrap", "5"],
    "phenomena": ["--n-bootstrap", "5"],
    "ablations": ["{}/a-union.parquet@{}/merge-nli-union",
                  "b={}/b-union.parquet@{}/merge-nli-union"],
    "hardest": ["--top", "5"],
    "classes": ["--n-bootstrap", "20"],
    "curves": ["--n-bootstrap", "20", "--rng-seed", "3"],
    "stability": ["--seeds", "30", "--draws", "5"],
}  # fmt: skip


SENSITIVITY = {"fooling", "sizes", "shift", "confidence", "overlap", "calibration"}
"""Analyses of paraphrases and probabilities, tested below and by the golden record."""


OF_RUNS = {name for name, item in ANALYSES.items() if "run" in item.options}
"""Analyses of run folders, which have separate tests."""


@pytest.mark.slow(but=("accuracy", "matching"))
@pytest.mark.parametrize(
    "name", [name for name in ANALYSES if name not in SENSITIVITY | OF_RUNS | {"validity", "good"}]
)
def test_every_analysis_makes_its_table_and_its_plot(name: str, folder: Path) -> None:
    plot = folder / f"{name}.svg"
    extra = EXTRA.get(name, [])
    table = json.loads(analyse(folder, name, *extra, "--format", "json", "--out", str(plot)))
    assert table["name"] == name
    assert table["rows"]
    assert plot.read_text().startswith("<?xml")


def rows_of(printed: str) -> list[dict[str, Any]]:
    return list(json.loads(printed)["rows"])


@pytest.mark.slow
def test_the_best_and_the_worst_of_a_group(folder: Path) -> None:
    for copy, name in (("c", "a"), ("d", "b")):
        shutil.copy(folder / f"{name}.parquet", folder / f"{copy}.parquet")
    more = ["{}/c.parquet", "{}/d.parquet", "--test", "c={}/a-test.parquet"]
    more += ["--test", "d={}/b-test.parquet", *EXTRA["accuracy"]]
    grouped = [*more, *(word for name in "abcd" for word in ("--group", f"{name}=S"))]
    rows = rows_of(analyse(folder, "accuracy", *grouped, "--format", "json"))
    assert {row["model"]: row["place"] for row in rows} == {
        "a": None, "b": "best", "c": "worst", "d": "best"
    }  # fmt: skip
    for name in ("accuracy", "curves", "matching"):
        result = rows_of(analyse(folder, name, *grouped, "--best-and-worst", "--format", "json"))
        assert [(row["model"], row["group"]) for row in result] == [
            ("b", "S"), ("d", "S"), ("c", "S")
        ]  # fmt: skip
    assert "place" not in rows_of(analyse(folder, "curves", *more, "--format", "json"))[0]


def test_the_help_lists_the_analyses() -> None:
    flat = " ".join(run("analyse", "--help").stdout.split())
    for analysis in ANALYSES.values():
        assert f"{analysis.name} {analysis.summary}" in flat
    assert "[mine]" in flat


PAGE = "merge_metric/analyses.md"
LINES = ("E E EEC", "N N NN", "C C CN")


@pytest.fixture
def readme_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("bert", "roberta"):
        write_lines(tmp_path / f"{name}-paraphrases", "snli", LINES)
        write_predictions(
            tmp_path / f"{name}.parquet", answer_rows("snli", LINES), {"parameters": 9}
        )
    return tmp_path


@pytest.mark.slow
def test_commands_of_the_readme_run(readme_folder: Path) -> None:
    shown = commands(section(PAGE, "Sensitivity to paraphrases"))
    assert len(shown) == 4
    for command in shown:
        assert "snli" in run(*command).stdout
    assert {path.name for path in readme_folder.glob("figure*")} == {"figure2.svg", "figure3.png"}


def test_the_readme_lists_the_analyses() -> None:
    text = section(PAGE, "The list")
    rows = re.findall(r"^\| .* \|((?: `[a-z-]+`,?)+) \|$", text, flags=re.MULTILINE)
    names = re.findall(r"`([a-z-]+)`", "".join(rows))
    assert sorted(names) == sorted(ANALYSES)


OWN = {"a": ("E E EC", "N N NN", "C C CCC"), "b": ("E E EE", "N N NE", "C C N")}
"""Model → problems with the model's own paraphrases."""


@pytest.fixture(scope="module")
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    own_folder = tmp_path_factory.mktemp("sensitivity")
    for source in ("snli", "anli-r1", "anli-r2"):
        for model, lines in OWN.items():
            write_lines(own_folder / f"{model}-own", source, lines)
    for number, (model, lines) in enumerate(OWN.items(), start=1):
        metadata = {"name": model, "parameters": number * 10**6, "architecture": "BertModel"}
        rows = [row for s in ("snli", "anli-r1", "anli-r2") for row in answer_rows(s, lines)]
        write_predictions(own_folder / f"{model}-own.parquet", rows, metadata)
    return own_folder


@pytest.fixture
def analyse_own(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.chdir(own_folder)
    return lambda *more: run("analyse", *more).stdout


FILES = ("a-own.parquet@a-own", "b=b-own.parquet@b-own")


def test_each_model_is_read_beside_its_own_paraphrases(analyse_own: Callable[..., str]) -> None:
    """Rates by hand: a is fooled on one of three seeds, b on two."""
    rows = rows_of(analyse_own("fooling", *FILES, "--format", "json", "--n-bootstrap", "10"))
    result = {(row["model"], row["config"]): row for row in rows}
    for source in ("snli", "anli-r1", "anli-r2"):
        for model, relaxed in (("a", 1 / 3), ("b", 2 / 3)):
            row = result[model, f"{source}_paraphrases"]
            assert (row["n_right"], row["strict_fooling_rate"]) == (3, 1 / 3)
            assert row["relaxed_fooling_rate"] == relaxed
    assert result["(mean)", "(all paraphrases)"]["relaxed_fooling_rate"] == pytest.approx(0.5)
    some = ("--config", "snli_paraphrases", "--format", "json")
    one = rows_of(analyse_own("fooling", *FILES, *some))
    assert [row["config"] for row in one] == ["snli_paraphrases"] * 3
    told = refused("analyse", "fooling", FILES[0], "a=b-own.parquet@b-own")
    assert "got 'a-own' and 'b-own' for 'a' on anli-r1_paraphrases; name them apart" in told


def test_an_encoder_adds_distances(
    analyse_own: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    def load(name: str) -> Callable[[list[str]], NDArray[np.float64]]:
        asked.append(name)
        return lambda texts: np.array([[len(text), text.count("now")] for text in texts], float)

    monkeypatch.setattr(overlap, "load_encoder", load)
    plot = tmp_path / "x.svg"
    more = ("--encoder", "org/some", "--format", "json", "--out", str(plot))
    rows = rows_of(analyse_own("overlap", *FILES, *more))
    assert asked == ["org/some"]
    assert all(row["distance_changed"] > 0 for row in rows)
    assert plot.stat().st_size > 1000


@pytest.mark.usefixtures("analyse_own")
def test_missing_packages_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    told = refused("analyse", "overlap", "--dataset", "a-own")
    assert "needs rapidfuzz; run: pip install 'merge-nli[overlap]'" in told


MODULE = """
from merge_metric.analyses.measures import identity, measures, titled
from merge_metric.tables.plots import bar_panels

def asked(request, *, top=None):
    rows = [identity(frame) | measures(frame.counts) for frame in request.frames()]
    return titled("asked", rows[:top])

def plot_asked(table):
    return bar_panels(table, {"seeds": "seed_accuracy"}, "accuracy, %")
"""

PROGRAM = """
import json, sys
from typer.testing import CliRunner

{example}

from generation.cli import app

runner = CliRunner()
results = [runner.invoke(app, arguments) for arguments in json.load(sys.stdin)]
print(json.dumps([[result.exit_code, result.stdout, result.stderr] for result in results]))
"""


@pytest.mark.slow
def test_the_example_is_an_analysis_like_all_others(folder: Path) -> None:
    """CONTRIBUTING.md's example: an analysis is added in one place; in a separate process."""
    (folder / "my_asked.py").write_text(MODULE)
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(\[analyses\..*?)```", page, flags=re.DOTALL)
    example = (
        "import my_asked, tomllib\nfrom merge_metric.analyses import registry\n"
        "sys.modules['merge_metric.analyses.asked'] = my_asked\n"
        f"registry.ANALYSES.update(registry.read_catalogue(tomllib.loads({example!r})))\n"
    )
    files = ["a.parquet", "b.parquet", "--dataset", "merge-nli"]
    commands = [
        ["analyse", "--help"],
        ["analyse", "asked", *files],
        ["analyse", "asked", *files, "--format", "json", "--top", "1", "--out", "seeds.svg"],
        ["analyse", "asked", *files, "--bins", "3"],
        ["analyse", "askd", *files],
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(example=example)], cwd=folder,
        input=json.dumps(commands),
        env={"PYTHONPATH": f"{ROOT}:{folder}", "COLUMNS": "120", "PATH": ""}, capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown, text, as_json, refused, unknown = json.loads(done.stdout.splitlines()[-1])
    assert "asked how many seeds a model was asked about (figure 0)" in " ".join(shown[1].split())
    assert "hardest, asked: number of seeds." in " ".join(shown[1].replace("│", " ").split())
    assert text[:2] == [0, text[1]], text[2]
    assert text[1].splitlines()[2].split() == ["source", "model", "seeds", "S", "var.acc", "SV@90"]
    assert [row["model"] for row in json.loads(as_json[1])["rows"]] == ["a"]
    assert (folder / "seeds.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert refused[0] == 2
    assert (
        "--bins: expected with signals, calibration, got it with asked, which takes --top"
        in refused[2]
    )
    assert "expected the name of an analysis, got 'askd'; did you mean 'asked'?" in unknown[2]
