import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers import pages
from helpers.commands import run as merge_nli
from helpers.hub.publishing import desk_at_a_hub
from helpers.processes import output_of
from helpers.tiny_classifiers import tiny_classifier

from docs.pictures import (
    THEMES,
    draw_example,
    draw_funnel,
    draw_spine,
    figures_of,
    funnel_of,
    worked_example,
)
from generation.config import Config
from merge_metric.frame.predictions import with_metadata

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str, page: str = "README.md") -> list[str]:
    return [code for kind, code in pages.blocks(page) if kind == language]


def run(command: list[str], cwd: Path, home: Path) -> str:
    """Run a command; those of ours that read no cache in this process, which is faster."""
    if command[0] == "merge-nli" and command[1] != "demo":
        with chdir(cwd):
            return merge_nli(*command[1:]).stdout
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ours = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "PATH": path}
    return output_of(*command, cwd=cwd, env=os.environ | ours)


@pytest.fixture
def demo(once: Callable[..., Path], tmp_path: Path) -> tuple[Path, Path, str]:
    """Working directory, cache and output of `merge-nli demo`, run once; each test has a copy."""

    def make(folder: Path) -> None:
        (folder / "cwd").mkdir()
        text = run(["merge-nli", "demo"], folder / "cwd", folder / "home")
        (folder / "output").write_text(text, encoding="utf-8")

    place = tmp_path / "demo"
    shutil.copytree(once("demo", make), place)
    return place / "cwd", place / "home", (place / "output").read_text(encoding="utf-8")


