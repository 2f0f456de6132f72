"""Findings of a report: sentences on its figures that intervals support.

A comparison is stated only where an interval or a corrected test supports it, and never for fewer
than `FEW_SEEDS` seeds. A difference that is not stated is not shown to be absent.
"""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any, Final

import jinja2
import numpy as np

from merge_dataset.provenance import note_of
from merge_dataset.schema import NLI, PARAPHRASE, WORD_CLASSES, parse_config_name
from merge_dataset.show import spans_in_seed
from merge_metric.compare import ALPHA, Comparison
from merge_metric.frame.plausibility import doubts_of_model
from merge_metric.report.evidence import TEXTS, Configuration, Evidence, Result, joined
from merge_metric.report.sections import RELAXED, SEED, cell, interval_text, number
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, FEW_SEEDS, Estimate, Figure, sv_at
from merge_metric.seed_variant_accuracy.options import check_opposites
from merge_metric.tables import is_few

_SV: Final = sv_at(90)


def _say(name: str, **values: Any) -> str:
    """Fill in the template of a sentence of `texts.toml`."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    environment.filters["number"] = environment.globals["number"] = number
    text = environment.from_string(TEXTS["findings"][name]).render(values)
    return " ".join(text.split())


# --- Sentences about one configuration ---


def findings(evidence: Evidence, configuration: Configuration) -> list[str]:
    """Write sentences on the models' figures on a configuration."""
    pairs = zip(evidence.names, configuration.results, strict=True)
    scored = {name: result for name, result in pairs if result}
    n = min(int(result["n_seeds"]) for result in scored.values())
    if n < FEW_SEEDS:
        return [_say("few_seeds", n=n, least=FEW_SEEDS)]
    comparison = configuration.comparison
    sentences = (
        _spread(SEED, scored, comparison),
        _spread(RELAXED, scored, comparison),
        _of_bad_variants(evidence, configuration),
        _falling(scored),
        _reordered(scored, comparison),
        _hardest_class(configuration),
    )
    return [*filter(None, sentences)]


def doubts(evidence: Evidence, configuration: Configuration) -> list[str]:
    """Write warnings of data of a trial, and of models whose figures are doubtful."""
    made = evidence.provenance.get(configuration.collection, {})
    return [*filter(None, [note_of(made, "try")])] + [
        f"{model.name}: warning: {sentence}"
        for model, result in zip(evidence.models, configuration.results, strict=True)
        if result
        for sentence in doubts_of_model(model.description)
    ]


def _spread(figure: Figure, scored: Mapping[str, Result], comparison: Comparison | None) -> str:
    """Say how many seeds models answer right, or of how many of these they change the answer."""
    values = {
        name: cell(result, figure)
        for name, result in scored.items()
        if figure == SEED or result["seed_accuracy"] * result["n_seeds"] >= FEW_SEEDS
    }
    if not values:
        return ""
    most, least = _extremes(values)
    pairs = comparison.pairs.rows if comparison else ()
    pair = next((row for row in pairs if {row["a"], row["b"]} == {most, least}), None)
    bounds = sorted(100 * bound for bound in (pair and pair[f"{figure.key}_ci"]) or ())
    if pair and pair["a"] != most:
        bounds = [-bound for bound in reversed(bounds)]
    is_apart = bool(bounds) and not bounds[0] <= 0 <= bounds[1]
    if pair and figure == SEED:
        is_apart = pair["mcnemar_p_value_holm"] <= ALPHA
    shares = _percents({name: value.value or 0.0 for name, value in values.items()})
    return _say(
        figure.key,
        most=most,
        least=least,
        shares=shares,
        ranked=sorted(values, key=lambda name: -(values[name].value or 0.0)),
        apart=is_apart,
        compared=pair,
        n_seeds=min(int(result["n_seeds"]) for result in scored.values()),
        n_models=len(scored),
        bounds=_bounds(values[most], "" if figure == SEED else " %"),
        of_difference=bounds,
        equal=number(values[least].value) == number(values[most].value),
    )


