import importlib
import json
import random
import re
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from helpers.analysed import answered, random_dataset, run, write_answers, write_dataset
from helpers.commands import run as command
from helpers.metric_oracle import Row, problems, random_problems
from scipy.stats import kendalltau
from statsmodels.stats.multitest import multipletests

from merge_dataset.hub.repository import http_error
from merge_metric.compare import (
    DECISIVE,
    Comparison,
    compare_frames,
    compare_models,
    rank_ranges,
    replicates_for,
)
from merge_metric.frame.joined import Frame
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.figures import figures
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.resampling import compare, seed_weights

SKILLS = {"weak": 0.35, "strong": 0.9, "alike": 0.88}


@pytest.fixture(scope="module")
def models() -> dict[str, list[Row]]:
    rng = random.Random(11)
    rows = random_dataset(rng, seeds=60)
    return {name: answered(rows, rng, skill) for name, skill in SKILLS.items()}


@pytest.fixture(scope="module")
def files(models: dict[str, list[Row]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    write_dataset(folder / "merge-nli", models["weak"])
    for name, rows in models.items():
        write_answers(folder / f"{name}.parquet", rows)
    return folder


def compared(counts: dict[str, SeedCounts], **settings: Any) -> Comparison:
    frames = [Frame(name, "snli", of, np.zeros(0, int)) for name, of in counts.items()]
    return compare_frames(frames, Settings(**settings))


def test_answers_without_a_label_are_told(files: Path, tmp_path: Path) -> None:
    named = pq.read_table(files / "weak.parquet")
    codes = named["prediction"].to_pylist()
    lost = ["" if n % 4 == 0 else code for n, code in enumerate(codes)]
    path = tmp_path / "silent.parquet"
    rows = {name: named[name] for name in ("variant_id", "seed_id", "label")}
    pq.write_table(pa.table({**rows, "prediction": lost}), path)
    both = [path, files / "strong.parquet"]
    (result,) = compare_models(both, files / "merge-nli", n_bootstrap=9).values()
    shares = {row["model"]: row.get("without_label") for row in result.models.rows}
    assert shares["strong"] is None
    assert shares["silent"] == pytest.approx(0.25, abs=0.02)
    share = f"{shares['silent']:.1%}"
    assert f"Answers without a label count as wrong: silent {share}." in result.to_text()


def test_orders_by_two_figures_are_compared_by_kendalls_tau() -> None:
    rng = random.Random(4)
    rows = random_dataset(rng, seeds=25)
    counts = {
        str(skill): run(answered(rows, rng, skill)).counts for skill in (0.3, 0.5, 0.6, 0.65, 0.7)
    }
    result = compared(counts, n_bootstrap=60, rng_seed=3)

    def tau(weights: Any = None) -> list[float]:
        means = [figures(count, 90, weights).means() for count in counts.values()]
        outcome = [[mean[key].round(9) for mean in means] for key in ("seed_accuracy", DECISIVE)]
        return [
            float(kendalltau(*([v[n] for v in values] for values in outcome)).statistic)
            for n in range(len(outcome[0][0]))
        ]

    assert result.kendall_tau is not None
    assert result.kendall_tau["value"] == pytest.approx(tau()[0])
    (weights,) = seed_weights(25, Settings(n_bootstrap=60, rng_seed=3))
    expected = np.quantile(tau(weights), [0.025, 0.975]).tolist()
    assert result.kendall_tau["ci"] == pytest.approx(expected)
    assert result.as_dict()["kendall_tau"] == result.kendall_tau
    assert f"Kendall's τ {tau()[0]:.2f} [" in " ".join(str(result).split())
    few = compared(dict(list(counts.items())[:3]), n_bootstrap=5)
    assert few.kendall_tau is None
    assert "Kendall" not in str(few)
    same = compared(dict.fromkeys("abcd", counts["0.5"]), n_bootstrap=5)
    assert same.kendall_tau == {"value": None, "ci": [None, None], "correctness_threshold": 90}
    assert "Kendall's τ undefined" in str(same)


def test_pairs_are_compared_and_both_tests_corrected(models: dict[str, list[Row]]) -> None:
    counts = {name: run(rows).counts for name, rows in models.items()}
    pairs = compared(counts, n_bootstrap=300, rng_seed=5).pairs.rows
    names = [("strong", "alike"), ("strong", "weak"), ("alike", "weak")]
    assert [(pair["a"], pair["b"]) for pair in pairs] == names
    raw: dict[str, list[float]] = {"mcnemar": [], "sv": []}
    for pair in pairs:
        both = counts[pair["a"]], counts[pair["b"]]
        expected = compare(*both, Settings(n_bootstrap=1000, rng_seed=5))
        assert pair["variant_accuracy"] == expected["variant_accuracy"]["difference"]
        assert pair["matching_threshold_ci"] == expected["matching_threshold"]["ci"]
        assert pair["mcnemar_only_a"] == expected["mcnemar"]["only_a"]
        raw["mcnemar"].append(expected["mcnemar"]["p_value"])
        raw["sv"].append(expected["seed_variant_accuracy"]["p_value"])
        assert pair["seed_variant_accuracy_p_value"] == raw["sv"][-1]
    keys = ("mcnemar_p_value_holm", "seed_variant_accuracy_p_value_holm")
    for key, p_values in zip(keys, raw.values(), strict=True):
        corrected = multipletests(p_values, method="holm")[1]
        assert [pair[key] for pair in pairs] == pytest.approx(corrected.tolist(), abs=1e-12)


def test_identical_answers_tie() -> None:
    """Two models with equal answers do not differ, with p-values of 1."""
    rows = random_problems(random.Random(2), seeds=12)
    result = compared({name: run(rows).counts for name in "ab"}, n_bootstrap=100)
    (pair,) = result.pairs.rows
    assert pair["tie"]
    assert pair["seed_variant_accuracy"] == 0
    assert pair["seed_variant_accuracy_p_value_holm"] == pair["mcnemar_p_value_holm"] == 1
    assert "≤" not in result.pairs.to_text()
    assert [row["rank"] for row in result.models.rows] == ["1–2", "1–2"]


def test_ranks_of_all_patterns_of_three_models() -> None:
    pairs = [(0, 1), (0, 2), (1, 2)]
    for chosen in range(8):
        significant = [pair for n, pair in enumerate(pairs) if chosen >> n & 1]
        for model, (low, high) in enumerate(rank_ranges(3, significant)):
            others = [other for other in range(3) if other != model]
            assert low == 1 + sum((other, model) in significant for other in others)
            assert high == 3 - sum((model, other) in significant for other in others)
            assert 1 <= low <= high <= 3


@pytest.mark.parametrize("n_models", [2, 3, 8, 19])
def test_there_are_replicates_enough_for_the_correction(n_models: int) -> None:
    replicates, pairs = replicates_for(n_models), n_models * (n_models - 1) // 2
    assert 2 * 4 / (replicates + 1) * pairs <= 0.05
    assert replicates % 1000 == 0


def test_models_without_a_common_configuration(
    models: dict[str, list[Row]], files: Path, tmp_path: Path
) -> None:
    paths = []
    for word_class, ending in (("noun", "nouns"), ("verb", "verbs")):
        table = pq.read_table(files / "weak.parquet")
        ids = table["variant_id"]
        seeds = pq.read_table(files / "merge-nli" / "s" / ending / "seeds.parquet")["seed_id"]
        keep = pc.or_(
            pc.match_substring(ids, f"/{word_class}/"),
            pc.is_in(ids, value_set=seeds.combine_chunks()),
        )
        paths.append(str(tmp_path / f"{word_class}.parquet"))
        pq.write_table(table.filter(keep), paths[-1])
    with pytest.raises(ValueError, match=r"got s_nouns: noun; s_verbs: verb; ask .* with `config`"):
        compare_models(paths, files / "merge-nli")


def test_models_without_a_common_seed() -> None:
    a = run(problems("E E E", "N N N")).counts
    renamed = run([Row(f"t:{n}", "neutral", "neutral", "neutral") for n in range(2)]).counts
    with pytest.raises(ValueError, match="got none in common, such as 's:0', 's:1' and 't:0'"):
        compared({"a": a, "b": renamed})


def test_leaderboard_of_the_hub(files: Path) -> None:
    """As the Hub's API answers: without models of base models only if it is asked for these."""
    author = {"type": "user", "name": "somebody", "avatarUrl": "", "fullname": "S"}
    entry = {"rank": 1, "modelId": "a/b", "value": 70.5, "filename": "x.yaml", "verified": False}
    entry |= {"author": author, "notes": "seed-variant accuracy at 90 % 33.3"}
    answers = {"o/d": (200, [entry]), "o/none": (404, {"error": "no leaderboard"})}

    # The Hub's library took another HTTP library, with the same names.
    httpx: Any = importlib.import_module(http_error().__module__.partition(".")[0])

    def answer(request: Any) -> Any:
        assert request.url.params["base_model"] == "false"
        status, told = answers[request.url.path.split("/", 3)[3].removesuffix("/leaderboard")]
        return httpx.Response(status, json=told)

    huggingface_hub.set_client_factory(lambda: httpx.Client(transport=httpx.MockTransport(answer)))
    try:
        words = ("compare", files / "weak.parquet", files / "strong.parquet", "--dataset")
        words = (*words, files / "merge-nli", "--n-bootstrap", 100, "--with-leaderboard")
        text = command(*words, "o/d").stdout
        assert "o/d: 1 models on the Hub's leaderboard" in text
        assert re.search(r"^1 +a/b +70.5 +False$", text, re.MULTILINE)
        assert "a/b: seed-variant accuracy at 90 % 33.3" in text
        (row,) = json.loads(command(*words, "o/d", "--format", "json").stdout)["leaderboard"][
            "rows"
        ]
        assert (row["model"], row["value"]) == ("a/b", 70.5)
        assert "reading the leaderboard of o/none: " in command(*words, "o/none", code=1).stderr
        assert "expected OWNER/NAME" in command(*words, "o", code=2).stderr
    finally:
        huggingface_hub.set_client_factory(huggingface_hub.utils._http.default_client_factory)
