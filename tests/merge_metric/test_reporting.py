"""Text of a paper on figures: the numbers are those of the result, and LaTeX sets the table."""

from pathlib import Path

import pytest
from helpers.commands import refused, run
from helpers.latex import PDFLATEX, compiled
from helpers.report_data import problems

from merge_dataset.layout import CARD
from merge_metric import evaluate_model
from merge_metric.evaluation import Evaluation
from merge_metric.seed_variant_accuracy.formatting import as_percent

PROBLEMS = problems(12)
BIBTEX = "@misc{zgreaban2025merge,\n  title = {{MERGE}}\n}"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Evaluation]:
    """Results of a model that says entailment, and of one that knows."""
    folder = PROBLEMS.write(tmp_path_factory.mktemp("paper") / "merge-nli")
    card = folder / CARD
    card.write_text(f"# A card\n\n```bibtex\n{BIBTEX}\n```\n", encoding="utf-8")
    rows = (*PROBLEMS.seeds, *PROBLEMS.variants)
    gold = {(row["premise"], row["hypothesis"]): row["label"] for row in rows}
    models = {
        "always": lambda pairs: [0] * len(pairs),
        "knows": lambda pairs: [gold[pair] for pair in pairs],
    }
    out = folder.parent
    return [
        evaluate_model(
            model, folder, "snli", name=name, progress=False, out=out / f"{name}.parquet"
        )
        for name, model in models.items()
    ]


def test_sentences_table_and_citation(results: list[Evaluation], tmp_path: Path) -> None:
    one, other = results
    text = one.reporting(other)
    for result in results:
        (sentence,) = (line for line in text.splitlines() if f"), {result.name} answers" in line)
        for key in ("seed_accuracy", "variant_accuracy", "seed_variant_accuracy"):
            assert as_percent(result[key]) in sentence
        low, high = map(as_percent, result["seed_variant_accuracy_ci"])
        assert f"95 % interval {low} to {high}" in sentence
        assert f"({result['n_seeds']} seeds with" in sentence
        assert f"signature {result['signature_short']}." in sentence
    assert text.endswith(f"{BIBTEX}\n")
    table = r"\begin{table}" + text.partition(r"\begin{table}")[2].partition("@misc")[0]
    assert [name for name in ("always", "knows") if f"& {name}" in table] == ["always", "knows"]
    if PDFLATEX:
        compiled(table, tmp_path)


def test_the_command_says_the_same(results: list[Evaluation]) -> None:
    one = results[0]
    words = ("score", one.predictions, "--reporting")
    told = run(*words, "--dataset", one.dataset, "--config", "snli").stdout
    assert told.splitlines()[0] == one.reporting().splitlines()[0]
    assert "expected the --dataset" in refused(*words)
