"""Findings of a report: sentences on its figures that intervals support.

A comparison is stated only where an interval or a corrected test supports it, and never for fewer
than `FEW_SEEDS` seeds. A difference that is not stated is not shown to be absent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Final

import numpy as np

from merge_dataset.provenance import trial_of
from merge_dataset.schema import NLI, PARAPHRASE, WORD_CLASSES, parse_config_name
from merge_dataset.show import spans_in_seed
from merge_metric.compare import ALPHA, Comparison
from merge_metric.frame.plausibility import doubts_of_model
from merge_metric.frame.texts import rows_of
from merge_metric.report.evidence import Configuration, Evidence, Result, joined
from merge_metric.report.seeds import Ints, SourceSeeds
from merge_metric.report.wording import RELAXED, SEED, cell, interval_text, number
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, FEW_SEEDS, Estimate, sv_at
from merge_metric.seed_variant_accuracy.options import check_opposites

_SV: Final = sv_at(90)
_FALL: Final = CATALOGUE["qt_gap"]


@dataclass(frozen=True, slots=True)
class FooledSeed:
    """A seed that a model answers right, and a variant that it answers differently."""

    model: str
    seed_id: str
    gold: str
    texts: tuple[str, str]
    seed: tuple[str, str]
    variant: tuple[str, str]
    seed_marks: tuple[list[list[int]], list[list[int]]]
    """Spans of the replaced words in each text of the seed."""
    variant_marks: tuple[list[list[int]], list[list[int]]]
    answer: str
    """Answer to the variant; the answer to the seed is `gold`."""
    others: tuple[str, ...]
    """Names of the models that answer both right."""


# --- Sentences about one configuration ---


def findings(evidence: Evidence, configuration: Configuration) -> list[str]:
    """Write sentences on the models' figures on a configuration, and on doubtful figures."""
    pairs = zip(evidence.names, configuration.results, strict=True)
    scored = {name: result for name, result in pairs if result}
    made = evidence.provenance.get(configuration.collection, {})
    doubts = [*filter(None, [trial_of(made)])] + [
        f"{model.name}: warning: {sentence}"
        for model in evidence.models
        if model.name in scored
        for sentence in doubts_of_model(model.description)
    ]
    n = min(int(result["n_seeds"]) for result in scored.values())
    if n < FEW_SEEDS:
        few = f"{n} seed{'' if n == 1 else 's'}: too few for a finding, which takes {FEW_SEEDS}."
        return [*doubts, few]
    comparison = configuration.comparison
    sentences = (
        _answering(scored, comparison, n),
        _changing(scored, comparison),
        _falling(scored),
        _reordered(scored, comparison),
        _hardest_class(configuration),
    )
    return [*doubts, *filter(None, sentences)]


def _answering(scored: Mapping[str, Result], comparison: Comparison | None, n_seeds: int) -> str:
    """Say how many seeds the models answer right, and which model is best if certain."""
    values = {name: cell(result, SEED) for name, result in scored.items()}
    texts = {name: number(value.value) for name, value in values.items()}
    if len(scored) == 1:
        ((name, value),) = values.items()
        bounds = f" (95 % interval {interval_text(value)})" if value.has_interval else ""
        return f"{name} answers {texts[name]} % of the {n_seeds:,} seeds right{bounds}."
    who = "Both models" if len(scored) == 2 else f"All {len(scored)} models"
    if len(set(texts.values())) == 1:
        return f"{who} answer {next(iter(texts.values()))} % of the seeds right."
    most, least = _extremes(values)
    pair = _pair(comparison, most, least)
    if pair and pair[0]["mcnemar_p_value_holm"] <= ALPHA:
        if len(scored) == 2:
            return f"{most} answers {texts[most]} % of the seeds right, {least} {texts[least]} %."
        return (
            f"Of {len(scored)} models {most} answers the most seeds right, {texts[most]} %, and "
            f"{least} the fewest, {texts[least]} %."
        )
    shares = f"{texts[least]} to {texts[most]} %"
    if not pair:
        return f"The models answer {shares} of the seeds right."
    return f"{who} answer {shares} of the seeds right{_may_be_chance(pair[0], SEED.key, most)}."


