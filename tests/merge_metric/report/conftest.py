"""A dataset of two sources, predictions of three models, and reports on them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.browser import chromium
from helpers.dataset_files import write_predictions
from helpers.report_data import EVIL, Problems, problems
from selenium.webdriver import Chrome

from merge_metric.report.evidence import Evidence, gather_evidence
from merge_metric.report.seeds import SourceSeeds
from merge_metric.report.write import render_html

ABILITIES = {"weak": 0.45, "middle": 0.65, "strong": 0.85}


@dataclass(frozen=True)
class Case:
    """The data's paths, and the problems from which they were made."""

    folder: Path
    files: list[str]
    """Predictions: a file per model; for `strong`, one per source."""
    snli: Problems
    mnli: Problems


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Sources snli, with 30 seeds with nouns and verbs, and mnli-m, with 9 seeds."""
    place = tmp_path_factory.mktemp("report")
    snli, mnli = problems(30), problems(9, "mnli-m")
    folder = place / "merge-nli"
    snli.write(folder)
    mnli.write(folder)
    files = []
    for name, ability in ABILITIES.items():
        parts = [part.predictions(ability, name) for part in (snli, mnli)]
        whole = [parts[0] + parts[1]] if name != "strong" else parts
        for number, rows in enumerate(whole):
            path = place / f"{name}-{number}.parquet"
            description = {"name": name, "kind": f"<i>{EVIL}", "dtype": "float32"}
            files.append(str(write_predictions(path, rows, description)))
    return Case(folder, files, snli, mnli)


@pytest.fixture(scope="session")
def evidence(case: Case) -> Evidence:
    return gather_evidence(case.files, case.folder, n_bootstrap=40)


@pytest.fixture(scope="session")
def sources(evidence: Evidence) -> tuple[SourceSeeds, ...]:
    return evidence.sources


@pytest.fixture(scope="session")
def page(evidence: Evidence, sources: tuple[SourceSeeds, ...]) -> str:
    return render_html(evidence)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """A browser without access to other machines."""
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver
