"""What a dataset repository has beside the folder's files: its own way to load, and `eval.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from merge_dataset.layout import all_configurations

BENCHMARK_FILE: Final = "eval.yaml"
"""By it the Hub knows a dataset that models are measured on (docs: hub/eval-results)."""

BENCHMARK_THRESHOLD: Final = 90
"""Correctness threshold, in percent, of the figure that models are listed by."""

_LOADING: Final = "## Loading\n"

_DESCRIPTION: Final = f"""\
Tests whether a model that solves a natural language inference problem also solves minimal \
variants of it. The value is seed-variant accuracy in percent: the share of seed problems of \
which at least {BENCHMARK_THRESHOLD} % of the variants are classified correctly. Higher is better.\
"""


def card_for_hub(card: str, repository: str, example: str) -> str:
    """The folder's card, saying first how to load the data from this repository.

    Args:
        card: The card as the folder has it.
        repository: OWNER/NAME.
        example: A configuration.
    """
    text = f"""\
{_LOADING}
From this repository, where each version of the data is a tag, such as `v1.0.0`:

```python
from datasets import load_dataset

data = load_dataset("{repository}", "{example}", revision="v1.0.0")
```
"""
    return card.replace(_LOADING, text, 1)


def benchmark(folder: Path) -> bytes:
    """`eval.yaml`: one task per configuration.

    Without `evaluation_framework`, which may only be one of the Hub's own list.
    """
    tasks = [
        {"id": name, "config": name, "split": "variants"} for name in all_configurations(folder)
    ]
    value: dict[str, Any] = {"name": "MERGE-NLI", "description": _DESCRIPTION, "tasks": tasks}
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
    return text.encode()
