"""Signals of replacements against slow oracles, and builds that filter by them."""

import math
import random
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers.dataset_files import read_rows as rows_in
from helpers.fit_quality import (
    BEFORE,
    CHANGES,
    CHOSEN,
    aucs,
    calibration_error,
    interval,
    out_of_fold,
    read_judged,
    tables,
)
from helpers.judged import JUDGED
from helpers.reference import tag
from helpers.tiny_models import save
from sklearn.metrics import brier_score_loss
from transformers import AutoModelForMaskedLM, AutoTokenizer
from wordfreq import word_frequency

from generation import Config, build, generate
from generation.config import BUNDLED_MLM, bundled_path
from generation.problems import on_disk as blocks
from generation.records import Sentence, replacement_schema
from generation.run_folder import RunFolder
from generation.run_summary import render_funnel, summarise
from generation.variants import grammar
from generation.variants.reasons import KEPT, NO_REASON, REASONS, Reason, first_reasons
from generation.variants.signal_columns import (
    FAULTS,
    LEAST_CHANGE,
    LEAST_NEIGHBOUR_CHANGE,
    quality,
    shipped,
    zipf_frequencies,
)
from merge_dataset.checks import check_dataset
from merge_dataset.export import export_dataset
from merge_dataset.files import read_json
from merge_dataset.schema import NLI
from merge_dataset.settings import from_mapping

