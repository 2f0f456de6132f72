"""Examples in docstrings say what the code does."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import pytest

import generation
import merge_dataset
import merge_metric


def modules(package: ModuleType) -> Iterator[str]:
    yield package.__name__
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            yield module.name


NAMES = [name for package in (generation, merge_dataset, merge_metric) for name in modules(package)]


@pytest.mark.parametrize("name", NAMES)
def test_examples(name: str) -> None:
    """Every doctest of every module of ours passes."""
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    """The walk above finds modules with examples: the one of p[o/r] is among them."""
    variants = importlib.import_module("generation.variants.rows")
    assert doctest.testmod(variants).attempted >= 2
    assert "generation.variants.rows" in NAMES
