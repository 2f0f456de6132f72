import csv
import json
import random
import shutil
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import run
from helpers.completions_server import Reply, Request, remote_model, serving
from helpers.dataset_files import read_rows, run_manifest, seed_row, variant_row, write_source
from helpers.scored_folder import SEEDS, VARIANTS, predicted, problem_row

from merge_dataset.layout import split_files
from merge_metric.compare import compare_models
from merge_metric.frame.checks import ANSWER_TEXT
from merge_metric.frame.joined import ALL_ROWS
from merge_metric.frame.noise import noise_figures, noise_text, read_repeats
from merge_metric.frame.per_seed import write_seed_results
from merge_metric.frame.predictions import open_predictions, read_metadata, write_predictions
from merge_metric.frame.relations import read_columns
from merge_metric.frame.texts import text_digests, to_hex
from merge_metric.models.language_model import Words
from merge_metric.models.prompts import read_prompt
from merge_metric.predict.driver import predict
from merge_metric.score import score_file, scores_text
from merge_metric.seed_variant_accuracy import inputs
from merge_metric.seed_variant_accuracy.counts import count
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.scoring import score

N_SEEDS = 60
WORDS = {"noun": "dog", "verb": "runs"}


def rows_of(rng: random.Random) -> tuple[list[Any], list[Any]]:
    """Seeds, two per premise, with nouns and maybe verbs, in one or two of two subsamples."""
    seeds, variants = [], []
    for n in range(N_SEEDS):
        texts = (f"The dog runs {n // 2}.", f"A dog runs {n}.")
        seeds.append(seed_row(f"snli:{n:03}", texts, rng.randrange(3)))
        for word_class in ["noun", "verb"][: rng.randint(1, 2)]:
            for k in range(4):
                validated = {"premise": ["m1"], "hypothesis": rng.choice([["m1"], ["m2"]])}
                word = f"w{word_class[0]}{'abcd'[k]}"
                drawn = [0, 1] if k == 0 else [k % 2]
                variants.append(
                    variant_row(
                        seeds[-1], word_class, WORDS[word_class], word, validated, subsamples=drawn
                    )
                    | {"log_odds": float(k * n % 7)}
                )
    return seeds, variants


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, folder = random.Random(0), tmp_path_factory.mktemp("counted")
    seeds, variants = rows_of(rng)
    write_source(folder / "merge-nli", seeds, variants, provenance=run_manifest("snli"))
    table = pa.Table.from_pylist(answers(rng, [*seeds, *variants]))
    write_predictions(folder / "p.parquet", table)
    return folder


def answers(rng: random.Random, problems: list[Any]) -> list[dict[str, Any]]:
    digests = to_hex(text_digests(pa.Table.from_pylist(problems), ("premise", "hypothesis")))
    result = []
    for problem, digest in zip(problems, digests.to_pylist(), strict=True):
        prediction = problem["label"] if rng.random() < 0.7 else rng.randrange(3)
        probabilities = [0.125, 0.125, 0.125]
        probabilities[prediction] = 0.75
        if rng.random() < 0.06:
            prediction = -1  # names no label
        result.append(
            {
                **{name: problem[name] for name in ("variant_id", "seed_id", "label")},
                "prediction": prediction, "text_digest": digest, "probabilities": probabilities,
            }
        )  # fmt: skip
    return result


def plain(value: Any) -> Any:
    """Round floats, as sums of fractions differ in the last digits."""
    return json.loads(json.dumps(value), parse_float=lambda text: round(float(text), 12))


