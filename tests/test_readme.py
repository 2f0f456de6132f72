"""The commands and code of the READMEs run as written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.publishing import desk_at_a_hub
from helpers.tiny_classifiers import tiny_classifier
from typer.testing import CliRunner

from generation.cli import app
from generation.config import Config
from merge_metric.runs.predictions import with_metadata

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def environment(home: Path) -> dict[str, str]:
    """An empty cache, no Hub, and this environment's commands first."""
    binaries = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "PATH": os.pathsep.join([binaries, os.environ["PATH"]]),
    }


def run(command: list[str], cwd: Path, home: Path) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=environment(home), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def demo(once: Callable[..., Path], tmp_path: Path) -> tuple[Path, Path, str]:
    """Working directory, cache and output of `merge-nli demo`, which `make demo` runs.

    It runs once for all tests; each has a copy.
    """

    def make(folder: Path) -> None:
        (folder / "cwd").mkdir()
        said = run(["merge-nli", "demo"], folder / "cwd", folder / "home")
        (folder / "output").write_text(said, encoding="utf-8")

    place = tmp_path / "demo"
    shutil.copytree(once("demo", make), place)
    return place / "cwd", place / "home", (place / "output").read_text(encoding="utf-8")


def test_make_targets_are_those_of_the_readme() -> None:
    """Each `make X` of the README is a target of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"\bmake ([a-z-]+)", "\n".join(blocks("sh"))))
    assert targets == {"demo", "test"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
    assert "merge-nli demo" in makefile


@pytest.mark.slow
def test_demo_says_what_it_made_and_how_to_load_it(demo: tuple[Path, Path, str]) -> None:
    """Funnel, eligible seeds, folders, and lines to load it stand in the output."""
    cwd, _, output = demo
    assert "less probable" in output
    assert re.search(r"noun +157 +13,605", output)
    assert "192 problems: 172 eligible, 0 without a shared word, 20 with fewer than 20" in output
    assert len(re.findall(r"^  .* → .* \(.*\): .*\[.*\].* / .*\[.*\]", output, re.MULTILINE)) == 3
    assert "Dataset folder: merge-nli" in output
    assert 'load_dataset("merge-nli", "demo_nouns")' in output
    assert (cwd / "runs/demo/replacements.parquet").is_file()
    assert (cwd / "merge-nli/README.md").is_file()


@pytest.mark.slow
def test_demo_runs_a_model(demo: tuple[Path, Path, str]) -> None:
    """The bundled classifier, scored and reported on."""
    cwd, _, output = demo
    table = pq.read_table(cwd / "runs/demo/bert-tiny-nli.parquet").to_pylist()
    seeds = [row for row in table if row["variant_id"] == row["seed_id"]]
    right = sum(row["prediction"] == row["label"] for row in seeds)
    assert (len(seeds), right) == (172, 133)
    assert "bert-tiny-nli over demo:" in output
    assert re.search(rf"all +{100 * right / len(seeds):.1f} +75\.\d", output)
    assert "<html" in (cwd / "runs/demo/report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_python_of_the_readme_runs(demo: tuple[Path, Path, str]) -> None:
    """All Python blocks, in order, in the directory where the demo ran."""
    cwd, home, _ = demo
    output = run([sys.executable, "-c", "\n".join(blocks("python"))], cwd, home)
    assert " / " in output.splitlines()[0]
    assert (cwd / "runs/mine/union/variants.parquet").is_file()


@pytest.mark.slow
def test_lines_that_demo_prints_load_from_anywhere(
    demo: tuple[Path, Path, str], tmp_path: Path
) -> None:
    """The demo registers the bare names: they load where there is no folder of that name."""
    _, home, output = demo
    assert 'evaluate.load("seed_variant_accuracy")' in output
    assert len(list((home / "modules").rglob("seed_variant_accuracy.py"))) == 1
    lines = [line.strip() for line in output.splitlines() if "load_dataset(" in line]
    code = f"from datasets import load_dataset\nprint({lines[-1]})"
    assert "variants: Dataset" in run([sys.executable, "-c", code], tmp_path, home)


@pytest.mark.slow
def test_score_command_of_the_readme_runs(demo: tuple[Path, Path, str]) -> None:
    """Predictions that are all gold, over the demo's dataset: everything is 100 %."""
    cwd, home, _ = demo
    files = sorted((cwd / "merge-nli/demo").rglob("*.parquet"))
    tables = [pq.read_table(file, columns=["variant_id", "seed_id", "label"]) for file in files]
    problems = pa.concat_tables(tables).group_by(["variant_id", "seed_id", "label"]).aggregate([])
    pq.write_table(
        problems.append_column("prediction", problems["label"]), cwd / "predictions.parquet"
    )
    (command,) = [block for block in blocks("sh") if block.startswith("merge-nli score")]
    output = run(command.split(), cwd, home)
    assert re.search(r"all +100.0 +100.0 +100.0 +100.0 +100.0 +100.0 +1–100 +0.0 +0.0\n", output)
    assert re.search(r"172 / 21,293", output)


