"""Lazy import of a package's public names on first use, so that importing it is cheap."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


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
