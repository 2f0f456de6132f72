"""MERGE-NLI as a dataset: a run folder → Parquet and card → `load_dataset` → the Hub.

>>> from pathlib import Path
>>> from merge_dataset import check_dataset
>>> check_dataset(Path("/nowhere"))
['/nowhere: expected a dataset folder or a registered name, found no folder there']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from merge_dataset.lazy_names import lazy_names

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

__getattr__ = lazy_names(__name__, __file__)
