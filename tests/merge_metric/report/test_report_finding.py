"""The finding of a report: sentences by hand, their conditions, and the example."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.dataset_files import write_predictions
from helpers.report_data import paraphrased, problems
from markupsafe import escape

from merge_dataset.schema import NLI
from merge_metric.compare import Comparison
from merge_metric.report.evidence import Configuration, Evidence, gather_evidence
from merge_metric.report.finding import doubts, findings, flipped_example, overall_findings
from merge_metric.report.write import render_html
from merge_metric.seed_variant_accuracy.figures import FEW_SEEDS
from merge_metric.tables import Table

Result = Mapping[str, Any]


def result(
    s: float = 0.8,
    sv: tuple[float, float, float] = (0.7, 0.65, 0.75),
    *,
    changes: float = 0.25,
    fall: tuple[float, float, float] = (0.1, 0.05, 0.15),
    n: int = 100,
) -> dict[str, Any]:
    """Figures of a model; `sv` is SV@90 with bounds, `fall` likewise S minus SV@90."""
    names = ("accuracy", "low", "high")
    return {
        "n_seeds": n, "seed_accuracy": s, "seed_accuracy_ci": [s - 0.05, s + 0.05],
        "relaxed_fooling_rate": changes,
        "relaxed_fooling_rate_ci": [changes - 0.1, changes + 0.1], "qt_gap": fall[0],
        "qt_gap_ci": list(fall[1:]),
        "sv_curve": {name: [bound] * 100 for name, bound in zip(names, sv, strict=True)},
        "by_label": {},
    }  # fmt: skip


def pair(a: str, b: str, **more: Any) -> dict[str, Any]:
    """A row of the comparison, by default of models that differ in all figures."""
    significant = {
        "mcnemar_p_value_holm": 0.01, "tie": False, "seed_variant_accuracy": 0.2,
        "seed_accuracy_ci": [-0.03, 0.07],
    }  # fmt: skip
    return {"a": a, "b": b, **significant, "relaxed_fooling_rate_ci": [-0.3, -0.1], **more}


def say(models: Mapping[str, Result], *pairs: Mapping[str, Any]) -> list[str]:
    table = Table("pairs", "", (), pairs)
    comparison = Comparison("snli", Table("models", "", (), ()), table, "") if pairs else None
    return findings(*_evidence(tuple(models), [tuple(models.values())], comparison=comparison))


def _evidence(
    names: Sequence[str],
    results: Sequence[tuple[Result | None, ...]],
    configs: Sequence[str] = ("snli",),
    *,
    comparison: Comparison | None = None,
    classes: tuple[Table, ...] = (),
) -> tuple[Evidence, Configuration]:
    item = zip(configs, results, strict=True)
    made = tuple(Configuration(config, of, comparison) for config, of in item)
    models: Any = tuple(SimpleNamespace(name=name, description={}) for name in names)
    return Evidence("", Path(), models, made, classes, {}, 1000), made[0]


def test_one_model() -> None:
    """The finding tells the share of seeds, the rate of changed answers, the fall in accuracy."""
    assert say({"tiny": result(0.677, changes=0.34)}) == [
        "tiny answers 68 % of the 100 seeds right (95 % interval 62.7–72.7).",
        "It changes its answer on some variant of 34 % of the seeds that it answers right (95 % "
        "interval 24.0–44.0 %).",
        "If a seed counts only with 90 % of its variants right (SV@90), accuracy is lower by "
        "10.0 points (95 % interval 5.0–15.0).",
    ]
    assert "of 0 % of the seeds that it answers right" in say({"m": result(changes=0.0)})[1]
    assert "of 54 % of the seeds that it answers right" in say({"m": result(changes=0.54)})[1]


def test_two_models_apart() -> None:
    models = {
        "tiny": result(0.7, changes=0.33, fall=(0.058, 0.01, 0.1)),
        "large": result(0.845, changes=0.067, fall=(0.088, 0.05, 0.1)),
    }
    assert say(models, pair("large", "tiny")) == [
        "large answers 84 % of the seeds right, tiny 70 %.",
        "tiny changes its answer on some variant of 33 % of the seeds that it answers right, large "
        "on 7 %.",
        "If a seed counts only with 90 % of its variants right (SV@90), accuracy is lower by 5.8 "
        "points (tiny) to 8.8 (large).",
    ]


def test_two_models_that_nothing_tells_apart() -> None:
    models = {"a": result(0.66, changes=0.2), "b": result(0.68, changes=0.25)}
    tied = pair("b", "a", mcnemar_p_value_holm=0.4, tie=True, relaxed_fooling_rate_ci=[-0.1, 0.2])
    assert say(models, tied)[:2] == [
        "Both models answer 66 to 68 % of the seeds right; the difference may be chance (95 % "
        "interval −3.0 to 7.0 points).",
        "On some variant they change their answer to 20 to 25 % of the seeds that they "
        "answer right; the difference may be chance (95 % interval −10.0 to 20.0 points).",
    ]
    turned = {**tied, "a": "a", "b": "b"}
    assert "(95 % interval −7.0 to 3.0 points)" in say(models, turned)[0]
    assert say(models, {**tied, "seed_accuracy_ci": None})[0].endswith("may be chance.")
    models["b"] = result(0.66, changes=0.2)
    assert say(models, tied)[:2] == [
        "Both models answer 66 % of the seeds right.",
        "On some variant they change their answer to 20 % of the seeds that they answer right.",
    ]
    assert say({"a": result(0.66), "b": result(0.7)})[0] == (
        "The models answer 66 to 70 % of the seeds right."  # without a bootstrap
    )


def test_many_models() -> None:
    """The best and the worst model, and the models that only variants distinguish."""
    models = {f"m{i}": result(0.6 + i / 20, changes=0.4 - i / 20) for i in range(5)}
    pairs = [pair("m4", "m0"), pair("m3", "m0", mcnemar_p_value_holm=0.2)]
    assert say(models, *pairs) == [
        "Of 5 models m4 answers the most seeds right, 80 %, and m0 the fewest, 60 %.",
        "m4 is the steadiest: it changes its answer on some variant of 20 % of the seeds "
        "that it answers right; m0, the least steady, on 40 %.",
        "If a seed counts only with 90 % of its variants right (SV@90), accuracy is lower by 10.0 "
        "points.",
        "Seeds alone do not tell m3 and m0 apart, variants do: SV@90 is 70.0 % against 70.0 %.",
    ]


@pytest.mark.parametrize(
    ("models", "unsaid"),
    [
        ({"m": result(n=FEW_SEEDS - 1)}, "answers"),
        ({"m": result(0.5, n=50)}, "changes"),  # 25 seeds right
        ({"m": result(fall=(0.05, -0.01, 0.1))}, "is lower by"),
        ({"m": result(fall=(-0.1, -0.2, -0.05))}, "is lower by"),
    ],
)
def test_unsupported_is_unsaid(models: dict[str, Result], unsaid: str) -> None:
    assert say({"m": result(n=9)}) == ["9 seeds: too few for a finding, which takes 30."]
    assert not any(unsaid in sentence for sentence in say(models))
    enough = {"m": result(n=FEW_SEEDS + 20)}
    assert any(unsaid in sentence for sentence in say(enough))


def test_a_fall_that_is_sure_for_some() -> None:
    models = {"a": result(), "b": result(fall=(0.01, -0.05, 0.05))}
    assert (
        "accuracy is lower by 10.0 points (95 % interval 5.0–15.0) for a; for b "
        "by 1.0 (95 % interval −5.0 to 5.0), which may be chance." in say(models)[2]
    )
    models["b"] = result(fall=(0.0, 0.0, 0.0))
    assert say(models)[2].endswith("for a; for b it is the same.")


def test_word_classes_and_sources() -> None:
    low, high = result(sv=(0.5, 0.45, 0.55)), result(sv=(0.7, 0.66, 0.75))
    whole = result() | {"by_group": {"word_class": {"noun": high, "verb": low}}}
    sentence = "Seeds with replaced verbs are harder than those with replaced nouns: SV@90 is "
    assert f"{sentence}lower by 20.0 points." in say({"a": whole})
    assert f"{sentence}lower by 20.0 points." in say({"a": whole, "b": whole})
    mixed = whole | {"by_group": {"word_class": {"noun": low, "verb": high}}}
    assert not any("harder" in item for item in say({"a": whole, "b": mixed}))
    few = whole | {"by_group": {"word_class": {"noun": high, "verb": low | {"n_seeds": 12}}}}
    assert not any("harder" in item for item in say({"a": few}))

    configs = ("snli_nouns", "mnli-m_nouns", "mnli-m_verbs")
    evidence, _ = _evidence(["a", "b"], [(high, high), (low, low), (low, None)], configs)
    assert overall_findings(evidence) == [
        "mnli-m_nouns is harder than snli_nouns: SV@90 of each of 2 models is lower by 20.0 "
        "points or more."
    ]
    evidence, _ = _evidence(["a", "b"], [(high, low), (low, high)], configs[:2])
    assert overall_findings(evidence) == []


def test_replacements_and_paraphrases() -> None:
    base = {"config": "snli_nouns", "n_seeds": 80}
    rows = (
        {**base, "model": "a"},
        {**base, "model": "a", "difference": -0.12, "difference_ci": [-0.2, -0.04]},
        {**base, "model": "b", "difference": -0.02, "difference_ci": [-0.1, 0.06]},
        {**base, "model": "c", "difference": 0.08, "difference_ci": [0.01, 0.1], "n_seeds": 29},
    )
    classes = (Table("", "", (), ()), Table("shared-seeds", "", (), rows))
    evidence, _ = _evidence(["a"], [(result(),)], classes=classes)
    assert overall_findings(evidence) == [
        "On the seeds that have both, SV@90 is lower with paraphrases than with replaced words by "
        "12.0 points (a; snli_nouns)."
    ]


@pytest.fixture(scope="module")
def flips(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Two models on 40 seeds with replacements and paraphrases; one fails on two variants."""
    place = tmp_path_factory.mktemp("flips")
    made = paraphrased(problems(40))
    folder = made.write(place / "merge-nli")
    rows = made.predictions(2.0, "all right")
    files = [write_predictions(place / "good.parquet", rows, {"name": "good"})]
    wrong = {row["variant_id"] for row in made.variants if _is_flipped(row)}
    assert len(wrong) == 2
    for row in rows:
        if row["variant_id"] in wrong:
            row["prediction"] = 2 - row["label"]
            row["probabilities"] = [0.8 if i == row["prediction"] else 0.1 for i in range(3)]
    files.append(write_predictions(place / "bad.parquet", rows, {"name": "bad"}))
    return gather_evidence([str(file) for file in files], folder, n_bootstrap=20)


