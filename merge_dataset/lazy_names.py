"""Public names of a package that are imported on first use, so that importing it costs nothing."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str, file: str) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package, for names that its `__init__` imports for type checkers.

    `if TYPE_CHECKING:` in the package's file says which module has which name.
    """

    @cache
    def homes() -> dict[str, str]:
        blocks = ast.parse(Path(file).read_text(encoding="utf-8")).body
        imports = (node for block in blocks if isinstance(block, ast.If) for node in block.body)
        return {
            alias.name: str(node.module)
            for node in imports
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    def find(name: str) -> Any:
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes()[name]), name)

    return find
