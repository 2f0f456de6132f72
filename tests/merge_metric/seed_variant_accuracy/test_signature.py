from dataclasses import replace
from importlib.metadata import version
from typing import Any

from helpers.metric_oracle import LABELS, Row, columns, problems

from merge_metric.seed_variant_accuracy.scoring import VERSION, score

ROWS = problems("E E EENC", "N N NEC", "C E CCE")
SUBSAMPLES = [[0, 1]] * len(ROWS)


def signatures(rows: list[Row] = ROWS, **options: Any) -> tuple[str, str]:
    result = score(**{**columns(rows), "n_bootstrap": 10, **options})
    return result["signature"], result["signature_short"]


def test_every_option_changes_it() -> None:
    settings: list[dict[str, Any]] = [
        {}, *({"correctness_threshold": n} for n in (1, 10, 100)),
        *({"n_bootstrap": n} for n in (0, 1, 100)), *({"rng_seed": n} for n in (1, 10, 100)),
        *({"subsamples": [list(range(n))] * len(ROWS)} for n in (1, 2, 10)),
        *({"opposites": pairs} for pairs in ([], [("entailment", "neutral")])),
        *({"labels": labels} for labels in (LABELS[::-1], [*LABELS, "other"])),
    ]  # fmt: skip
    result = [signatures(**options) for options in settings]
    for form in zip(*result, strict=True):
        assert len(set(form)) == len(settings)


def test_other_data_change_it() -> None:
    """A draw of equal sizes is other data; other answers are not, nor a seed without replicates."""
    others = {
        "a variant fewer": ROWS[:-1],
        "seeds fewer": ROWS[:4],
        "another seed": [replace(r, seed_id=r.seed_id.replace("s:2", "s:3")) for r in ROWS],
        "another gold label": [
            replace(r, gold="neutral") if r.seed_id == "s:0" else r for r in ROWS
        ],
        "a variant more": [*ROWS, ROWS[0]],
    }
    for name, rows in others.items():
        assert all(a != b for a, b in zip(signatures(), signatures(rows), strict=True)), name
    rows = problems("E E EENC", "N N NECN")
    one = [[0], [0], [1], [1]] * 2
    other = [[0, 1], [0], [1], []] * 2
    assert signatures(rows, subsamples=one)[0] != signatures(rows, subsamples=other)[0]
    neutral = [replace(row, prediction="neutral", own="neutral") for row in ROWS]
    assert signatures(neutral) == signatures()
    assert signatures(n_bootstrap=0, rng_seed=1) == signatures(n_bootstrap=0, rng_seed=2)


def test_what_it_reads_like() -> None:
    long, short = signatures(correctness_threshold=75, rng_seed=42, subsamples=SUBSAMPLES)
    parts = dict(part.split(":") for part in long.split("|"))
    assert parts.items() >= {
        "ct": "75", "subsamples": "2", "bootstrap": "10", "rng_seed": "42", "version": VERSION,
        "labels": "entailment,neutral,contradiction", "opposites": "entailment-contradiction",
    }.items()  # fmt: skip
    assert version("merge-nli") == VERSION
    assert "\n" not in long
    assert [part.split(":")[1] for part in short.split("|")] == list(parts.values())