def obvious_columns(place: Path, config: str, by: Sequence[str] = ()) -> dict[str, Any]:
    """The slow way: Python rows, looked up one by one, as arguments of `scoring.score`."""
    given = {row["variant_id"]: row for row in read_rows(place / "p.parquet")}
    rows = read_columns(
        place / "merge-nli",
        split_files(place / "merge-nli", config)["variants"],
        ["variant_id", "seed_id", "label", "premise", "subsamples", "word_class", "mlms"],
    ).to_pylist()
    own = [given[row["seed_id"]] for row in rows]
    answers = [given[row["variant_id"]] for row in rows]
    classes = ["word_class"] if config == "snli" else []
    return {
        "predictions": [answer["prediction"] for answer in answers],
        "references": [row["label"] for row in rows],
        "seed_ids": [row["seed_id"] for row in rows],
        "seed_predictions": [item["prediction"] for item in own],
        "subsamples": [row["subsamples"] for row in rows],
        "variant_ids": [row["variant_id"] for row in rows],
        "probabilities": [answer["probabilities"] for answer in answers],
        "seed_probabilities": [item["probabilities"] for item in own],
        "groups": {name: [row[name] for row in rows] for name in (*classes, *by)} or None,
    }


SOME: dict[str, Any] = {"configs": ["snli_verbs", "snli"], "by": ["mlms"], "cluster": "premise"}