@pytest.mark.slow
def test_model_commands_of_the_readme_run(demo: tuple[Path, Path, str]) -> None:
    """A random model in place of the README's, against one that is always right."""
    cwd, home, _ = demo
    (block,) = [block for block in blocks("sh") if block.startswith("merge-nli predict")]
    predict, *rest = [line.split() for line in block.splitlines()]
    predict[predict.index("--model") + 1] = str(tiny_classifier("bert-uncased"))
    assert "problems" in run(predict, cwd, home)
    table = pq.read_table(cwd / "roberta.parquet", columns=["variant_id", "seed_id", "label"])
    table = table.append_column("prediction", table["label"]).replace_schema_metadata(None)
    pq.write_table(table, cwd / "other.parquet")
    outputs = [run(command, cwd, home) for command in rest]
    assert re.search(r"other.* 100\.0", outputs[0])
    assert "<html" in (cwd / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_generate_command_of_the_readme_runs(tmp_path: Path) -> None:
    """The README's command, with a small file in SNLI's format and the bundled model."""
    problems = (ROOT / "generation/demo/problems.jsonl").read_text(encoding="utf-8").splitlines()
    (tmp_path / "snli_1.0_test.jsonl").write_text("\n".join(problems[:12]), encoding="utf-8")
    (command,) = [block for block in blocks("sh") if block.startswith("merge-nli generate")]
    words = command.replace("\\\n", " ").split()
    assert Config.from_recipe("paper-v2").mlms[0] == "google-bert/bert-base-cased"
    words += ["--mlm", "bert-tiny-mlm"]
    output = run(words, tmp_path, tmp_path / "home")
    assert "configurations snli, snli_nouns" in output
    assert run(["merge-nli", "check", "merge-nli"], tmp_path, tmp_path / "home") == (
        "merge-nli: good\n"
    )


def test_ablation_command_of_the_readme_is_known() -> None:
    """The options that the README's prose names are options of the commands."""
    for command, option in (
        ("generate", "--premise-column"),
        ("generate", "--label-map"),
        ("generate", "--set"),
        ("models", "--preset"),
        ("models", "--recipe"),
        ("build", "--ablation"),
        ("register", "--cache-dir"),
    ):
        shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, [command, "--help"])
        assert shown.exit_code == 0, shown.output
        assert option in shown.stdout


@pytest.mark.slow
def test_export_commands_of_the_readme_run(demo: tuple[Path, Path, str], tmp_path: Path) -> None:
    """On the demo's dataset; what runs the tasks is tested with the harnesses."""
    cwd, home, _ = demo
    shutil.copytree(cwd / "merge-nli", tmp_path / "merge-nli")
    (block,) = [block for block in blocks("sh") if block.startswith("merge-nli export")]
    for line in block.splitlines():
        run(line.split(), tmp_path, home)
    for harness in ("lm-eval", "lighteval", "inspect"):
        assert "merge-nli score" in (tmp_path / f"{harness}-tasks/README.md").read_text("utf-8")
    assert len(list((tmp_path / "mini").rglob("mini-0?.parquet"))) == 10
    assert (tmp_path / "merge-nli/croissant.json").is_file()


@pytest.mark.slow
def test_publish_commands_of_the_readme_run(demo: tuple[Path, Path, str], tmp_path: Path) -> None:
    """Against a Hub on loopback; dataset and metric are loaded back from there."""
    cwd, _, _ = demo
    folder, predictions = cwd / "merge-nli", tmp_path / "roberta.parquet"
    table = pq.read_table(cwd / "runs/demo/bert-tiny-nli.parquet")
    pq.write_table(with_metadata(table, {"name": "somebody/model"}), predictions)
    (block,) = [block for block in blocks("sh") if block.startswith("merge-nli publish")]
    paths = {"merge-nli": str(folder), "roberta.parquet": str(predictions)}
    with desk_at_a_hub() as desk:
        desk.hub.make("model", "somebody/model")
        for line in block.replace("\\\n", " ").replace("USER", "somebody").splitlines():
            words = [paths.get(word, word) for word in line.split()[2:]]
            said = desk.good(*words, verify=True).out
            assert ("Nothing was written." in said) == ("--yes" not in words)
        uploaded = desk.hub.repo("dataset", "somebody/merge-nli").at("v1.0.0")
        assert uploaded["demo/seeds.parquet"] == (folder / "demo/seeds.parquet").read_bytes()
        assert "scoring.py" in desk.hub.repo("space", "somebody/seed_variant_accuracy").at("main")
        assert desk.hub.errors == []
