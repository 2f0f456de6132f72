import random
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.dataset_files import write_predictions, write_rows
from helpers.report_data import problems
from helpers.scored_folder import predicted, write_folder

from merge_dataset.engine import connect
from merge_dataset.schema import NLI
from merge_metric.report.evidence import Evidence, gather_evidence
from merge_metric.report.sections import tables
from merge_metric.report.seeds import (
    MISSING,
    SIGNALS,
    SourceSeeds,
    describe_sample,
    embed_source,
    limit_variants,
    pack_signals,
    problems_in,
)
from merge_metric.report.write import embed


def of_source(sources: tuple[SourceSeeds, ...], name: str = "snli") -> SourceSeeds:
    return next(source for source in sources if source.source == name)


def rows_of(case: Any) -> dict[str, list[dict[str, Any]]]:
    """Model → rows of its predictions for snli, made again."""
    abilities = {"weak": 0.45, "middle": 0.65, "strong": 0.85}
    return {name: case.snli.predictions(ability, name) for name, ability in abilities.items()}


def test_counts_per_seed_and_class(sources: tuple[SourceSeeds, ...], case: Any) -> None:
    """Compare with counting the predictions' rows one by one."""
    source = of_source(sources)
    assert source.word_classes == ("noun", "verb")
    ids = source.seeds["seed_id"].to_pylist()
    for model, rows in enumerate(rows_of(case).values()):
        right: Counter[tuple[str, str]] = Counter()
        every: Counter[tuple[str, str]] = Counter()
        for row in rows:
            if row["variant_id"] == row["seed_id"]:
                assert source.own[model, ids.index(row["seed_id"])] == row["prediction"]
                continue
            key = (row["variant_id"].split("/")[1], row["seed_id"])
            every[key] += 1
            right[key] += row["prediction"] == row["label"]
        for code, word_class in enumerate(source.word_classes):
            for seed, seed_id in enumerate(ids):
                assert source.n_variants[code, seed] == every[word_class, seed_id]
                assert source.n_answered[model, code, seed] == every[word_class, seed_id]
                assert source.n_right[model, code, seed] == right[word_class, seed_id]


def test_models_without_answers_do_not_count(case: Any, tmp_path: Path) -> None:
    rows = case.snli.predictions(0.5, "x")
    gone = rows[0]["seed_id"]
    some = [row for row in rows if row["seed_id"] != gone]
    file = write_predictions(tmp_path / "part.parquet", some)
    files = [f"whole={case.files[0]}", str(file)]
    evidence = gather_evidence(files, case.folder, ["snli"], allow_missing=True, n_bootstrap=0)
    (source,) = evidence.sources
    assert source.own[:, 0].tolist()[1] == MISSING
    assert source.mean_right()[0] == source.n_right[0, :, 0].sum() / source.n_variants[:, 0].sum()
    embedded = embed_source(source)
    assert embedded["own"][1][0] == "-"
    assert embedded["answered"][1][0][0] == 0
    assert set(embedded["answers"][1]) == {"0", "1", "2", "-"}
    (alone,) = gather_evidence(file, case.folder, ["snli"], allow_missing=True).sources
    n_answered = sum(row["variant_id"] != row["seed_id"] for row in some)
    assert len(alone.rows) == alone.n_variants.sum() == n_answered
    assert describe_sample([alone]) == f"All {n_answered:,} answered variants are shown."


