import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.paraphrase_run import paraphrase_id, rows_of, write_paraphrase_run

from merge_dataset.card import render
from merge_dataset.checks import check_dataset
from merge_dataset.export import export_dataset

Rows = list[dict[str, Any]]
Change = Callable[[Rows], object]

SEEDS = "snli_paraphrases/seeds.parquet"
VARIANTS = "snli_paraphrases/variants.parquet"

LAST = rows_of()[1][-1]
"""Nobody makes a sound. → It is all quiet."""
ID = LAST["variant_id"]


def put(**values: object) -> Change:
    return lambda rows: rows[-1].update(values)


def rewrite(text: str, **values: object) -> Change:
    """Make the last row a correct paraphrase with another text, except for some columns."""
    return put(
        **{
            "variant_id": paraphrase_id("snli:4", text),
            "hypothesis": text,
            "replacement": text,
            "hypothesis_spans": [[0, len(text)]],
        }
        | values
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (put(premise="Two girls sing."), f"the seed's premise; got 'Two girls sing.' ({ID})"),
        (put(original="Nobody sings."),
         f"original to be the seed's hypothesis; got 'Nobody sings.' ({ID})"),
        (put(replacement="quiet"), f"replacement to be the hypothesis; got 'quiet' ({ID})"),
        (put(hypothesis_spans=[[0, 5]]),
         f"hypothesis_spans to cover the whole hypothesis; got [[0, 5]], not [[0, 16]] ({ID})"),
        (put(mlms=["a/bert"]), f"mlms to be empty in paraphrases; got ['a/bert'] ({ID})"),
        (put(log_odds=0.5), f"log_odds to be null in paraphrases; got 0.5 ({ID})"),
        (put(subsamples=[0, 1]), f"subsamples to be [0] in paraphrases; got [0, 1] ({ID})"),
        (put(variant_id="snli:4/paraphrase/0"),
         "variant_id to be the seed's, the class and a digest of the hypothesis; got other than "
         f"{ID.removeprefix('snli:4')} (snli:4/paraphrase/0)"),
        (put(annotator_labels=[2]), f"the annotator_labels of the seed; got [2] ({ID})"),
        (rewrite("\x0b"), r"a hypothesis with words in it; got '\x0b' ("),
        (rewrite("Nobody makes a sound."),
         "another hypothesis than the seed's; got 'Nobody makes a sound.' ("),
        (lambda rows: rows.append(rows[-1] | {"variant_id": "another"}),
         "each paraphrase of a seed once; got 'It is all quiet.' 2 times (snli:4)"),
    ],
)  # fmt: skip
def test_wrong_variants(
    paraphrases: Path, edit: Callable[..., None], change: Change, problem: str
) -> None:
    edit(paraphrases / VARIANTS, change)
    (paraphrases / "README.md").write_text(render(paraphrases))
    assert any(f"{VARIANTS}: expected {problem}" in line for line in check_dataset(paraphrases))


@pytest.mark.slow
def test_both_collections_have_the_same_problem(
    dataset: Path, edit: Callable[..., None], tmp_path: Path
) -> None:
    """A seed with two texts or labels could not have one prediction."""
    export_dataset(write_paraphrase_run(tmp_path / "paraphrase-run"), dataset)
    assert check_dataset(dataset) == []
    for file in (SEEDS, VARIANTS):
        edit(
            dataset / file,
            lambda rows: [r.update(label=2) for r in rows if r["seed_id"] == "snli:1"],
        )
    (dataset / "README.md").write_text(render(dataset))
    assert check_dataset(dataset) == [
        f"{SEEDS}: expected label as in snli/seeds.parquet; got 2 instead of 1 (snli:1)"
    ]


def test_wrong_provenance(paraphrases: Path, dataset: Path) -> None:
    path = paraphrases / "snli_paraphrases/provenance.json"
    made = json.loads(path.read_text())
    shutil.copy(dataset / "snli/provenance.json", path)
    assert (
        "snli_paraphrases/provenance.json: expected the kind of snli_paraphrases; got replacements"
        in check_dataset(paraphrases)
    )
    path.write_text(json.dumps(made))
    shutil.copy(path, dataset / "snli/provenance.json")
    assert "snli/provenance.json: expected the kind of snli; got paraphrases" in check_dataset(
        dataset
    )