def _changing(scored: Mapping[str, Result], comparison: Comparison | None) -> str:
    """Say for how many of the seeds answered right a model changes its answer."""
    rates = {
        name: cell(result, RELAXED)
        for name, result in scored.items()
        if result["seed_accuracy"] * result["n_seeds"] >= FEW_SEEDS
    }
    if not rates:
        return ""
    most, least = _extremes(rates)
    if len(rates) == 1:
        rate = rates[most]
        bounds = f" (95 % interval {interval_text(rate)} %)" if rate.has_interval else ""
        who = "It" if len(scored) == 1 else most
        return f"{who} changes its answer on some variant of {_of_right(rate)}{bounds}."
    pairs = _pair(comparison, most, least)
    bounds_of = [pair[f"{RELAXED.key}_ci"] for pair in pairs]
    if not any(both and (both[0] > 0 or both[1] < 0) for both in bounds_of):
        shares = dict.fromkeys(_share(rates[name]) for name in (least, most))
        chance = _may_be_chance(pairs[0], RELAXED.key, most) if pairs and most != least else ""
        return (
            f"On some variant they change their answer to about {' to '.join(shares)} of the "
            f"seeds that they answer right{chance}."
        )
    if len(rates) > 3:  # too many to name all
        return (
            f"{least} is the steadiest: it changes its answer on some variant of "
            f"{_of_right(rates[least])}; {most}, the least steady, on {_share(rates[most])}."
        )
    first, *rest = sorted(rates, key=lambda name: -(rates[name].value or 0.0))
    more = joined([f"{name} on {_share(rates[name])}" for name in rest])
    return f"{first} changes its answer on some variant of {_of_right(rates[first])}, {more}."


def _falling(scored: Mapping[str, Result]) -> str:
    """Say how far accuracy falls if 90 % of a seed's variants must be right too."""
    falls = {name: cell(result, _FALL) for name, result in scored.items()}
    sure = {name: fall for name, fall in falls.items() if fall.low is not None and fall.low > 0}
    if not sure:
        return ""
    most, least = _extremes(sure)
    if len(sure) == 1:
        bounds = f" (95 % interval {interval_text(sure[most])})"
        how_far = f"{number(sure[most].value)} points{bounds}"
        if len(scored) > 1:
            how_far = f"{how_far} for {most}"
    else:
        low, high = number(sure[least].value), number(sure[most].value)
        how_far = f"{low} points ({least}) to {high} ({most})" if low != high else f"{low} points"
    rest = [name for name in scored if name not in sure]
    but = f"; for {len(rest)} others the difference may be chance" if rest else ""
    if len(rest) == 1:
        fall = falls[rest[0]]
        bounds = f"95 % interval {number(fall.low)} to {number(fall.high)}"
        by = f"by {number(fall.value)} ({bounds}), which may be chance"
        but = f"; for {rest[0]} {'it is the same' if fall.value == 0 == fall.high else by}"
    return (
        f"If a seed counts only with 90 % of its variants right (SV@90), accuracy is lower by "
        f"{how_far}{but}."
    )


def _reordered(scored: Mapping[str, Result], comparison: Comparison | None) -> str:
    """Name models that variants distinguish although seeds do not."""
    found = [
        pair
        for pair in (comparison.pairs.rows if comparison else ())
        if not pair["tie"] and pair["mcnemar_p_value_holm"] > ALPHA
    ]
    if not found:
        return ""
    pair = max(found, key=lambda row: row["seed_variant_accuracy"])
    a, b = pair["a"], pair["b"]
    shares = [number(cell(scored[name], _SV).value) for name in (a, b)]
    more = f" The same holds for {len(found)} pairs of models." if len(found) > 1 else ""
    return (
        f"Seeds alone do not tell {a} and {b} apart, variants do: SV@90 is {shares[0]} % against "
        f"{shares[1]} %.{more}"
    )


def _hardest_class(configuration: Configuration) -> str:
    """Name a word class with a lower SV@90 than another for every model, intervals apart."""
    results = {
        part.title: [
            r for r, of_all in zip(part.results, configuration.results, strict=True) if of_all
        ]
        for part in configuration.parts_by("word_class")
    }
    if not all(_has_enough(result) for part in results.values() for result in part):
        return ""
    if not (found := _hardest(results)):
        return ""
    low, high, gaps = found
    return (
        f"Seeds with replaced {low}s are harder than those with replaced {high}s: SV@90 is lower "
        f"by {_range(min(gaps), max(gaps))} points."
    )


