"""MERE generation: NLI problems in, label-preserving variants out.

>>> from generation import Config, generate  # doctest: +SKIP
>>> generate(Config(recipe="demo", run="runs/demo"))  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from generation.config import Config
    from generation.pipeline import build, generate, suggest

__all__ = ["Config", "build", "generate", "suggest"]


def __getattr__(name: str) -> Any:
    """Import the public names on first use, so that `import generation` costs nothing."""
    if name == "Config":
        from generation.config import Config

        return Config
    if name in __all__:
        from generation import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module 'generation' has no attribute {name!r}")
