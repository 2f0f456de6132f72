"""The import contract of the design: who may import whom, and what may be heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("generation", "merge_dataset", "merge_metric")

STAGES = (
    "cone",
    "filters",
    "masked_lm",
    "replacements",
    "sampling",
    "shared_words",
    "sources",
    "tagging",
    "variants",
    "vocabulary",
)
"""Modules of one step each, which only the modules above them put together."""
STAGE_IMPORTS = {
    "generation.filters": {"generation.shared_words", "generation.vocabulary"},
    "generation.masked_lm": {"generation.vocabulary"},
    "generation.tagging": {"generation.cone"},
}
"""The stages that may know others: classes of tags, words of a vocabulary, a tagger's layers."""

SPACE = "merge_metric.seed_variant_accuracy"
"""The folder that is uploaded as it is."""

HOMES = {
    "torch": {
        "generation.masked_lm",
        "generation.paraphrase.generators",
        "generation.paraphrase.stepping",
    },
    "transformers": {
        "generation.masked_lm",
        "generation.paraphrase.generators",
        "generation.paraphrase.stepping",
    },
    "tokenizers": {"generation.masked_lm"},
    "spacy": {"generation.tagging"},
    "thinc": {"generation.tagging"},
    "datatrove": {"generation.tasks", "generation.clusters"},
    "ray": {"generation.clusters"},
}
"""Heavy library → the only modules of generation and merge_dataset that import it."""


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file() or path.is_dir()


def imports_of(source: str, module: str, *, is_package: bool = False) -> set[str]:
    """Every module that a source text imports, anywhere in it, also for type checkers.

    `from a import b` is an import of a.b where that is a module of ours, else of a.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                above = parts[: len(parts) + is_package - node.level]
                base = ".".join(filter(None, (*above, base)))
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.add(full if base.startswith(OURS) and is_module(full) else base)
        elif isinstance(node, ast.Call) and _called(node) in {"import_module", "__import__"}:
            name = node.args[0] if node.args else None
            if not isinstance(name, ast.Constant):
                raise ValueError(f"{module}:{node.lineno}: imports what only its run can tell")
            found.add(str(name.value))
    return found


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", None) or getattr(call.func, "id", "")


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


IMPORTS = {
    module: imports_of(
        path.read_text(encoding="utf-8"), module, is_package=path.name == "__init__.py"
    )
    for package in OURS
    for module, path in modules(package)
}
"""Module → what it imports."""


def of_ours(module: str) -> set[str]:
    return {name for name in IMPORTS[module] if name.partition(".")[0] in OURS}


def in_package(package: str) -> list[str]:
    return [module for module in IMPORTS if module.partition(".")[0] == package]


def stages_among(names: Iterable[str]) -> set[str]:
    return {name for name in names if name in {f"generation.{stage}" for stage in STAGES}}


# --- The parser sees what it should ---


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch.nn as nn, os", {"torch.nn", "os"}),
        ("from torch import nn", {"torch"}),
        ("from generation import pipeline", {"generation.pipeline"}),
        ("from generation import Config", {"generation"}),
        ("from generation.config import Config", {"generation.config"}),
        ("from .config import Config", {"generation.config"}),
        ("from . import config, nothing", {"generation.config", "generation"}),
        ("def f():\n    def g():\n        import spacy", {"spacy"}),
        ("if TYPE_CHECKING:\n    from spacy.tokens import Doc", {"spacy.tokens"}),
        ("try:\n    import torch\nexcept ImportError:\n    pass", {"torch"}),
        ("import importlib\nimportlib.import_module('torch')", {"importlib", "torch"}),
        ("x = 'import torch'", set()),
    ],
)
def test_imports_are_found_wherever_they_stand(source: str, expected: set[str]) -> None:
    """In functions, behind TYPE_CHECKING, relative, and by name at run time."""
    assert imports_of(source, "generation.some") == expected


def test_relative_imports_of_a_package() -> None:
    """A dot means the package itself in `__init__`, and its parent in a module of it."""
    assert imports_of("from .config import x", "generation", is_package=True) == {
        "generation.config"
    }
    assert imports_of("from ..schema import x", "merge_dataset.a.b") == {"merge_dataset.schema"}


def test_imports_that_cannot_be_read_are_an_error() -> None:
    """A name put together at run time would slip through the contract."""
    with pytest.raises(ValueError, match=r"generation\.some:1: imports what only its run"):
        imports_of("__import__('tor' + 'ch')", "generation.some")


def test_all_packages_are_read() -> None:
    """The contract is about modules that are there, and they do import something."""
    assert {f"generation.{stage}" for stage in STAGES} < set(IMPORTS)
    assert "merge_dataset.schema" in IMPORTS
    assert "generation.records" in IMPORTS["generation.filters"]
    assert "torch" in IMPORTS["generation.masked_lm"]
    assert "merge_dataset.schema" in IMPORTS["merge_metric.predictions"]
    assert f"{SPACE}.counts" in IMPORTS[f"{SPACE}.scoring"]


# --- Our packages ---


@pytest.mark.parametrize("module", in_package("generation"))
def test_generation_meets_the_dataset_in_the_schema_only(module: str) -> None:
    """Of the other packages only the contract, and in the front door their commands."""
    allowed = {"merge_dataset.row_groups", "merge_dataset.schema"}
    if module in {"generation.masked_lm", "generation.paraphrase.generators"}:
        # How weights get onto a device is said in one place.
        allowed |= {"merge_metric.predict.packed_linear", "merge_metric.predict.weights"}
    if module in {"generation.cli", "generation.options", "generation.paraphrase.cli"}:
        allowed |= {"merge_dataset.cli"}
    if module == "generation.cli":
        allowed |= {"merge_dataset.annotation.cli", "merge_metric.cli"}
    if module == "generation.paraphrase.cli":
        # The NLI model that chooses paraphrases is one that can be measured.
        allowed |= {"merge_metric.predict.models", "merge_metric.problems"}
    others = {name for name in of_ours(module) if name.partition(".")[0] != "generation"}
    assert others <= allowed


@pytest.mark.parametrize("module", in_package("merge_dataset"))
def test_the_dataset_knows_no_other_package(module: str) -> None:
    """The arrow points one way: merge_dataset imports of ours only itself."""
    assert {name.partition(".")[0] for name in of_ours(module)} <= {"merge_dataset"}


def test_the_schema_imports_nothing_of_ours() -> None:
    """The contract stands alone."""
    assert of_ours("merge_dataset.schema") == set()


@pytest.mark.parametrize("module", in_package("merge_metric"))
def test_the_metric_does_not_know_generation(module: str) -> None:
    """It meets datasets as they lie on disk, however they were made."""
    assert {name.partition(".")[0] for name in of_ours(module)} <= {"merge_dataset", "merge_metric"}


@pytest.mark.parametrize(
    "module", [name for name in in_package("merge_metric") if name.startswith(SPACE)]
)
def test_the_space_stands_alone(module: str) -> None:
    """Uploaded without the rest, it imports of ours only its siblings, which are flat."""
    assert all(name.startswith(SPACE) for name in of_ours(module))
    assert module.count(".") <= SPACE.count(".") + 1


@pytest.mark.parametrize("stage", STAGES)
def test_stages_do_not_know_each_other(stage: str) -> None:
    """A stage is a function of records; the exceptions are listed above."""
    module = f"generation.{stage}"
    assert stages_among(IMPORTS[module]) <= STAGE_IMPORTS.get(module, set())


def test_the_pipeline_is_at_the_top() -> None:
    """Only the commands and the package's front import the order of the steps."""
    importers = {module for module, names in IMPORTS.items() if "generation.pipeline" in names}
    assert importers <= {"generation", "generation.cli"}
    assert importers


