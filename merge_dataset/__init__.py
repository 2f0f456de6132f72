"""MERGE-NLI as a dataset: a run folder → Parquet and card → `load_dataset` → the Hub.

>>> from pathlib import Path
>>> from merge_dataset import NLI, check_dataset, config_files, variant_id
>>> NLI.fields, variant_id("snli:1", "noun", "girl", "boy")
(('premise', 'hypothesis'), 'snli:1/noun/girl/boy')
>>> config_files("snli_nouns")["variants"]
('snli/nouns/variants.parquet',)
>>> check_dataset(Path("/nowhere"))
['/nowhere: expected a dataset folder, found no folder there']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from merge_dataset.dataset_columns import COLUMNS
from merge_dataset.lazy_names import lazy_names
from merge_dataset.schema import (
    LABELS,
    NLI,
    WORD_CLASSES,
    ProblemFormat,
    arrow_schema,
    config_files,
    config_name,
    parse_config_name,
    variant_id,
)

if TYPE_CHECKING:
    from merge_dataset.annotation.transfer import read_answers
    from merge_dataset.checks import check_dataset
    from merge_dataset.export import export_dataset
    from merge_dataset.hub.dataset import plan_dataset
    from merge_dataset.hub.publication import carry_out
    from merge_dataset.merge_nli import MergeNli, builder
    from merge_dataset.register import register_dataset

__all__ = [
    "COLUMNS",
    "LABELS",
    "NLI",
    "WORD_CLASSES",
    "MergeNli",
    "ProblemFormat",
    "arrow_schema",
    "builder",
    "carry_out",
    "check_dataset",
    "config_files",
    "config_name",
    "export_dataset",
    "parse_config_name",
    "plan_dataset",
    "read_answers",
    "register_dataset",
    "variant_id",
]

__getattr__ = lazy_names(__name__, __file__)
