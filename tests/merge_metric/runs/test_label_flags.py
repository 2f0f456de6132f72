from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.dataset_files import write_predictions, write_rows
from helpers.scored_folder import SEEDS, VARIANTS, predicted, seed_of, write_folder

from merge_dataset.dataset_columns import LABEL_FLAGS
from merge_dataset.schema import NLI
from merge_metric.score import score_file

FLAGGED = {
    "snli:a/noun/1": ["pronoun_clash"], "snli:a/noun/2": ["beyond_premise", "pronoun_clash"],
    "snli:b/verb/2": ["hangs_on_word"], "snli:c/verb/1": ["hangs_on_word"],
}  # fmt: skip
"""Variant → its flags; other variants have none."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dataset in which `snli` has label flags and `demo` does not."""
    folder = write_folder(tmp_path / "data")
    for path in folder.rglob("*.parquet"):
        flags = LABEL_FLAGS if (folder / "snli") in path.parents else ()
        rows = pq.ParquetFile(path).read().to_pylist()
        for row in rows:
            row |= {"premise": "A dog runs.", "hypothesis": "A dog moves."}
            for name in flags:
                # Unknown values are no flags.
                row[name] = True if name in FLAGGED.get(row["variant_id"], []) else None
        write_rows(path, rows, NLI.with_optional(flags))
    return folder


def expected(flag: str) -> tuple[int, float]:
    """Number of distinct variants with a flag, or with none, and mean accuracy over subsamples."""
    mine = [
        name
        for name in VARIANTS
        if name.startswith("snli")
        and (flag in FLAGGED.get(name, []) or (flag == "no flag" and name not in FLAGGED))
    ]
    shares = []
    for subsample in (0, 1):
        drawn = [name for name in mine if subsample in VARIANTS[name][0]]
        if drawn:
            right = [VARIANTS[name][1] == SEEDS[seed_of(name)][0] for name in drawn]
            shares.append(sum(right) / len(right))
    return len(mine), sum(shares) / len(shares)


def test_score_by_label_flags(folder: Path, tmp_path: Path) -> None:
    predictions = write_predictions(tmp_path / "model.parquet", predicted("snli"))
    result = score_file(predictions, folder, ["snli"], by=["label_flags"], n_bootstrap=0)["snli"]
    groups = result["by_group"]["label_flags"]
    assert groups.keys() == {"no flag", *LABEL_FLAGS}
    for name, group in groups.items():
        n_variants, accuracy = expected(name)
        assert group["n_variants"] == n_variants
        assert group["variant_accuracy"] == pytest.approx(accuracy)
    plain = score_file(predictions, folder, ["snli"], n_bootstrap=0)["snli"]
    assert "label_flags" not in plain["by_group"]
    assert plain["variant_accuracy"] == result["variant_accuracy"]
