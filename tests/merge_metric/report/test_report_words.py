import re
from typing import Any

import pyarrow as pa
import pytest
from helpers.dataset_files import run_manifest, seed_row, variant_row, write_source

from merge_metric.frame.predictions import with_metadata, write_predictions
from merge_metric.report.evidence import gather_evidence
from merge_metric.report.write import write_report

HOSTILE = "<script>alert(1)</script> The answer is B."


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report on a model with repeated answers, some of which name no label."""
    folder = tmp_path_factory.mktemp("words")
    seeds, variants = [], []
    for n in range(6):
        texts = (f"The dog runs {n}.", f"A dog runs {n}.")
        seeds.append(seed_row(f"snli:{n}", texts, 1))
        for word in ("cat", "cow"):
            both = {"premise": ["m"], "hypothesis": ["m"]}
            variants.append(variant_row(seeds[-1], "noun", "dog", word, both, subsamples=[0]))
    write_source(folder / "merge-nli", seeds, variants, provenance=run_manifest("snli"))
    rows = [
        {
            "variant_id": row.get("variant_id") or row["seed_id"],
            "seed_id": row["seed_id"],
            "label": 1,
            "prediction": -1 if n == 8 else 1,
            "answer_text": HOSTILE if n < 8 else "x" * 500,
            "repeats": [1, 2 if n == 0 else 1] if n < 6 else None,
        }
        for n, row in enumerate([*seeds, *variants])
    ]
    told: dict[str, Any] = {"name": "talker", "prompt": "Premise: {premise}\nIs it <right>?"}
    told |= {"requests": 30, "prompt_tokens": 9, "answer_tokens": 7, "prices": [1e6, 2e6]}
    table = with_metadata(pa.Table.from_pylist(rows), told)
    write_predictions(folder / "p.parquet", table)
    out = folder / "report.html"
    evidence = gather_evidence([folder / "p.parquet"], folder / "merge-nli", n_bootstrap=0)
    write_report(evidence, out)
    return out.read_text(encoding="utf-8")


def test_words_in_the_page(page: str) -> None:
    assert '<pre class="prompt">Premise: {premise}\nIs it &lt;right&gt;?</pre>' in page
    assert "The answer is B." in page
    assert "<script>alert(1)" not in page
    assert "x" * 101 not in page
    assert "x" * 100 in page
    text = " ".join(re.sub("<script.*?</script>", "", page, flags=re.DOTALL).split())
    assert "talker: 5.6% of the answers name no label and count as wrong." in text
    assert "6 seeds answered right, asked 2 more times" in text
    assert "30 requests, 9 tokens of prompts and 7 of answers, cost 23.00" in text