def _range(low: float, high: float) -> str:
    """Write a range of figures, or one figure if both bounds look the same."""
    texts = dict.fromkeys((number(low), number(high)))
    return " to ".join(texts)


def _hardest(results: Mapping[str, Sequence[Result | None]]) -> tuple[str, str, list[float]] | None:
    """Find two kinds of data with disjoint SV@90 for every model: the harder, the easier, gaps."""
    found = []
    for low, high in permutations(results, 2):
        pairs = [
            (cell(x, _SV), cell(y, _SV))
            for x, y in zip(results[low], results[high], strict=True)
            if x and y and _has_enough(x) and _has_enough(y)
        ]
        if pairs and all(
            x.high is not None and y.low is not None and x.high < y.low for x, y in pairs
        ):
            gaps = [(y.value or 0.0) - (x.value or 0.0) for x, y in pairs]
            found.append((min(gaps), low, high, gaps))
    return max(found)[1:] if found else None


# --- Sentences about several configurations ---


def overall_findings(evidence: Evidence) -> list[str]:
    """Write sentences that compare sources, and replacements with paraphrases."""
    sentences = []
    kinds: dict[str | None, dict[str, Sequence[Result | None]]] = {}
    for each in evidence.configurations:
        kinds.setdefault(parse_config_name(each.name)[1], {})[each.name] = each.results
    for results in kinds.values():
        if found := _hardest(results):
            harder, easier, gaps = found
            n = len(gaps)
            every = "the model" if n == 1 else f"each of {n} models"
            sentences.append(
                f"{harder} is harder than {easier}: SV@90 of {every} is lower by "
                f"{number(min(gaps))} points{'' if n == 1 else ' or more'}."
            )
    for table in evidence.contrasts:
        rows = [r for r in table.rows if r.get("difference_ci") and r["n_seeds"] >= FEW_SEEDS]
        for word, sign in (("lower", -1), ("higher", 1)):
            sure = [r for r in rows if min(sign * bound for bound in r["difference_ci"]) > 0]
            if sure:
                points = [100 * abs(r["difference"]) for r in sure]
                sentences.append(
                    f"On the seeds that have both, SV@90 is {word} with paraphrases than with "
                    f"replaced words by {_range(min(points), max(points))} points "
                    f"({joined([r['model'] for r in sure])}; {table.rows[0]['config']})."
                )
    return sentences


# --- The example ---


def flipped_example(
    evidence: Evidence, configuration: Configuration, sources: Sequence[SourceSeeds]
) -> FooledSeed | None:
    """Choose a seed that the least robust model answers right, and a variant that it does not.

    Among the variants shown, the best by quality, else by log-odds, comes first, so that its label
    is least in doubt. Ties go to an answer opposite to the gold label, then to most other models
    right, then to the shortest texts.
    """
    (source,) = (each for each in sources if each.source == configuration.source)
    rates = {
        i: cell(result, RELAXED).value or 0.0
        for i, result in enumerate(configuration.results)
        if result
    }
    wanted = parse_config_name(configuration.name)[1]
    codes = [
        code
        for code, name in enumerate(source.word_classes)
        if (name != PARAPHRASE if wanted is None else name == wanted)
    ]
    variants = np.flatnonzero(np.isin(source.word_class, codes))
    gold = source.gold[source.seed[variants]]
    for model in sorted(rates, key=lambda i: (-rates[i], i)):
        answer = source.answers[model, variants]
        right = source.own[model, source.seed[variants]] == gold
        chosen = variants[right & (answer != gold) & (answer >= 0)]
        if len(chosen):
            best = _best(source, model, chosen, evidence.labels)
            return _example(evidence, source, model, best)
    return None


