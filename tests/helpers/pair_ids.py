"""Makes `snli_pair_ids.tsv.gz` from SNLI's official files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from generation.problems.row_ids import problem_digest
from merge_dataset.schema import LABELS


def pair_ids(files: Iterable[Path]) -> bytes:
    """Write pairID and digest of each labelled problem, by pairID, which packs well."""
    lines_of = (file.read_text(encoding="utf-8").strip().split("\n") for file in files)
    rows = map(json.loads, chain.from_iterable(lines_of))
    lines = sorted(
        f"{row['pairID']}\t{problem_digest([row['sentence1'], row['sentence2']], label)}\n"
        for row in rows
        if (label := row["gold_label"]) in LABELS
    )
    return gzip.compress("".join(lines).encode(), mtime=0)