@pytest.mark.parametrize(
    ("order", "options"), [("as written", {}), ("shuffled", SOME), ("jsonl", {})]
)
def test_figures_are_those_of_the_obvious_road(
    place: Path, tmp_path: Path, order: str, options: dict[str, Any]
) -> None:
    path = place / "p.parquet"
    if order != "as written":
        rows = read_rows(path)
        random.Random(1).shuffle(rows)
        path = tmp_path / ("p.parquet" if order == "shuffled" else "p.jsonl")
        write_predictions(path, pa.Table.from_pylist(rows))
    outcome = score_file(path, place / "merge-nli", **options, n_bootstrap=8)
    for config, result in outcome.items():
        columns = obvious_columns(place, config, options.get("by", ()))
        if options.get("cluster"):
            codes = dict.fromkeys(columns["seed_ids"])
            codes |= {seed: int(seed[-3:]) // 2 for seed in codes}
            columns["clusters"] = {"premise": [codes[seed] for seed in columns["seed_ids"]]}
        wanted = score(**columns, n_bootstrap=8)
        for text in ("signature", "signature_short"):
            del result[text], wanted[text]
        assert result.pop("n_seeds_left_out") == 0
        if options.get("cluster"):  # codes of clusters, and so their order in a draw, differ
            result, wanted = (_without_intervals(item) for item in (result, wanted))
        assert result == wanted
    assert next(iter(outcome.values()))["n_seeds"] > 20
    whole = pa.concat_tables([pq.ParquetFile(path).read()]) if path.suffix == ".parquet" else None
    if whole is not None:
        columns = inputs.split_predictions(
            *(whole[name].to_pylist() for name in ("variant_id", "seed_id", "label", "prediction")),
            whole["probabilities"].to_pylist(),
        )
        alone = score_file(path, n_bootstrap=8)[ALL_ROWS]
        wanted = score(**columns, n_bootstrap=8)
        for text in ("signature", "signature_short"):
            del alone[text], wanted[text]
        del alone["n_seeds_left_out"]
        assert plain(alone) == plain(wanted)


def _without_intervals(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    left_out = ("low", "high")
    return {
        key: _without_intervals(item)
        for key, item in value.items()
        if not key.endswith("_ci") and key not in left_out
    }


def test_models_compared_in_parts(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken a few rows at a time, even small files have many parts."""
    rows = read_rows(place / "p.parquet")
    for row in rows[::3]:
        row |= {"prediction": (row["prediction"] + 1) % 3, "probabilities": None}
    half = len(rows) // 2
    for name, part in {"b": rows, "c1": rows[:half], "c2": rows[half:]}.items():
        write_predictions(
            tmp_path / f"{name}.parquet", pa.Table.from_pylist(part).drop_columns("probabilities")
        )
    files = [f"a={place / 'p.parquet'}", f"b={tmp_path / 'b.parquet'}"]
    parts = [f"c={tmp_path / name}.parquet" for name in ("c1", "c2")]
    options: dict[str, Any] = {"cluster": "premise", "n_bootstrap": 20}
    wanted = compare_models([*files, *parts], place / "merge-nli", **options)
    monkeypatch.setattr("merge_metric.frame.counting._ROWS_AT_A_TIME", 70)
    result = compare_models([*files, *parts], place / "merge-nli", **options)
    assert {k: plain(v.as_dict()) for k, v in result.items()} == {
        k: plain(v.as_dict()) for k, v in wanted.items()
    }
    differences = {(row["a"], row["b"]): row["seed_accuracy"] for row in result["snli"].pairs.rows}
    assert differences.pop(("b", "c")) == 0
    assert all(differences.values())


@pytest.mark.parametrize("allow_missing", [False, True])
@pytest.mark.parametrize(
    ("column", "message"),
    [("premise", "texts of .* 1 of 150"), ("label", "gold labels of .* 1 of 150")],
)
def test_a_seed_that_differs_in_one_file_of_the_dataset_is_told(
    place: Path, tmp_path: Path, column: str, message: str, *, allow_missing: bool
) -> None:
    folder = Path(shutil.copytree(place / "merge-nli", tmp_path / "merge-nli"))
    (path,) = split_files(folder, "snli_verbs")["seeds"]
    table = pq.ParquetFile(folder / path).read()
    rows = table.to_pylist()
    rows[0][column] = {"premise": "Another dog runs.", "label": (rows[0]["label"] + 1) % 3}[column]
    pq.write_table(pa.Table.from_pylist(rows, table.schema), folder / path)
    options: dict[str, Any] = {"allow_missing": allow_missing, "n_bootstrap": 0}
    with pytest.raises(ValueError, match=message):
        score_file(place / "p.parquet", folder, "snli_verbs", **options)
    assert score_file(place / "p.parquet", folder, "snli_nouns", **options)


OPPOSITE = {0: 2, 2: 0}


def is_strict(own: int, answer: int) -> bool:
    """Whether an answer is the opposite or, for neutral, any other label."""
    return answer not in (own, -1) and OPPOSITE.get(own, answer) == answer


def expected_share(flags: list[bool], drawn: int) -> float:
    """Share of draws without replacement that contain a flag, by trying all draws."""
    draws = list(combinations(flags, drawn))
    return sum(any(draw) for draw in draws) / len(draws)


@pytest.mark.parametrize("number", range(20))
def test_rates_are_those_of_all_draws(number: int) -> None:
    rng = random.Random(number)
    n_repeats, seeds = rng.randint(1, 4), {}
    columns: dict[str, list[Any]] = {"p": [], "r": [], "s": [], "o": [], "k": []}
    for seed in range(9):
        gold, own = rng.randrange(3), rng.randrange(3)
        own = gold if rng.random() < 0.7 else own
        text = [rng.choice([own, own, rng.randrange(-1, 3)]) for _ in range(rng.randint(2, 7))]
        drawn = [sorted({n % 2, rng.randrange(2)}) for n in range(len(text))]
        repeats = [rng.choice([own, own, own, rng.randrange(-1, 3)]) for _ in range(n_repeats)]
        seeds[str(seed)] = (gold, own, text, drawn, repeats)
        columns["p"] += text
        columns["r"] += [gold] * len(text)
        columns["s"] += [str(seed)] * len(text)
        columns["o"] += [own] * len(text)
        columns["k"] += drawn
    rows = inputs.read_rows(
        predictions=columns["p"], references=columns["r"], seed_ids=columns["s"],
        seed_predictions=columns["o"], subsamples=columns["k"],
    )  # fmt: skip
    again = {seed: np.array(item[4]) for seed, item in seeds.items()}
    result = noise_figures(count(rows), again, Settings(90, 50, 0))
    right = [item for item in seeds.values() if item[0] == item[1]]
    assert (result["n_seeds"], result["n_repeats"]) == (len(right), n_repeats)
    for rate in ("relaxed", "strict"):

        def flags(own: int, answers: list[int], rate: str = rate) -> list[bool]:
            return [a != own if rate == "relaxed" else is_strict(own, a) for a in answers]

        of_seeds = []
        for _, own, text, drawn, repeats in right:
            of_parts = []
            for part in (0, 1):
                others = [a for a, k in zip(text, drawn, strict=True) if part in k]
                m = min(n_repeats, len(others))
                of_parts.append([expected_share(flags(own, a), m) for a in (repeats, others)])
            of_seeds.append(np.mean(of_parts, axis=0))
        if not right:
            assert result[f"{rate}_above"] is None
            continue
        same, other = np.mean(of_seeds, axis=0)
        assert result[f"{rate}_same_text"] == pytest.approx(same)
        assert result[f"{rate}_variants"] == pytest.approx(other)
        assert result[f"{rate}_above"] == pytest.approx(other - same)
        low, high = result[f"{rate}_above_ci"]
        assert low <= result[f"{rate}_above"] + 1e-12
        assert high >= result[f"{rate}_above"] - 1e-12
    assert len(noise_text(result)) == 3


def test_repeats_of_a_server_that_wavers(tmp_path: Path) -> None:
    turn = {"n": 0}

    def answer(request: Request, number: int) -> Reply:
        text = request.payload["messages"][-1]["content"]
        if "Seed 0" in text:  # another answer every third time
            turn["n"] += 1
            message = "C" if turn["n"] % 3 == 0 else "B"
        else:
            message = "A" if "Variant 1.1" in text else "B"
        return Reply({"choices": [{"message": {"content": message}, "finish_reason": "stop"}]})

    rows = [("0", "0", "Seed 0."), ("0/0", "0", "Variant 0.0."), ("0/1", "0", "Variant 0.1.")]
    rows += [("1", "1", "Seed 1."), ("1/0", "1", "Variant 1.0."), ("1/1", "1", "Variant 1.1.")]
    problems = pa.table(
        {
            "variant_id": [row[0] for row in rows], "seed_id": [row[1] for row in rows],
            "premise": [row[2] for row in rows], "hypothesis": ["H."] * 6, "label": [1] * 6,
        }
    )  # fmt: skip
    with serving(answer) as server:
        for ending in ("parquet", "jsonl"):
            turn["n"] = 0
            more = {"chat_template": True, "words": Words(), "concurrency": 1}
            model = remote_model(server.url, prompt=read_prompt("none"), **more)
            out = tmp_path / f"p.{ending}"
            predict(model, problems, out, repeat_seeds=2, progress=False)
            result = read_repeats([open_predictions(out)])
            assert {seed: codes.tolist() for seed, codes in result.items()} == {
                "0": [1, 2],
                "1": [1, 1],
            }
    assert len(server.requests) == 2 * (6 + 4)
    metadata = read_metadata(tmp_path / "p.parquet")
    assert (metadata["repeat_seeds"], metadata["requests"]) == (2, 10)
    assert pq.read_table(tmp_path / "p.parquet")["repeats"].to_pylist()[1] is None
    results = score_file(tmp_path / "p.parquet", n_bootstrap=20)
    noise = results[ALL_ROWS]["noise"]
    assert (noise["relaxed_same_text"], noise["relaxed_variants"]) == (0.5, 0.5)
    assert (noise["relaxed_above"], noise["relaxed_single_same_text"]) == (0, 0.25)
    text = scores_text(results)
    assert "noise: 2 seeds answered right, asked 2 more times" in text
    assert "r_r 50.0" in text


def words_in(path: Path) -> dict[str, str]:
    """Id of a problem → the model's answer in words."""
    return dict(open_predictions(path).further(ANSWER_TEXT))


def test_text_of_other_programs(tmp_path: Path) -> None:
    answer = {"seed_id": "s", "label": 0, "prediction": 1}
    lines: list[dict[str, Any]] = [{"variant_id": "s/0"} | answer, {"variant_id": "s"} | answer]
    lines[1] |= {"repeats": [1, -1], "answer_text": "B."}
    json_lines, csv = tmp_path / "p.jsonl", tmp_path / "p.csv"
    json_lines.write_text("".join(json.dumps(line) + "\n" for line in lines))
    header = "variant_id,seed_id,label,prediction,repeats"
    csv.write_text(f'{header},answer_text\ns/0,s,0,1,,\ns,s,0,1,"[1, -1]",B.\n')
    for path in (json_lines, csv):
        assert read_repeats([open_predictions(path)])["s"].tolist() == [1, -1]
        assert words_in(path) == {"s": "B."}
    csv.write_text(f"{header}\ns,s,0,1,1\n")
    with pytest.raises(ValueError, match=r"line 2: repeats: expected a list of numbers"):
        open_predictions(csv)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Predictions, and a dataset folder with texts, and with votes on one seed."""
    seeds, variants = (
        [problem_row(name) for name in names if name.startswith("snli")]
        for names in (SEEDS, VARIANTS)
    )
    for row in (*seeds, *variants):
        row |= {"premise": f"Premise, of {row['seed_id']}.", "hypothesis": "A “hypothesis”."}
        row["annotator_labels"] = [0, 0, 2] if row["variant_id"] == "snli:a" else []
    write_source(tmp_path / "merge-nli", seeds, variants)
    pq.write_table(pa.Table.from_pylist(predicted("snli")), tmp_path / "p.parquet")
    return tmp_path / "p.parquet", tmp_path / "merge-nli"


def words(files: tuple[Path, Path], *more: object) -> list[object]:
    return ["score", files[0], "--dataset", files[1], "--config", "snli", "--n-bootstrap", 0, *more]


EXPECTED: dict[str, Any] = {
    "config": "snli", "seed_id": "snli:a", "premise": "Premise, of snli:a.",
    "hypothesis": "A “hypothesis”.",
    "annotator_labels": ["entailment", "entailment", "contradiction"], "label": "entailment",
    "prediction": "entailment", "n_variants": 3, "n_right": 2, "share_right": 2 / 3,
    "n_entailment": 2, "n_neutral": 0, "n_contradiction": 1, "agreement": 2 / 3,
}  # fmt: skip
"""Row of the first seed, by hand."""


def test_a_row_per_seed_by_hand(files: tuple[Path, Path], tmp_path: Path) -> None:
    for suffix in ("parquet", "jsonl", "csv"):
        result = run(*words(files, "--per-seed", tmp_path / f"new/seeds.{suffix}"))
        assert result.stdout.startswith("snli, averaged over 2 subsamples")
    made = tmp_path / "new"
    assert {path.name for path in made.iterdir()} == {"seeds.parquet", "seeds.jsonl", "seeds.csv"}
    rows = pq.read_table(made / "seeds.parquet").to_pylist()
    assert rows[0] == EXPECTED
    assert [(row["n_variants"], row["n_right"]) for row in rows] == [(3, 2), (5, 4), (2, 1)]
    assert [row["agreement"] for row in rows] == [pytest.approx(2 / 3), 0.8, 0.5]
    lines = (made / "seeds.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == rows
    with (made / "seeds.csv").open(encoding="utf-8", newline="") as file:
        first, *others = csv.DictReader(file)
    votes = {"annotator_labels": "entailment entailment contradiction"}
    assert first == {key: str(value) for key, value in (EXPECTED | votes).items()}
    assert others[0]["annotator_labels"] == ""


def test_formulas_are_marked_for_spreadsheets(tmp_path: Path) -> None:
    texts = ["=1+1", "+49", "-x", "@SUM(1)", "A girl runs.", "", None]
    columns = {"premise": texts, "n_right": [-1] * 7, "annotator_labels": [["neutral"]] * 7}
    for marks in (False, True):
        path = tmp_path / f"{marks}.csv"
        write_seed_results(path, pa.table(columns), for_spreadsheets=marks)
        rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
        expected = [f"'{text}" if marks and text[:1] in tuple("=+-@") else text
                    for text in (*texts[:-1], "")]  # fmt: skip
        assert [row["premise"] for row in rows] == expected
        assert {(row["n_right"], row["annotator_labels"]) for row in rows} == {("-1", "neutral")}
