"""Make label-preserving variants of NLI problems, and paraphrases of their hypotheses.

A run has two phases: `suggest` asks masked LMs, `build` does the rest from what they answered;
`generate` is both. `paraphrase` is the second system.

>>> from tempfile import TemporaryDirectory
>>> from generation import Config, build, generate
>>> with TemporaryDirectory() as folder:
...     run = generate(Config.from_recipe("demo", run=f"{folder}/run", limit=4))
...     strict = build(run.path, into="strict", same_number=True)
...     [path.name for path in (run.seeds, run.variants, strict.path)]
['seeds.parquet', 'variants.parquet', 'strict']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from generation.config import Config
    from generation.paraphrases.config import ParaphraseConfig
    from generation.paraphrases.paraphrase_run import paraphrase
    from generation.phases.slices import build, generate, suggest
    from generation.run_folder import RunFolder

__all__ = [
    "Config",
    "ParaphraseConfig",
    "RunFolder",
    "build",
    "generate",
    "paraphrase",
    "suggest",
]

_HOMES = {
    "Config": "generation.config",
    "ParaphraseConfig": "generation.paraphrases.config",
    "RunFolder": "generation.run_folder",
    "build": "generation.phases.slices",
    "generate": "generation.phases.slices",
    "paraphrase": "generation.paraphrases.paraphrase_run",
    "suggest": "generation.phases.slices",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import generation` costs nothing."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
