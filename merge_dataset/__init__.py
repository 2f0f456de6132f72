"""MERGE-NLI as a dataset: a run folder → Parquet and card → `load_dataset` → the Hub.

>>> from pathlib import Path
>>> from merge_dataset import check_dataset
>>> check_dataset(Path("/nowhere"))
['/nowhere: expected a dataset folder or a registered name, found no folder there']
"""

import ast
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from merge_dataset.annotation import read_answers
    from merge_dataset.checks import check_dataset
    from merge_dataset.export import export_dataset
    from merge_dataset.hub.publication import push_to_hub
    from merge_dataset.merge_nli import builder
    from merge_dataset.register import register_dataset

__all__ = [
    "builder",
    "check_dataset",
    "export_dataset",
    "push_to_hub",
    "read_answers",
    "register_dataset",
]


def lazy_names(package: str, file: str) -> Callable[[str], Any]:
    """Make a package's `__getattr__` for the names it imports under `if TYPE_CHECKING:`."""

    @cache
    def find(name: str) -> Any:
        blocks = ast.parse(Path(file).read_text(encoding="utf-8")).body
        for node in (node for block in blocks if isinstance(block, ast.If) for node in block.body):
            if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
                return getattr(import_module(str(node.module)), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find


__getattr__ = lazy_names(__name__, __file__)