LIMIT = 10
Row = dict[str, Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run on bundled problems with two masked LMs, one a noisy copy of the other."""
    folder = tmp_path_factory.mktemp("signals") / "run"
    mlms = ("bert-tiny-mlm", str(noisy_model(folder.parent / "noisy")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", 3)
        settings = {"run": str(folder), "limit": LIMIT, "mlms": mlms, "with_columns": ()}
        return generate(Config.from_recipe("demo", **settings))


def noisy_model(folder: Path) -> Path:
    """Copy the bundled masked LM with slightly different weights."""
    bundled = bundled_path(f"demo/{BUNDLED_MLM}")
    model = AutoModelForMaskedLM.from_pretrained(bundled)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    save(model, AutoTokenizer.from_pretrained(bundled), folder)
    return folder


@pytest.fixture(scope="module")
def rows(run: RunFolder) -> list[Row]:
    return rows_in(run.replacements)


@pytest.fixture(scope="module")
def problems(run: RunFolder) -> dict[str, Row]:
    return {row["seed_id"]: row for row in rows_in(run.problems)}


FORMS = {"VB": "plain", "VBP": "plain", "VBZ": "-s", "VBD": "past", "VBN": "part", "VBG": "-ing"}


@cache
def article_of(word: str) -> str:
    import inflect  # which takes two seconds

    return str(inflect.engine().a(word.lower()).split()[0])


def expected(row: Row, problem: Mapping[str, str]) -> Row:
    """Compute a replacement's signals from both sentences, tagged as wholes."""
    numbers, forms, articles = [], [], []
    for text in (problem["premise"], problem["hypothesis"]):
        places = [n for n, token in enumerate(tag(text)) if token.text == row["word"]]
        changed = text
        for token in reversed([tag(text)[n] for n in places]):
            start, end = token.span
            changed = changed[:start] + row["replacement"] + changed[end:]
        assert len(tag(changed)) == len(tag(text))
        for n in places:
            old, new = tag(text)[n].tag, tag(changed)[n].tag
            if old in ("NN", "NNS"):
                numbers.append(old != new)
            if old in FORMS:
                forms.append(FORMS[old] != FORMS[new])
            before = tag(text)[n - 1]
            if n and before.tag == "DT" and before.text.lower() in ("a", "an"):
                articles.append(before.text.lower() == article_of(row["replacement"]))
    return {
        "mlm_count": len({*row["premise_mlms"], *row["hypothesis_mlms"]}),
        "zipf_frequency": pytest.approx(
            max(0, 9 + np.log10(word_frequency(row["replacement"], "en") or 1e-9)), abs=0.006
        ),
        "number_changed": any(numbers) if numbers else None,
        "tense_changed": any(forms) if forms else None,
        "article_fits": all(articles) if articles else None,
    }


@pytest.mark.parametrize("every", [15, pytest.param(5, marks=pytest.mark.slow)])
def test_signals_are_those_of_whole_sentences(
    rows: list[Row], problems: dict[str, Row], every: int
) -> None:
    seen: dict[str, Counter[Any]] = {}
    for row in rows[::every]:
        wanted = expected(row, problems[row["seed_id"]])
        assert {name: row[name] for name in wanted} == wanted, row
        assert row["premise_pll_change"] is row["hypothesis_pll_change"] is None
        for name in wanted:
            seen.setdefault(name, Counter())[row[name]] += 1
    for name in ("number_changed", "tense_changed", "article_fits"):
        assert seen[name].keys() == {True, False, None}
    assert seen["mlm_count"].keys() == {1, 2}


def test_variants_have_the_signals_of_their_replacements(run: RunFolder, rows: list[Row]) -> None:
    key = ("seed_id", "word_class", "word", "replacement")
    signals = replacement_schema().names[7:]
    assert signals[0] == "log_odds"
    of_key = {tuple(row[name] for name in key): row for row in rows}
    for variant in rows_in(run.variants):
        row = of_key[tuple(variant[{"word": "original"}.get(n, n)] for n in key)]
        assert {name: variant[name] for name in signals} == {name: row[name] for name in signals}
    assert all(row[name] is None for row in rows_in(run.seeds) for name in signals)
    export_dataset(run.path, run.path.parent / "dataset")
    assert check_dataset(run.path.parent / "dataset") == []


@pytest.mark.slow
def test_without_the_class_filter_tags_are_not_known(run: RunFolder) -> None:
    """D13: without tags, number and form are unknown; other signals are known."""
    for row in rows_in(build(run.path, ablation="none").replacements)[::50]:
        assert row["number_changed"] is row["tense_changed"] is None
        assert row["zipf_frequency"] is not None
        assert row["mlm_count"] > 0


@pytest.mark.slow
def test_letters_that_are_shuffled(run: RunFolder, rows: list[Row]) -> None:
    """D13: scrambled words agree with nothing, keep their masked LMs, and have own frequencies."""
    scrambled = rows_in(build(run.path, ablation="scrambled").replacements)
    assert len(scrambled) <= len(rows)
    for row in scrambled:
        assert row["number_changed"] is row["tense_changed"] is row["article_fits"] is None
    of_seed = {(row["seed_id"], row["word"], "".join(sorted(row["replacement"]))) for row in rows}
    for row in scrambled[::20]:
        letters = "".join(sorted(row["replacement"]))
        assert (row["seed_id"], row["word"], letters) in of_seed
        (frequency,) = zipf_frequencies(pa.chunked_array([[row["replacement"]]])).to_pylist()
        assert row["zipf_frequency"] == frequency


LIMITS: dict[str, Any] = {
    "min_log_odds": 1.0, "min_mlms": 2, "min_zipf_frequency": 4.5, "same_number": True,
    "same_tense": True, "fitting_article": True,
}  # fmt: skip

MORE_LIMITS: dict[str, Any] = {
    "attested_form": True, "agreeing_number": True, "fitting_determiner": True,
    "no_compounds": True, "min_quality": 0.5,
}  # fmt: skip
"""Limits on optional columns."""

ROWS = replacement_schema(NLI.with_optional(Config(**MORE_LIMITS).optional_columns))


def reason(row: Row, limits: Mapping[str, Any]) -> str | None:
    """Return the first limit that rejects a row, question by question."""
    if row["log_odds"] < limits.get("min_log_odds", -1e9):
        return "low_log_odds"
    if row["mlm_count"] < limits.get("min_mlms", 0):
        return "few_mlms"
    if row["zipf_frequency"] < limits.get("min_zipf_frequency", 0):
        return "rare_word"
    changes = (row["premise_pll_change"], row["hypothesis_pll_change"])
    if any(x is not None and x < limits.get("min_pll_change", -1e9) for x in changes):
        return "less_likely_sentence"
    for limit, column, wrong, name in (
        ("same_number", "number_changed", True, "other_number"),
        ("same_tense", "tense_changed", True, "other_tense"),
        ("fitting_article", "article_fits", False, "other_article"),
        ("attested_form", "form_attested", False, "unattested_form"),
        ("agreeing_number", "number_agrees", False, "other_agreement"),
        ("fitting_determiner", "determiner_fits", False, "other_determiner"),
        ("no_compounds", "in_compound", True, "in_compound"),
    ):
        if limits.get(limit) and row[column] is wrong:
            return name
    quality = row.get("quality")
    if quality is not None and quality < limits.get("min_quality", 0):
        return "low_quality"
    return None


OF_JUDGES = {Reason.NOT_JUDGED, Reason.POORLY_JUDGED}
"""Reasons of a language model's judgements, which have tests of their own."""
YES_OR_NO = ("number_changed", "tense_changed", "article_fits", "form_attested", "number_agrees",
             "determiner_fits", "in_compound")  # fmt: skip


def random_rows(rng: random.Random) -> Iterator[Row]:
    """Yield rows with values on both sides of the limits, at them, and unknown."""
    for number in range(400):
        yield {
            "seed_id": str(number),
            "word_class": ("noun", "verb", "adjective")[number % 3],
            "log_odds": rng.choice([0.5, 1.0, 1.5]),
            "mlm_count": rng.randint(1, 3),
            "zipf_frequency": rng.choice([4.25, 4.5, 5.0]),
            "premise_pll_change": rng.choice([None, -2.0, 0.0]),
            "hypothesis_pll_change": rng.choice([None, -1.0, 1.0]),
            **{name: rng.choice([None, True, False]) for name in YES_OR_NO},
            "quality": rng.choice([None, 0.25, 0.5, 0.75]),
        }  # fmt: skip


def first_signal_reasons(rows: pa.Table, config: Config) -> Any:
    return first_reasons(np.ones(len(rows), np.bool_), ("signals",), rows, config)


@pytest.mark.parametrize("name", [None, "min_pll_change", *LIMITS, *MORE_LIMITS])
def test_rejections_row_by_row(name: str | None) -> None:
    every = LIMITS | MORE_LIMITS | {"min_pll_change": -1.0}
    limits = every if name is None else {name: every[name]}
    given = list(random_rows(random.Random(4)))
    table = pa.Table.from_pylist(given, schema=ROWS)
    numbers = first_signal_reasons(table, Config(**limits)).tolist()
    result = [None if number == NO_REASON else REASONS[number] for number in numbers]
    assert result == [reason(row, limits) for row in given]
    assert (
        set(result) - {None} == {*Reason.of_steps("signals")} - OF_JUDGES
        if name is None
        else len(set(result)) == 2
    )


def test_what_equals_a_limit_passes() -> None:
    """Values at a limit pass, also if it is no float32, as columns are: 3.1 and 0.7 round down."""
    limits = {"min_log_odds": 0.7, "min_zipf_frequency": 3.1, "min_pll_change": -2.3}
    row = {"log_odds": 0.7, "mlm_count": 1, "zipf_frequency": 3.1, "premise_pll_change": -2.3}
    below = [row | {name: row[name] - 1e-4} for name in row if name != "mlm_count"]
    table = pa.Table.from_pylist([row, *below], schema=replacement_schema())
    assert (first_signal_reasons(table, Config(**limits)) < 0).tolist() == [
        True,
        False,
        False,
        False,
    ]
    table = pa.Table.from_pylist(list(random_rows(random.Random(5))), schema=ROWS)
    assert (first_signal_reasons(table, Config()) < 0).all()
    assert first_signal_reasons(table.slice(0, 0), Config(**LIMITS)).tolist() == []


@pytest.mark.slow
def test_a_build_that_filters(run: RunFolder, rows: list[Row]) -> None:
    strict = build(run.path, into="strict", min_replacements=5, **LIMITS)
    reasons = [reason(row, LIMITS) for row in rows]
    assert rows_in(strict.replacements) == [
        row for row, why in zip(rows, reasons, strict=True) if why is None
    ]
    before, after = (read_json(folder.manifest) for folder in (run, strict))
    for old, new in zip(before["funnel"], after["funnel"], strict=True):
        ended = {name: n for name, n in new.items() if name in {*Reason.of_steps("signals"), KEPT}}
        assert sum(ended.values()) == old[KEPT]
        unchanged = old.keys() - {KEPT, "replacements"}
        assert {name: new[name] for name in unchanged} == {name: old[name] for name in unchanged}
        # One suggestion per occurrence, in each text where the model validated it.
        mine = [
            (row, why)
            for row, why in zip(rows, reasons, strict=True)
            if row["word_class"] == old["word_class"]
        ]
        texts = {row["seed_id"]: row for row in rows_in(run.problems)}
        counted: Counter[str] = Counter()
        for row, why in mine:
            for side in ("premise", "hypothesis"):
                if old["mlm"] in row[f"{side}_mlms"]:
                    words = [token.text for token in tag(texts[row["seed_id"]][side])]
                    counted[why or KEPT] += words.count(row["word"])
        assert {name: n for name, n in ended.items() if n} == dict(counted)
    assert not {*Reason.of_steps("signals")} & before["funnel"][0].keys()
    assert {name: after["config"][name] for name in LIMITS} == LIMITS
    assert not LIMITS.keys() & before["config"].keys()
    text = render_funnel(after["funnel"])
    assert "rare word" in text
    assert "less likely sentence" not in text


@pytest.mark.slow
def test_a_build_with_optional_columns(run: RunFolder, rows: list[Row], tmp_path: Path) -> None:
    names = ("form_attested", "number_agrees", "determiner_fits", "in_compound")
    asked = build(run.path, into="asked", min_replacements=5, with_columns=names)
    result = rows_in(asked.replacements)
    assert [{k: v for k, v in row.items() if k not in names} for row in result] == rows
    sentences = {row["seed_id"]: row for row in rows_in(run.problems)}
    for row in result[::7]:
        answers: dict[str, list[bool]] = {name: [] for name in names}
        for side in ("premise", "hypothesis"):
            tokens = tuple(tag(sentences[row["seed_id"]][side]))
            sentence = Sentence(sentences[row["seed_id"]][side], tokens)
            for position, token in enumerate(tokens):
                if token.text != row["word"]:
                    continue
                at = sentence, position, row["replacement"]
                for name, answer in {
                    "form_attested": grammar.form_attested(*at),
                    "number_agrees": grammar.number_agrees(*at),
                    "determiner_fits": grammar.determiner_fits(*at),
                    "in_compound": grammar.in_compound(*at[:2]),
                }.items():
                    answers[name] += [] if answer is None else [answer]
        for name, known in answers.items():
            together = any if name == "in_compound" else all
            expected = together(known) if known else None
            assert row[name] == expected, (row, name)
    assert any(row["form_attested"] is False for row in result)
    limited = build(run.path, into="limited", min_replacements=5, attested_form=True)
    kept = [row for row in result if row["form_attested"] is not False]
    got = rows_in(limited.replacements)
    assert [row["replacement"] for row in got] == [row["replacement"] for row in kept]
    assert {"form_attested"} == got[0].keys() - rows[0].keys()
    export_dataset(asked.path, tmp_path / "data")
    assert check_dataset(tmp_path / "data") == []


OF_MLMS = ("mean_rank", "neighbour_change")
NAMES = ("word_class", "zipf_frequency", *OF_MLMS, *FAULTS, *CHANGES)


def rows_of_all_kinds(number: int) -> list[Row]:
    """Random rows with all possible kinds of values."""
    rng = random.Random(number)
    return [
        {
            "word_class": rng.choice(["noun", "verb", "adjective", "adverb"]),
            "zipf_frequency": round(rng.uniform(0, 7), 2),
            "mean_rank": round(rng.uniform(1, 201), 2),
            "neighbour_change": rng.choice([None, -9.0, round(rng.uniform(-5, 1), 3)]),
            **{name: rng.choice([True, False, None]) for name in FAULTS},
            CHANGES[0]: rng.choice([None, -80.0, round(rng.uniform(-20, 5), 3)]),
            CHANGES[1]: rng.choice([None, round(rng.uniform(-20, 5), 3)]),
        }
        for _ in range(300)
    ]


def estimated(rows: list[Row], changes: tuple[str, ...] = CHANGES) -> list[float | None]:
    """Compute the column `quality` of some rows."""
    types = {"word_class": pa.string()} | dict.fromkeys(FAULTS, pa.bool_())
    columns = {n: pa.array([row[n] for row in rows], types.get(n, pa.float32())) for n in NAMES}
    result: list[float | None] = quality(lambda name: columns[name], changes).to_pylist()
    return result


def plainly(row: Row, *, is_causal: bool) -> float:
    """Compute 1 / (1 + e^-z), feature by feature, from the values of the file."""
    there = [row[name] for name in CHANGES if row[name] is not None] if is_causal else []
    has_neighbours = row["neighbour_change"] is not None
    chosen = shipped()["likelihood" if there else "neighbours" if has_neighbours else "grammar"]
    z = chosen["intercept"]
    for name, feature in chosen["features"].items():
        if name == "least_change":
            value = min(max(min(there), LEAST_CHANGE), 0.0)
        elif name == "log_rank":
            value = np.log(np.float64(np.float32(row["mean_rank"])))
        elif name == "neighbour_change":
            value = min(max(np.float32(row[name]), LEAST_NEIGHBOUR_CHANGE), 0.0)
        elif name == "zipf_frequency":
            value = np.float32(row[name])
        elif name in FAULTS:
            value = 1 if row[name] is not None and row[name] is FAULTS[name] else 0
        else:
            value = 1 if f"is_{row['word_class']}" == name else 0
        z += feature["coefficient"] * (value - feature["mean"]) / feature["deviation"]
    return 1 / (1 + math.exp(-z))


@pytest.mark.parametrize("is_causal", [True, False])
def test_formula_row_by_row(is_causal: bool) -> None:
    rows = rows_of_all_kinds(3)
    result = estimated(rows, CHANGES if is_causal else ())
    wanted = [plainly(row, is_causal=is_causal) for row in rows]
    assert result == pytest.approx(wanted, abs=1e-6)
    assert len(set(result)) > 100


def test_shipped_coefficients_are_those_of_the_judged_variants() -> None:
    expected, there = tables(read_judged(*JUDGED)), shipped()
    assert there["fitted"].items() >= expected["fitted"].items()
    for name, chosen in CHOSEN.items():
        again, kept = expected[name]["features"], there[name]["features"]
        assert tuple(kept) == tuple(again) == chosen
        for feature, values in kept.items():
            assert values == pytest.approx(again[feature], abs=1e-5)
        assert there[name]["intercept"] == pytest.approx(expected[name]["intercept"], abs=1e-5)


def test_classes_may_have_limits_of_their_own() -> None:
    config = Config(min_quality=0.6, class_quality={"verb": "0.45"})
    assert from_mapping(Config, tomllib.loads(config.to_toml())) == config
    rows = pa.table(
        {"word_class": ["verb", "noun"] * 3, "quality": pa.array([0.5, 0.5, 0.4, 0.7, None, None])}
    )
    dropped = Reason.LOW_QUALITY.drops(np.ones(6, np.bool_), rows, config)
    assert dropped.tolist() == [False, True, True, False, False, False]
    for given, message in (
        ({"noums": "0.4"}, "did you mean 'noun'"),
        ({"noun": "5"}, "probabilities from 0 to 1, got 5"),
    ):
        with pytest.raises(ValueError, match=f"class_quality: .*{message}"):
            Config(min_quality=0.6, class_quality=given)
    with pytest.raises(ValueError, match="class_quality: expected min_quality"):
        Config(class_quality={"noun": "0.5"})


@pytest.mark.slow
def test_a_build_says_which_limit_keeps_half_of_a_class(tmp_path: Path) -> None:
    demo = Config.from_recipe("demo", limit=24, run=str(tmp_path / "run"), min_replacements=5)
    run = generate(demo)
    made: dict[tuple[str, str], list[float]] = {}
    for row in pq.read_table(run.replacements).to_pylist():
        made.setdefault((row["word_class"], row["seed_id"]), []).append(row["quality"])
    nouns = sorted((sorted(own)[-5] for (of, _), own in made.items() if of == "noun" and own[4:]))
    limit = float(np.nextafter(np.float32(nouns[-2]), np.float32(1)))  # leaves one seed
    strict = build(run.path, into="strict", min_quality=limit)
    (few,) = [row for row in read_json(strict.manifest)["thinned"] if row["word_class"] == "noun"]
    assert (few["without_limit"], few["seeds"]) == (len(nouns), 1)
    own = {"noun": str(few["half_at"])}
    again = build(run.path, into="again", min_quality=limit, class_quality=own)
    assert 2 * read_json(again.manifest)["eligible"]["noun"] >= len(nouns)
    assert "noun" not in {row["word_class"] for row in read_json(again.manifest).get("thinned", ())}
    configs = export_dataset(again.path, tmp_path / "again")
    assert check_dataset(tmp_path / "again") == []
    export_dataset(strict.path, tmp_path / "strict")
    text = summarise(strict.path, tmp_path / "strict", configs[:1])
    assert f"1 of {len(nouns)} seeds have enough nouns of that quality; half of them would" in text


@pytest.mark.slow
def test_it_tells_good_from_bad_out_of_fold() -> None:
    judged = read_judged(*JUDGED)
    plain, good = out_of_fold(judged, BEFORE, repeats=3)
    result = {name: out_of_fold(judged, chosen, repeats=3)[0] for name, chosen in CHOSEN.items()}
    for value in result.values():
        assert brier_score_loss(good, value) < good.mean() * (1 - good.mean())
        assert calibration_error(value, good) < 0.1
        assert interval(value, good, plain)[0] > 0
    both, _ = out_of_fold(judged, (*CHOSEN["likelihood"], "neighbour_change"), repeats=3)
    assert interval(both, good, result["likelihood"])[0] < 0
    assert interval(result["likelihood"], good, result["grammar"])[0] > 0
    kept = shipped()["fitted"]["auc"]
    for name, numbers in aucs(JUDGED).items():
        assert kept[name] == pytest.approx(numbers, abs=0.002), name
