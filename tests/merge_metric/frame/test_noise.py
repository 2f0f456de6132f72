"""Noise of repeated answers: by hand, against every draw, and from an inconsistent server."""

import json
import random
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.completions_server import Reply, Request, remote_model, serving

from merge_metric.frame.checks import ANSWER_TEXT
from merge_metric.frame.joined import ALL_ROWS
from merge_metric.frame.noise import noise_figures, noise_text, read_repeats
from merge_metric.frame.predictions import open_predictions, read_metadata
from merge_metric.models.language_model import Words
from merge_metric.models.prompts import read_prompt
from merge_metric.predict.driver import predict
from merge_metric.score import score_file, scores_text
from merge_metric.seed_variant_accuracy.counts import count
from merge_metric.seed_variant_accuracy.inputs import read_rows
from merge_metric.seed_variant_accuracy.options import Settings

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
    rows = read_rows(
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