def test_signals_of_variants_are_packed(tmp_path: Path) -> None:
    rows = {
        "zipf_frequency": [4.25, None, 7.7], "premise_pll_change": [-3.21, None, -90.0],
        "hypothesis_pll_change": [1.5, None, 2.0], "number_changed": [True, False, None],
        "article_fits": [False, True, None],
    }  # fmt: skip
    pq.write_table(pa.table({"quality": [0.75, 0.5, None], **rows}), tmp_path / "a.parquet")
    pq.write_table(pa.table(rows), tmp_path / "b.parquet")
    relation = problems_in([tmp_path / "a.parquet", tmp_path / "b.parquet"], NLI)
    with connect() as connection:
        query = f"SELECT {', '.join(SIGNALS)} FROM {relation} ORDER BY row"
        signals = connection.sql(query).to_arrow_table()
    packed = pack_signals(signals.take([2, 0, 1, 3, 4, 5]))
    shown = {
        figure["name"]: [
            None if code == "--" else (int(code, 36) - 648) / 10 ** figure["decimals"]
            for code in map("".join, zip(figure["codes"][::2], figure["codes"][1::2], strict=True))
        ]
        for figure in packed["figures"]
    }
    assert shown == {
        "quality": [None, 0.75, 0.5, None, None, None],
        "frequency": [7.7, 4.2, None, 4.2, None, 7.7],
        "log-likelihood": [-64.8, -3.2, None, -3.2, None, -64.8],
    }
    assert packed["faults"] == ["other number", "other verb form", "article does not fit"]
    assert packed["faulty"] == "050500"


@pytest.mark.parametrize("most", [260, 200])
def test_as_many_of_every_seed(sources: tuple[SourceSeeds, ...], most: int) -> None:
    """At most `most` in all; no seed has two more than another, unless that one has all shown."""
    shown = limit_variants(sources, most)
    counts = np.concatenate([source.n_shown for source in shown])
    all_counts = np.concatenate([source.n_shown for source in sources])
    cap = counts.max()
    assert (counts == np.minimum(all_counts, cap)).all()
    assert most - len(counts) < counts.sum() <= most
    assert f"of each seed at most {cap}, sampled by a hash of their ids." in describe_sample(shown)
    for before, after in zip(sources, shown, strict=True):
        assert (before.n_right == after.n_right).all()  # figures remain those of all variants


def test_few_variants_are_those_of_the_hardest_seeds(sources: tuple[SourceSeeds, ...]) -> None:
    shown = limit_variants(sources, 50)
    for source in shown:
        counts = source.n_shown
        assert set(counts.tolist()) <= {0, 4, 5}
        bare = counts[source.hardest()] == 0
        assert (np.diff(bare.astype(int)) >= 0).all()  # after one without variants, none has any
    assert sum(len(source.seed) for source in shown) <= 50
    assert "easiest seeds" in describe_sample(shown)
    nothing = limit_variants(sources, 0)
    assert sum(len(source.seed) for source in nothing) == 0
    assert "None of the" in describe_sample(nothing)


def test_samples_are_keyed(case: Any, evidence: Evidence, tmp_path: Path) -> None:
    made = problems(30)
    random.Random(3).shuffle(made.seeds)
    random.Random(4).shuffle(made.variants)
    orders = [[row["variant_id"] for row in of.variants] for of in (made, case.snli)]
    assert orders[0] != orders[1]
    folder = made.write(tmp_path / "data")
    file = write_predictions(tmp_path / "x.parquet", made.predictions(0.5, "x"))
    other = gather_evidence([str(file)], folder, n_bootstrap=0)

    def sampled(of: Evidence) -> set[str]:
        source = of_source(of.sources).sample(2, 30)
        return set(source.read(["variant_id"])["variant_id"].to_pylist())

    assert sampled(other) == sampled(evidence)
    assert len(sampled(evidence)) == 60


def told(embedded: dict[str, Any]) -> dict[tuple[str, str, str, str], tuple[Any, ...]]:
    """Data as the page's script reads them, by seed, class, word and replacement."""
    result = {}
    position = 0
    for seed, word_class, word, in_premise, in_hypothesis, n in embedded["groups"]:
        for _ in range(n):
            new = embedded["vocabulary"][embedded["words"][position]]
            own = embedded["texts"].get(str(position)) or (
                *replaced(embedded["premises"][seed], in_premise, new),
                *replaced(embedded["hypotheses"][seed], in_hypothesis, new),
            )
            answers = [answers[position] for answers in embedded["answers"]]
            key = (embedded["ids"][seed], embedded["classes"][word_class], word, new)
            result[key] = (*own, answers)
            position += 1
    assert position == len(embedded["words"])
    return result