# --- Heavy libraries ---


@pytest.mark.parametrize("library", HOMES)
def test_heavy_libraries_have_one_home(library: str) -> None:
    """Nobody else of the two imports them, not even for a type."""
    importers = {
        m
        for m in in_package("generation") + in_package("merge_dataset")
        if library in {n.partition(".")[0] for n in IMPORTS[m]}
    }
    assert importers == HOMES[library] or (library == "thinc" and importers <= HOMES[library])


def test_datasets_is_read_in_sources_and_made_in_merge_dataset() -> None:
    """Of generation only the module that reads other people's data knows `datasets`."""
    importers = {
        m for m, names in IMPORTS.items() if "datasets" in {n.partition(".")[0] for n in names}
    }
    assert importers & set(in_package("generation")) == {"generation.sources"}


HEAVY = ("datasets", "numpy", "pyarrow", "spacy", "torch", "transformers")


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """In the root of the repository, in a process that has imported nothing yet."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("--help", "generate"),
        ("generate --help", "--source"),
        ("paraphrase --help", "--max-rounds"),
        ("score --help", "--allow-missing"),
        ("annotate --help", "--annotator"),
    ],
)
def test_help_imports_nothing_heavy(arguments: str, shown: str) -> None:
    """`merge-nli --help` answers at once, because none of these is imported."""
    code = f"""
import sys
from generation.cli import app
try:
    app({arguments.split()!r}, prog_name="merge-nli")
except SystemExit as exit:
    status = exit.code
print("status", status, "heavy", sorted(set({HEAVY!r}) & set(sys.modules)))
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert "Usage: merge-nli" in done.stdout
    assert shown in done.stdout
    assert done.stdout.splitlines()[-1] == "status 0 heavy []"


@pytest.mark.parametrize(
    "module",
    [
        "generation",
        "generation.config",
        "generation.artifacts",
        "generation.paraphrase.candidates",
        "merge_metric.cli",
    ],
)
def test_importing_these_is_cheap(module: str) -> None:
    """The package itself, its settings and its files need none of the heavy libraries."""
    done = run_python(f"import sys, {module}; print(sorted(set({HEAVY!r}) & set(sys.modules)))")
    assert done.stdout.strip() == "[]", done.stderr


def test_the_command_is_that_app() -> None:
    """What is tested above is what `merge-nli` runs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"]["merge-nli"] == "generation.cli:app"