def _best(source: SourceSeeds, model: int, chosen: Ints, labels: Sequence[str]) -> int:
    """Choose one of some variants; see `flipped_example`."""
    seed = source.seed[chosen]
    gold, answer = source.gold[seed], source.answers[model, chosen]
    is_opposite = np.zeros((len(labels), len(labels)), bool)
    for pair in check_opposites(None, tuple(labels)):
        first, second = (labels.index(label) for label in pair)
        is_opposite[[first, second], [second, first]] = True
    opposite = is_opposite[gold, answer].tolist()
    others = (source.answers[:, chosen] == gold) & (source.own[:, seed] == gold)
    n_others = others.sum(axis=0).tolist()
    columns = ("quality", "log_odds", "premise", "hypothesis", "variant_id")

    def rank(place: int) -> tuple[Any, ...]:
        quality, log_odds, premise, hypothesis, name = rows[place]
        # Unknown signals come after all others.
        signals = (np.inf if value is None else -value for value in (quality, log_odds))
        length = len(premise) + len(hypothesis)
        return *signals, not opposite[place], -n_others[place], length, name, place

    rows = list(rows_of(source.read(columns, chosen), columns))
    return int(chosen[min(range(len(rows)), key=rank)])


def _example(evidence: Evidence, source: SourceSeeds, model: int, variant: int) -> FooledSeed:
    seed = int(source.seed[variant])
    gold = int(source.gold[seed])
    columns = ["word_class", "original", "replacement", *NLI.fields, *NLI.spans]
    row: dict[str, Any] = source.read(columns, np.array([variant])).to_pylist()[0]
    own: dict[str, Any] = source.seeds.slice(seed, 1).to_pylist()[0]
    marks = (row["premise_spans"], row["hypothesis_spans"])
    length = len(row["original"] or "")
    is_word = row["word_class"] in WORD_CLASSES and " " not in (row["replacement"] or " ")
    before = tuple(spans_in_seed(m, [length] * len(m)) if is_word else [] for m in marks)
    both_right = (source.answers[:, variant] == gold) & (source.own[:, seed] == gold)
    return FooledSeed(
        model=evidence.names[model],
        seed_id=own["seed_id"],
        gold=evidence.labels[gold],
        texts=source.texts,
        seed=(own["premise"], own["hypothesis"]),
        variant=(row["premise"], row["hypothesis"]),
        seed_marks=(before[0], before[1]),
        variant_marks=marks,
        answer=evidence.labels[int(source.answers[model, variant])],
        others=tuple(evidence.names[i] for i in np.flatnonzero(both_right)),
    )


# --- Support and wording ---


def _extremes(values: Mapping[str, Estimate]) -> tuple[str, str]:
    """Find the names with the highest and the lowest value; the first of ties."""
    by_value = {name: value.value or 0.0 for name, value in values.items()}
    return max(by_value, key=by_value.__getitem__), min(by_value, key=by_value.__getitem__)


def _pair(comparison: Comparison | None, a: str, b: str) -> list[Mapping[str, Any]]:
    """Find the rows that compare two models: one or none."""
    rows = comparison.pairs.rows if comparison else ()
    return [row for row in rows if {row["a"], row["b"]} == {a, b}]


def _may_be_chance(pair: Mapping[str, Any], key: str, more: str) -> str:
    """Say that a difference may be chance, with its interval if it has one."""
    sign = 1 if pair["a"] == more else -1
    points = sorted(100 * sign * bound for bound in pair[f"{key}_ci"] or ())
    bounds = f" (95 % interval {' to '.join(map(number, points))} points)" if points else ""
    return f"; the difference may be chance{bounds}"


def _has_enough(result: Result | None) -> bool:
    return bool(result) and int((result or {})["n_seeds"]) >= FEW_SEEDS


def _share(rate: Estimate) -> str:
    """Write a rate as one in a number, if that is close enough.

    >>> [_share(Estimate(x)) for x in (0.0, 6.7, 33.0, 54.21)]
    ['none', '1 in 15', '1 in 3', '54.2 %']
    """
    value = rate.value or 0.0
    if not value:
        return "none"
    return f"1 in {round(100 / value)}" if value <= 40 else f"{number(value)} %"


def _of_right(rate: Estimate) -> str:
    """Say for which seeds a rate holds.

    >>> [_of_right(Estimate(x)) for x in (0.0, 33.0)]
    ['none of the seeds that it answers right', '1 in 3 seeds that it answers right']
    """
    share = _share(rate)
    return f"{share} {'' if share.startswith('1 in') else 'of the '}seeds that it answers right"