def replaced(text: str, spans: list[int], new: str) -> tuple[str, list[int]]:
    made, marks, done = "", [], 0
    for start, end in zip(spans[::2], spans[1::2], strict=True):
        made += text[done:start]
        marks += [len(made), len(made) + len(new)]
        made += new
        done = end
    return made + text[done:], marks


def test_texts_of_variants_can_be_told(sources: tuple[SourceSeeds, ...], case: Any) -> None:
    result = told(embed_source(of_source(sources)))
    assert len(result) == len(case.snli.variants)
    answers = [{row["variant_id"]: row for row in rows} for rows in rows_of(case).values()]
    for row in case.snli.variants:
        key = (row["seed_id"], row["word_class"], row["original"], row["replacement"])
        premise, in_premise, hypothesis, in_hypothesis, given = result[key]
        assert (premise, hypothesis) == (row["premise"], row["hypothesis"])
        assert in_premise == [*chain(*row["premise_spans"])]
        assert in_hypothesis == [*chain(*row["hypothesis_spans"])]
        assert given == [str(model[row["variant_id"]]["prediction"]) for model in answers]


def test_texts_that_cannot_be_told_are_embedded(tmp_path: Path) -> None:
    made = problems(2)
    capital, paraphrase = made.variants[0], made.variants[1]
    capital["premise"] = capital["premise"].upper()
    paraphrase |= {"word_class": None, "original": None, "replacement": None}
    paraphrase |= {"hypothesis": "Quite another <b>.", "premise_spans": [], "hypothesis_spans": []}
    folder = made.write(tmp_path / "data")
    nouns = [row for row in made.variants if row["word_class"] != "verb"]
    write_rows(folder / "snli" / "nouns" / "variants.parquet", nouns)
    file = write_predictions(tmp_path / "x.parquet", made.predictions(1, "x"))
    evidence = gather_evidence([str(file)], folder, ["snli"], n_bootstrap=0)
    (source,) = evidence.sources
    embedded = embed_source(source)
    assert embedded["classes"] == ["noun", "verb", ""]
    result = told(embedded)
    assert len(embedded["texts"]) == 2
    key = (capital["seed_id"], "noun", capital["original"], capital["replacement"])
    assert result[key][0] == capital["premise"]
    assert result[paraphrase["seed_id"], "", "", ""][2] == "Quite another <b>."


def test_variants_in_which_several_words_change(tmp_path: Path) -> None:
    made = problems(1)
    (seed,) = made.seeds
    several = made.variants[0]
    seed |= {"premise": "A girl and a boy.", "hypothesis": "A girl."}
    several |= {
        "original": "girl boy A a", "replacement": "owl ape An an",
        "premise": "An owl and an ape.", "hypothesis": "An owl.",
        "premise_spans": [[0, 2], [3, 6], [11, 13], [14, 17]],
        "hypothesis_spans": [[0, 2], [3, 6]],
    }  # fmt: skip
    folder = made.write(tmp_path / "data")
    file = write_predictions(tmp_path / "x.parquet", made.predictions(1, "x"))
    (source,) = gather_evidence([str(file)], folder, ["snli"], n_bootstrap=0).sources
    embedded = embed_source(source)
    (group,) = (group for group in embedded["groups"] if group[2] == "girl boy A a")
    assert group[3:5] == [[0, 1, 2, 6, 11, 12, 13, 16], [0, 1, 2, 6]]
    result = told(embedded)[several["seed_id"], "noun", "girl boy A a", "owl ape An an"]
    assert result[:2] == ("An owl and an ape.", [0, 2, 3, 6, 11, 13, 14, 17])
    assert result[2:4] == ("An owl.", [0, 2, 3, 6])


def test_problems_without_texts(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "merge-nli")
    write_predictions(tmp_path / "p.parquet", predicted())
    evidence = gather_evidence([str(tmp_path / "p.parquet")], folder, n_bootstrap=0)
    assert of_source(evidence.sources).seeds["premise"].to_pylist() == [""] * 3
    assert embed(evidence, tables(evidence, for_page=True))