def _is_flipped(row: Mapping[str, Any]) -> bool:
    return (row["seed_id"], row["replacement"]) in {("snli:p002", "dog"), ("snli:p005", "waits")}


def test_example_is_a_flip_of_the_least_steady_model(flips: Evidence) -> None:
    configuration = next(item for item in flips.configurations if item.name == "snli")
    example = flipped_example(flips, configuration)
    assert example is not None
    assert (example["model"], example["others"]) == ("bad", ["good"])
    rows = flips.sources[0].read(["seed_id", "original", "replacement", *NLI.fields]).to_pylist()
    (row,) = (r for r in rows if _is_flipped(r) and r["seed_id"] == example["seed_id"])
    assert example["variant"] == (row["premise"], row["hypothesis"])
    assert example["gold"] != example["answer"]
    for text, marks in zip(example["seed"], example["seed_marks"], strict=True):
        assert {text[slice(*span)] for span in marks} == {row["original"]}
    for text, marks in zip(example["variant"], example["variant_marks"], strict=True):
        assert {text[slice(*span)] for span in marks} == {row["replacement"]}


def test_example_is_the_best_variant(flips: Evidence) -> None:
    """The example has the best quality, or log-odds if it is unknown: the model is at fault."""
    configuration = next(item for item in flips.configurations if item.name == "snli")
    (source, *_) = flips.sources
    columns = ["seed_id", "replacement", "premise", "log_odds"]
    flipped = [row for row in source.read(columns).to_pylist() if _is_flipped(row)]
    best = max(flipped, key=lambda row: row["log_odds"])
    assert len({row["log_odds"] for row in flipped}) == 2
    example = flipped_example(flips, configuration)
    assert example is not None
    assert example["variant"][0] == best["premise"]

    # With qualities that reverse the order.
    judged = f"(SELECT * REPLACE (-log_odds::DOUBLE AS quality) FROM {source.problems})"
    turned = replace(flips, sources=(replace(source, problems=judged),))
    example = flipped_example(turned, configuration)
    assert example is not None
    assert example["variant"][0] != best["premise"]


def test_what_is_said_of_files(flips: Evidence) -> None:
    for configuration in flips.configurations:
        for sentence in findings(flips, configuration):
            assert sentence.endswith(".")
            assert not re.search(r"\d\.\d\d", sentence)
    usual = findings(flips, flips.configurations[0])
    metadata = {"truncated": 9, "distinct_pairs": 30, "max_tokens": 8}
    cut = replace(flips, models=(replace(flips.models[0], description=metadata), *flips.models[1:]))
    (doubt,) = doubts(cut, cut.configurations[0])
    assert doubt.startswith(f"{flips.models[0].name}: warning: 9 of 30 pairs (30 %) were cut to 8")
    assert findings(cut, cut.configurations[0]) == usual
    headline = render_html(cut).partition('<p class="finding">')[2]
    assert headline.startswith(str(escape(" ".join(usual[:2]))))
    assert f'<p class="note">{escape(doubt)}</p>' in headline