def test_make_targets_are_those_of_the_readme() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:`|^)make ([a-z-]+)", README, flags=re.MULTILINE))
    assert targets == {"demo", "test"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
    assert "merge-nli demo" in makefile


@pytest.mark.slow
def test_demo_says_what_it_made_and_how_to_load_it(demo: tuple[Path, Path, str]) -> None:
    cwd, _, output = demo
    assert "less probable" in output
    assert re.search(r"noun +157 +13,605", output)
    assert "192 problems: 172 eligible, 0 without a shared word, 20 with fewer than 20" in output
    assert len(re.findall(r"^  .* → .* \(.*\): .*\[.*\].* / .*\[.*\]", output, re.MULTILINE)) == 3
    assert "Dataset folder: merge-nli" in output
    assert 'load_dataset("merge-nli", "demo_nouns")' in output
    assert (cwd / "runs/demo/replacements.parquet").is_file()
    assert (cwd / "merge-nli/README.md").is_file()
    cwd, home, output = demo
    shown, compared = (block.removesuffix("…\n") for block in blocks("text"))
    assert shown in output
    (block,) = [block for block in blocks("sh") if block.startswith("merge-nli baseline")]
    _, compare, _ = [run(line.split(), cwd, home) for line in block.splitlines()]
    assert compare.startswith(compared)
    assert "<html" in (cwd / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_demo_runs_a_model(demo: tuple[Path, Path, str]) -> None:
    cwd, home, output = demo
    table = pq.read_table(cwd / "runs/demo/bert-tiny-nli.parquet").to_pylist()
    seeds = [row for row in table if row["variant_id"] == row["seed_id"]]
    right = sum(row["prediction"] == row["label"] for row in seeds)
    assert (len(seeds), right) == (172, 133)
    assert "bert-tiny-nli on demo:" in output
    assert re.search(rf"all +{100 * right / len(seeds):.1f} +75\.\d", output)
    assert re.search(r"^    file:///.*/runs/demo/report\.html$", output, flags=re.MULTILINE)
    assert "<html" in (cwd / "runs/demo/report.html").read_text(encoding="utf-8")
    (show,) = re.findall(r"^    (merge-nli show .*)$", output, flags=re.MULTILINE)
    assert "variants" in run(show.split(), cwd, home)


@pytest.mark.slow
def test_python_of_the_readme_runs(demo: tuple[Path, Path, str]) -> None:
    cwd, home, _ = demo
    output = run([sys.executable, "-c", "\n".join(blocks("python"))], cwd, home)
    assert "SV@90" in output
    words = "score runs/demo/bert-tiny-nli.parquet --dataset merge-nli --config demo_nouns"
    told = run(["merge-nli", *words.split(), "--format", "json"], cwd, home)
    (scored,) = json.loads(told)["results"].values()
    keys = ("seed_accuracy", "seed_variant_accuracy", "relaxed_fooling_rate")
    assert " ".join(str(scored[key]) for key in keys) in output
    assert (cwd / "runs/python/union/variants.parquet").is_file()


@pytest.mark.slow
def test_lines_that_demo_prints_load_from_anywhere(
    demo: tuple[Path, Path, str], tmp_path: Path
) -> None:
    """The demo registers the bare names, which load where no folder has this name."""
    _, home, output = demo
    assert 'evaluate.load("seed_variant_accuracy")' in output
    assert len(list((home / "modules").rglob("seed_variant_accuracy.py"))) == 1
    lines = [line.strip() for line in output.splitlines() if "load_dataset(" in line]
    code = f"from datasets import load_dataset\nprint({lines[-1]})"
    assert "variants: Dataset" in run([sys.executable, "-c", code], tmp_path, home)


@pytest.mark.slow
def test_picture_of_the_funnel_is_the_demos(demo: tuple[Path, Path, str]) -> None:
    cwd, _, _ = demo
    for theme in THEMES:
        drawn = (DOCS / f"funnel{theme}.svg").read_text(encoding="utf-8")
        assert draw_funnel(cwd / "runs/demo", theme) == drawn, "make pictures"
    manifest = json.loads((cwd / "runs/demo/manifest.json").read_text(encoding="utf-8"))
    page = (ROOT / "generation/README.md").read_text(encoding="utf-8")
    for _, count in funnel_of(manifest):
        assert f"{count:,}" in page


def test_picture_of_the_worked_example_is_right() -> None:
    seeds = worked_example()
    assert [seed.answer == seed.label for seed in seeds] == [True, True, True, False, False]
    assert [seed.answers.count(seed.label) for seed in seeds] == [9, 10, 7, 6, 2]
    figures = figures_of(seeds)
    for name, percent, text in (
        ("seed_accuracy", 60, "S 60 %"),
        ("variant_accuracy", 68, "34 of 50 variants (68 %)"),
        ("seed_variant_accuracy", 40, "SV@90 40 %"),
        ("relaxed_fooling_rate", 67, "r_r 67 %"),
        ("strict_fooling_rate", 33, "r_s 33 %"),
    ):
        assert round(100 * figures[name]) == percent
        assert text in README
        assert f">{percent} %<" in draw_example("")
    assert (figures["matching_threshold_low"], figures["matching_threshold_high"]) == (61, 70)
    assert "MC 61" in README
    for theme in THEMES:
        drawn = (DOCS / f"worked-example{theme}.svg").read_text(encoding="utf-8")
        assert draw_example(theme) == drawn, "make pictures"


def test_picture_of_the_spine_is_drawn() -> None:
    for theme in THEMES:
        drawn = (DOCS / f"spine{theme}.svg").read_text(encoding="utf-8")
        assert draw_spine(theme) == drawn, "make pictures"


@pytest.mark.slow
def test_seeds_of_the_worked_example_are_the_demos(demo: tuple[Path, Path, str]) -> None:
    cwd, _, _ = demo
    names = {"entailment": "E", "neutral": "N", "contradiction": "C"}
    labels, variants = {}, set()
    for kind in ("seeds", "variants"):
        for row in pq.read_table(cwd / f"runs/demo/{kind}.parquet").to_pylist():
            if kind == "seeds":
                label = names.get(row["label"]) or "ENC"[row["label"]]
                labels[row["premise"], row["hypothesis"]] = row["seed_id"], label
            else:
                variants.add((row["seed_id"], row["original"], row["replacement"]))
    for seed in worked_example():
        seed_id, label = labels[seed.premise, seed.hypothesis]
        assert label == seed.label
        assert len(seed.replacements) == len(seed.answers) == 10
        assert {(seed_id, seed.word, replacement) for replacement in seed.replacements} <= variants


@pytest.mark.slow
def test_model_commands_of_the_readme_run(demo: tuple[Path, Path, str]) -> None:
    cwd, home, _ = demo
    (block,) = [block for block in blocks("sh") if block.startswith("merge-nli predict")]
    predict, *rest = [line.split() for line in block.splitlines()]
    predict[predict.index("--model") + 1] = str(tiny_classifier("bert-uncased"))
    assert "problems" in run(predict, cwd, home)
    scored, _ = [run(command, cwd, home) for command in rest]
    assert re.search(r"^  5 / 527 ", scored, flags=re.MULTILINE)
    assert "<html" in (cwd / "roberta.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_generate_commands_of_the_readme_run(tmp_path: Path) -> None:
    lines = (ROOT / "generation/demo/problems.jsonl").read_text(encoding="utf-8").splitlines()[:12]
    (tmp_path / "snli_1.0_test.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (data,) = [block for block in blocks("sh") if block.startswith("cat > pairs.csv")]
    subprocess.run(["bash", "-ec", data], cwd=tmp_path, check=True)
    (block,) = [block for block in blocks("sh") if block.startswith("merge-nli generate")]
    outputs = [run(line.split(), tmp_path, tmp_path / "home") for line in block.splitlines()]
    assert "configurations mine, mine_nouns" in outputs[0]
    assert "premise" in outputs[1]
    assert outputs[2] == "mine: good\n"
    (command,) = re.findall(r"`(merge-nli generate .*--recipe paper-v2.*?)`", README)
    assert Config.from_recipe("paper-v2").mlms[0] == "google-bert/bert-base-cased"
    words = [*command.split(), "--data", "snli_1.0_test.jsonl", "--mlm", "bert-tiny-mlm"]
    assert "configurations snli, snli_nouns" in run(words, tmp_path, tmp_path / "home")
    (command,) = re.findall(r"`(merge-nli build --run runs/mine .*?)`", README)
    assert "funnel" in run(command.split(), tmp_path, tmp_path / "home").lower()


@pytest.mark.slow
def test_export_commands_of_the_page_run(demo: tuple[Path, Path, str], tmp_path: Path) -> None:
    cwd, home, _ = demo
    shutil.copytree(cwd / "merge-nli", tmp_path / "merge-nli")
    shutil.copy(cwd / "runs/demo/bert-tiny-nli.parquet", tmp_path / "predictions.parquet")
    (block,) = [
        block
        for block in blocks("sh", "merge_metric/README.md")
        if block.startswith("merge-nli export")
    ]
    for line in block.splitlines():
        run(line.split(), tmp_path, home)
    for harness in ("lm-eval", "inspect"):
        assert "merge-nli score" in (tmp_path / f"{harness}-tasks/README.md").read_text("utf-8")
    assert len(list((tmp_path / "mini").rglob("mini-0?.parquet"))) == 10
    assert (tmp_path / "merge-nli/croissant.json").is_file()
    assert (tmp_path / "merge-nli-results/results.json").is_file()


@pytest.mark.slow
def test_publish_commands_of_the_page_run(demo: tuple[Path, Path, str], tmp_path: Path) -> None:
    cwd, _, _ = demo
    folder, predictions = cwd / "merge-nli", tmp_path / "roberta.parquet"
    table = pq.read_table(cwd / "runs/demo/bert-tiny-nli.parquet")
    pq.write_table(with_metadata(table, {"name": "somebody/model"}), predictions)
    (block,) = blocks("sh", "merge_dataset/README.md")
    paths = {"merge-nli": str(folder), "roberta.parquet": str(predictions)}
    with desk_at_a_hub() as desk:
        desk.hub.make("model", "somebody/model")
        for line in block.replace("\\\n", " ").replace("USER", "somebody").splitlines():
            words = [paths.get(word, word) for word in line.split()[2:]]
            text = desk.good(*words, verify=True).out
            assert ("Nothing was written." in text) == ("--yes" not in words)
        uploaded = desk.hub.repo("dataset", "somebody/merge-nli").at("v1.0.0")
        assert uploaded["demo/seeds.parquet"] == (folder / "demo/seeds.parquet").read_bytes()
        assert "scoring.py" in desk.hub.repo("space", "somebody/seed_variant_accuracy").at("main")
        assert desk.hub.errors == []