def _of_bad_variants(evidence: Evidence, configuration: Configuration) -> str:
    """Say how much less often the model for which it matters most changes on good variants."""
    key = "relaxed_fooling_rate"
    rows = [
        row
        for table in evidence.validity
        for row in table.rows
        if row["config"] == configuration.name
        and row.get(f"{key}_difference") is not None
        and row["n_seeds"] >= FEW_SEEDS
    ]
    if not rows:
        return ""
    row = min(rows, key=lambda row: row[f"{key}_difference"])
    return _say(
        "good",
        points=-100 * row[f"{key}_difference"],
        bounds=[-100 * bound for bound in reversed(row[f"{key}_difference_ci"])],
        good=number(100 * row[key]),
        all=number(100 * row["changed_on_all"]),
        whom=f" for {row['model']}, and less for others" if len(rows) > 1 else "",
    )


def _percents(values: Mapping[str, float]) -> dict[str, str]:
    """Write percentages alike: whole ones, unless these would hide a difference.

    >>> _percents({"a": 52.04, "b": 9.1}), _percents({"a": 52.04, "b": 52.3})
    ({'a': '52', 'b': '9'}, {'a': '52.0', 'b': '52.3'})
    """
    shown = {name: number(value) for name, value in values.items()}
    whole = {name: f"{value:.0f}" for name, value in values.items()}
    is_all = any(text in ("0", "100") and float(text) != values[n] for n, text in whole.items())
    return shown if is_all or len({*whole.values()}) < len({*shown.values()}) else whole


def _falling(scored: Mapping[str, Result]) -> str:
    """Say how far accuracy falls if 90 % of a seed's variants must be right too."""
    falls = {name: cell(result, CATALOGUE["qt_gap"]) for name, result in scored.items()}
    sure = {name: fall for name, fall in falls.items() if fall.low is not None and fall.low > 0}
    if not sure:
        return ""
    most, least = _extremes(sure)
    return _say(
        "falling",
        falls=falls,
        most=most,
        least=least,
        bounds=_bounds(sure[most]),
        n_sure=len(sure),
        rest=[name for name in scored if name not in sure],
    )


def _reordered(scored: Mapping[str, Result], comparison: Comparison | None) -> str:
    pairs = [
        pair
        for pair in (comparison.pairs.rows if comparison else ())
        if not pair["tie"] and pair["mcnemar_p_value_holm"] > ALPHA
    ]
    if not pairs:
        return ""
    pair = max(pairs, key=lambda row: row["seed_variant_accuracy"])
    values = {side: cell(scored[pair[side]], _SV).value for side in "ab"}
    return _say("reordered", a=pair["a"], b=pair["b"], values=values, n=len(pairs))


def _hardest_class(configuration: Configuration) -> str:
    results = {
        part.title: [
            r for r, of_all in zip(part.results, configuration.results, strict=True) if of_all
        ]
        for part in configuration.parts("word_class")
    }
    if any(not r or is_few(r["n_seeds"]) for part in results.values() for r in part):
        return ""
    if not (hardest := _hardest(results)):
        return ""
    low, high, gaps = hardest
    return _say("hardest_class", low=low, high=high, points=_range(gaps))


def _hardest(results: Mapping[str, Sequence[Result | None]]) -> tuple[str, str, list[float]] | None:
    """Find two kinds of data with disjoint SV@90 for every model: the harder, the easier, gaps."""
    apart = []
    for low, high in permutations(results, 2):
        pairs = [
            (cell(x, _SV), cell(y, _SV))
            for x, y in zip(results[low], results[high], strict=True)
            if x and y and not (is_few(x["n_seeds"]) or is_few(y["n_seeds"]))
        ]
        if pairs and all(
            x.high is not None and y.low is not None and x.high < y.low for x, y in pairs
        ):
            gaps = [(y.value or 0.0) - (x.value or 0.0) for x, y in pairs]
            apart.append((min(gaps), low, high, gaps))
    return max(apart)[1:] if apart else None


# --- Sentences about several configurations ---


