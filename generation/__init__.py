"""Make label-preserving variants of NLI problems, and paraphrases of their hypotheses.

A run has two phases: `suggest` asks masked LMs, and `build` makes variants from their answers;
`generate` does both. `paraphrase` is the second system.

>>> from tempfile import TemporaryDirectory
>>> from generation import Config, build, generate
>>> with TemporaryDirectory() as folder:
...     run = generate(Config.from_recipe("demo", run=f"{folder}/run", limit=4))
...     strict = build(run.path, into="strict", same_number=True)
...     [path.name for path in (run.seeds, run.variants, strict.path)]
['seeds.parquet', 'variants.parquet', 'strict']
"""

from typing import TYPE_CHECKING

from merge_dataset import lazy_names

if TYPE_CHECKING:
    from generation.config import Config
    from generation.paraphrases.config import ParaphraseConfig
    from generation.paraphrases.paraphrase_run import paraphrase
    from generation.phases.build import build, generate
    from generation.phases.suggest import suggest
    from generation.run_folder import RunFolder

__all__ = ["Config", "ParaphraseConfig", "RunFolder", "build", "generate", "paraphrase", "suggest"]

__getattr__ = lazy_names(__name__, __file__)
