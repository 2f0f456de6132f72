"""The import contract of the design: allowed imports, and homes of heavy libraries."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("generation", "merge_dataset", "merge_metric")

SPACE = "merge_metric.seed_variant_accuracy"
"""The folder that is uploaded unchanged."""

ARROWS = {
    "generation": ("merge_dataset.schema", "merge_dataset.dataset_columns", "merge_dataset.files",
        "merge_dataset.annotation", "merge_dataset.answer_store", "merge_dataset.engine",
        "merge_dataset.executors", "merge_dataset.settings",
        "merge_dataset.provenance", "merge_dataset.data_files", "merge_dataset.redaction",
        "merge_dataset.hub.repository", "merge_dataset.known_sources",
        "merge_dataset.show", "merge_metric.models"),
    "merge_metric": ("merge_dataset",),
    "merge_dataset": (),
}  # fmt: skip
"""Package → other packages that it may import; commands may also import commands."""

FRONTS = ("generation.__main__", "generation.cli", "generation.commands")
"""Modules that mount the commands of all packages."""

HOMES = {
    "torch": {"generation.suggestions.masked_lm", "generation.signals.likelihoods",
        "generation.paraphrases.text_generator"},
    "transformers": {"generation.suggestions.masked_lm", "generation.paraphrases.text_generator"},
    "tokenizers": {"generation.suggestions.masked_lm"},
    "spacy": {"generation.problems.tagging"},
    "thinc": {"generation.problems.tagging"},
    "ray": {"merge_dataset.executors.clusters"},
}  # fmt: skip
"""Heavy library → the only modules of generation and merge_dataset that may import it."""


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file() or path.is_dir()


def imports_of(source: str, module: str, *, is_package: bool = False) -> set[str]:
    """All modules that a text imports: `from a import b` is a.b if that is a module, else a."""
    result: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                above = parts[: len(parts) + is_package - node.level]
                base = ".".join(filter(None, (*above, base)))
            for alias in node.names:
                full = f"{base}.{alias.name}"
                result.add(full if base.startswith(OURS) and is_module(full) else base)
        elif isinstance(node, ast.Call) and _called(node) in {"import_module", "__import__"}:
            name = node.args[0] if node.args else None
            if module == "merge_dataset":
                continue  # the public names of a package, which TYPE_CHECKING imports, too
            if not isinstance(name, ast.Constant):
                raise ValueError(f"{module}:{node.lineno}: imports what only its run can tell")
            result.add(str(name.value))
    return result


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", None) or getattr(call.func, "id", "")


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@cache
def imports() -> dict[str, set[str]]:
    return {
        module: imports_of(
            path.read_text(encoding="utf-8"), module, is_package=path.name == "__init__.py"
        )
        for package in OURS
        for module, path in modules(package)
    }


def of_ours(module: str) -> set[str]:
    return {name for name in imports()[module] if name.partition(".")[0] in OURS}


def in_package(package: str) -> list[str]:
    return [module for module in imports() if module.partition(".")[0] == package]


def is_within(module: str, rooms: Iterable[str]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def room_of(module: str) -> str:
    """The folder or file right below the package; for the package's own file, the package."""
    return ".".join(module.split(".")[:2])


