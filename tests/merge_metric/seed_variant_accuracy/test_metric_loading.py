import importlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import evaluate.config
import pytest
from helpers.metric_loading import ROWS, SPACE, python

from generation import cli
from merge_dataset.files import exclusive
from merge_metric.register import METRIC_NAME, default_modules_cache, module_files, register_metric
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
