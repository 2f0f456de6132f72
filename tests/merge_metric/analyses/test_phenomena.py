"""Seeds by words in their texts, against plain reading of words."""

import json
import random
import re
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
from helpers import metric_oracle as oracle
from helpers.analysed import answered, names_of, random_dataset, write_answers, write_dataset
from helpers.commands import run
from helpers.dataset_files import write_rows
from helpers.metric_oracle import Row

WORDS: Final = {
    "quantifier": {"all", "some", "Most"},
    "negation": {"no", "nobody", "isn't", "don’t"},
    "time": {"before", "Yesterday", "days"},
}
NEARLY: Final = ("tall", "handsome", "knot", "nobodies", "beforehand", "int", "nt")
"""Words that contain such a word, but do not count."""


Place = tuple[Path, list[Row], dict[str, set[str]]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A dataset, answers `a.parquet`, and each seed's phenomena, word by word."""
    folder = tmp_path_factory.mktemp("phenomena")
    rng = random.Random(5)
    rows = answered(random_dataset(rng, seeds=40), rng, 0.6)
    write_dataset(folder / "merge-nli", rows, "s")
    write_answers(folder / "a.parquet", rows)
    has: dict[str, set[str]] = {}
    pool = sorted({*NEARLY}.union(*WORDS.values()))
    for path in (folder / "merge-nli").rglob("seeds*.parquet"):
        seeds = pq.ParquetFile(path).read().to_pylist()
        for row in seeds:
            words = random.Random(row["seed_id"]).sample(pool, 2)
            row["premise"], row["hypothesis"] = f"A {words[0]} b.", f"It, {' '.join(words)}?"
            names = {name for name, known in WORDS.items() if known & set(words)}
            has[row["seed_id"]] = names or {"none of these"}
        write_rows(path, seeds)
    return folder, rows, has


def analyse(*arguments: object) -> list[dict[str, Any]]:
    printed = run("analyse", "phenomena", *arguments, "--format", "json").stdout
    return list(json.loads(printed)["rows"])


def test_figures_of_each_group_of_seeds(place: Place) -> None:
    folder, rows, has = place
    options = ("--dataset", folder / "merge-nli", "--config", "s", "--n-bootstrap", "0")
    result = analyse(folder / "a.parquet", *options)
    assert [row["phenomenon"] for row in result] == [*WORDS, "none of these"]
    for row in result:
        mine = [item for item in rows if row["phenomenon"] in has[str(item.seed_id)]]
        exact = oracle.averaged(mine)
        assert row["n_seeds"] == len({item.seed_id for item in mine})
        assert row["n_variants"] == exact["n_variants"]
        for key in ("seed_accuracy", "variant_accuracy", "relaxed_fooling_rate"):
            assert row[key] == pytest.approx(float(exact[key])), key
        assert row["sv_at_90"] == pytest.approx(float(exact["curve"][89]))


def test_judgements_and_a_control(place: Place) -> None:
    folder, rows, has = place
    ids = enumerate(names_of(rows))
    scores = {name: (5, 5) if n % 3 else (4, 2) for n, name in ids if n % 2}
    lines = [f"{name},ann,{f},{r}" for name, (f, r) in scores.items()]
    path = folder / "scores.csv"
    path.write_text("\n".join(["variant_id,annotator,fluency,reasoning", *lines, ""]))
    result = analyse("--dataset", folder / "merge-nli", "--config", "s", "--annotations", path)
    for row in result:
        mine = [
            scores[name] for name in scores if row["phenomenon"] in has[re.sub("/.*", "", name)]
        ]
        assert row["n_judged"] == len(mine)
        assert row["good"] == pytest.approx(sum(f + r >= 9 for f, r in mine) / len(mine))
        assert row["n_doubtful"] == sum(r < 4 for _, r in mine)