def circles(arrows: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """A circle for each place at which a graph cannot be ordered; none if it can."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return [tuple(error.args[1])]
    return []


# --- The parser ---


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch.nn as nn, os", {"torch.nn", "os"}),
        ("from torch import nn", {"torch"}),
        ("from generation import config", {"generation.config"}),
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
    assert imports_of(source, "generation.some") == expected


def test_how_imports_are_read() -> None:
    """A dot is the package in `__init__`, and its parent in a module; run-time names are errors."""
    assert imports_of("from .config import x", "generation", is_package=True) == {
        "generation.config"
    }
    assert imports_of("from ..schema import x", "merge_dataset.a.b") == {"merge_dataset.schema"}
    with pytest.raises(ValueError, match=r"generation\.some:1: imports what only its run"):
        imports_of("__import__('tor' + 'ch')", "generation.some")
    assert circles({"a": {"b"}, "b": {"c"}}) == []
    assert set(*circles({"a": {"b"}, "b": {"a"}})) == {"a", "b"}
    assert "generation.records" in imports()["generation.variants.work"]
    assert "torch" in imports()["generation.suggestions.masked_lm"]
    assert "merge_dataset.schema" in imports()["merge_metric.frame.predictions"]
    assert f"{SPACE}.counts" in imports()[f"{SPACE}.scoring"]


# --- Our packages ---


def test_packages_import_downwards_only() -> None:
    """Generation → merge_metric.models → merge_dataset; commands may import commands."""
    wrong = [
        f"{module} imports {name}"
        for module in imports()
        for name in of_ours(module)
        for package in [module.partition(".")[0]]
        if not is_within(name, (package, *ARROWS[package]))
        and not is_within(module, FRONTS)
        and (module, name) != ("generation", "merge_dataset")  # for `lazy_names`
        and not (is_within(module, ["merge_metric.commands"]) and ".commands" in name)
    ]
    assert wrong == []
    phases = "generation.phases"
    importers = {m for m, names in imports().items() if any(is_within(n, [phases]) for n in names)}
    outside = {module for module in importers if not is_within(module, [phases])}
    assert outside >= {"generation", "generation.commands.generate"}
    assert all(is_within(module, FRONTS) or module == "generation" for module in outside)


def test_what_stands_alone() -> None:
    assert of_ours("merge_dataset.schema") == {"merge_dataset.dataset_columns"}
    assert of_ours("merge_dataset.dataset_columns") == set()
    modules = [name for name in imports() if is_within(name, [SPACE])]
    assert len(modules) > 5
    for module in modules:
        assert all(is_within(name, [SPACE]) for name in of_ours(module)), module
        assert module.count(".") <= SPACE.count(".") + 1


def test_no_circles() -> None:
    assert circles({module: of_ours(module) - {module} for module in imports()}) == []
    rooms: dict[str, set[str]] = {}
    for module in imports():
        rooms.setdefault(room_of(module), set()).update(map(room_of, of_ours(module)))
    assert circles({room: others - {room} for room, others in rooms.items()}) == []


@pytest.mark.parametrize("package", [*OURS, "merge_metric.models", "merge_metric.predict"])
def test_public_names_are_there(package: str) -> None:
    module = import_module(package)
    assert len(module.__all__) > 2
    assert len(set(module.__all__)) == len(module.__all__)  # ruff keeps their order
    for name in module.__all__:
        value = getattr(module, name)
        assert callable(value) or name.isupper(), name
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'other'"):
        _ = module.other


# --- Heavy libraries ---


def test_heavy_libraries_have_one_home() -> None:
    for library, homes in HOMES.items():
        importers = {
            m
            for m in in_package("generation") + in_package("merge_dataset")
            if library in {n.partition(".")[0] for n in imports()[m]}
        }
        assert importers <= homes, library
    importers = {
        m for m, names in imports().items() if "datasets" in {n.partition(".")[0] for n in names}
    }
    assert importers & set(in_package("generation")) == {"generation.problems.hub_datasets"}


HEAVY = ("datasets", "numpy", "pyarrow", "spacy", "torch", "transformers")
CHEAP = (
    "generation", "generation.config", "generation.run_folder", "merge_dataset.files",
    "generation.paraphrases.config", "merge_metric.commands.score",
)  # fmt: skip
HELP = {
    "": "generate", "generate": "--source", "paraphrase": "--generator",
    "score": "--allow-missing", "annotate": "--annotator", "analyse": "first-answers",
    "agreement": "--plots",
}  # fmt: skip


def test_help_imports_nothing_heavy() -> None:
    """Help is fast: neither it nor these modules import any of the heavy ones."""
    program = f"""
import sys, {", ".join(CHEAP)}
from generation.cli import app
for command in {list(HELP)!r}:
    try:
        app([*command.split(), "--help"], prog_name="merge-nli")
    except SystemExit as exit:
        print("status", exit.code, "heavy", sorted(set({HEAVY!r}) & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    pages = done.stdout.split("status 0 heavy []\n")
    assert len(pages) == len(HELP) + 1, done.stdout
    for page, (command, shown) in zip(pages, HELP.items(), strict=False):
        assert f"Usage: merge-nli {command}".strip() in page
        assert shown in page
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"]["merge-nli"] == "generation.__main__:run"