def overall_findings(evidence: Evidence) -> list[str]:
    """Write sentences that compare sources, and replacements with paraphrases."""
    sentences = []
    kinds: dict[str | None, dict[str, Sequence[Result | None]]] = {}
    for of in evidence.configurations:
        kinds.setdefault(parse_config_name(of.name)[1], {})[of.name] = of.results
    for low, high, gaps in filter(None, map(_hardest, kinds.values())):
        sentences.append(_say("sources", low=low, high=high, gaps=gaps))
    for table in evidence.contrasts:
        rows = [r for r in table.rows if r.get("difference_ci") and r["n_seeds"] >= FEW_SEEDS]
        for word, sign in (("lower", -1), ("higher", 1)):
            if sure := [r for r in rows if min(sign * b for b in r["difference_ci"]) > 0]:
                points = _range([100 * abs(row["difference"]) for row in sure])
                models, config = joined([row["model"] for row in sure]), table.rows[0]["config"]
                named = {"word": word, "points": points, "models": models, "config": config}
                sentences.append(_say("paraphrases", **named))
    return sentences


# --- The example ---


def flipped_example(evidence: Evidence, configuration: Configuration) -> dict[str, Any] | None:
    """Choose a seed that the least robust model answers right, and a variant that it does not.

    Among the variants shown, the best by quality, else by log-odds, comes first, so that its label
    is least in doubt. Ties go to an answer opposite to the gold label, then to most other models
    right, then to the shortest texts.
    """
    (source,) = (of for of in evidence.sources if of.source == configuration.source)
    rates = {
        model: cell(result, RELAXED).value or 0.0
        for model, result in enumerate(configuration.results)
        if result
    }
    wanted = parse_config_name(configuration.name)[1]
    codes = [
        code
        for code, name in enumerate(source.word_classes)
        if (name != PARAPHRASE if wanted is None else name == wanted)
    ]
    variants = np.flatnonzero(np.isin(source.word_class, codes))
    seeds = source.seed[variants]
    gold = source.gold[seeds]
    given, own = source.answers[:, variants], source.own[:, seeds]
    flips = (own == gold) & (given != gold) & (given >= 0)
    order = sorted(rates, key=lambda model: -rates[model])
    if (model := next((model for model in order if flips[model].any()), None)) is None:
        return None
    both_right = (given == gold) & (own == gold)
    labels, chosen = evidence.labels, np.flatnonzero(flips[model])
    opposites = {frozenset(pair) for pair in check_opposites(None, tuple(labels))}
    columns = ("quality", "log_odds", "variant_id", "word_class", "original", "replacement")
    rows = source.read([*columns, *NLI.fields, *NLI.spans], variants[chosen]).to_pylist()

    def rank(item: tuple[int, Mapping[str, Any]]) -> tuple[Any, ...]:
        place, row = item
        # Unknown signals come after all others.
        signals = (np.inf if row[key] is None else -row[key] for key in ("quality", "log_odds"))
        pair = frozenset((labels[gold[place]], labels[given[model, place]]))
        length = len(row["premise"]) + len(row["hypothesis"])
        n_others = int(both_right[:, place].sum())
        return *signals, pair not in opposites, -n_others, length, row["variant_id"], place

    place, row = min(zip(chosen.tolist(), rows, strict=True), key=rank)
    seed: dict[str, Any] = source.seeds.slice(int(seeds[place]), 1).to_pylist()[0]
    marks = [row[name] for name in NLI.spans]
    length = len(row["original"] or "")
    is_word = row["word_class"] in WORD_CLASSES and " " not in (row["replacement"] or " ")
    return {
        "model": evidence.names[model],
        "seed_id": seed["seed_id"],
        "gold": labels[gold[place]],
        "texts": source.texts,
        "seed": tuple(seed[name] for name in NLI.fields),
        "variant": tuple(row[name] for name in NLI.fields),
        "seed_marks": [spans_in_seed(m, [length] * len(m)) if is_word else [] for m in marks],
        "variant_marks": marks,
        "answer": labels[given[model, place]],
        "others": [evidence.names[other] for other in np.flatnonzero(both_right[:, place])],
    }


# --- Support and wording ---


def _extremes(values: Mapping[str, Estimate]) -> tuple[str, str]:
    by_value = {name: value.value or 0.0 for name, value in values.items()}
    return max(by_value, key=by_value.__getitem__), min(by_value, key=by_value.__getitem__)


def _bounds(value: Estimate, unit: str = "") -> str:
    return f" (95 % interval {interval_text(value)}{unit})" if value.has_interval else ""


def _range(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys((number(min(values)), number(max(values)))))
