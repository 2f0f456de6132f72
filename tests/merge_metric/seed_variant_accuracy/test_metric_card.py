"""The metric card: its code runs as written, its tables are complete, its numbers are right."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from helpers.metric_loading import ROWS, SPACE, card_blocks, python
from helpers.metric_oracle import WHERE_CURVE_MEETS_S
from packaging.version import Version

from merge_metric.register import register_metric
from merge_metric.seed_variant_accuracy import seed_variant_accuracy as module
from merge_metric.seed_variant_accuracy.scoring import score

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
