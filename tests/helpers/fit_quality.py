"""Write quality.toml (`DATE`) and measure how good it is; `measure MODELS` asks masked LMs."""

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyarrow as pa
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from generation.records import REPLACEMENT_KEY
from generation.variants.signal_columns import FAULTS, GRAMMAR, LIKELIHOOD, NEIGHBOURS, features
from helpers.judged import answers_of
from merge_dataset.annotation import is_good, read_session
from merge_dataset.files import digest_of_file, read_table, write_text
from merge_metric.agreement.shares import wilson

DATA: Final = Path(__file__).parents[1] / "data"
JUDGED: Final = DATA / "judged_variants"
FRESH: Final = DATA / "judged_variants_fresh"
SESSIONS: Final = (JUDGED, FRESH)
SIGNALS: Final = "signals.csv"
SHIPPED: Final = Path(__file__).parents[2] / "generation" / "variants" / "quality.toml"

PENALTY: Final = 0.3
"""Inverse strength of the L2 penalty, chosen by hand: the result hardly depends on it."""
BINS: Final = 5
CHANGES: Final = ("premise_pll_change", "hypothesis_pll_change")
BEFORE: Final = (*FAULTS, "is_verb", "is_adjective", "zipf_frequency")
CHOSEN: Final = {
    GRAMMAR: (*BEFORE, "log_rank"),
    NEIGHBOURS: (*BEFORE, "log_rank", "neighbour_change"),
    LIKELIHOOD: (*BEFORE, "log_rank", "least_change"),
}
COMPARED: Final = {
    "grammar alone": BEFORE,
    "grammar, neighbours": (*BEFORE, "neighbour_change"),
    "grammar, ranks": CHOSEN[GRAMMAR],
    "grammar, ranks, neighbours": CHOSEN[NEIGHBOURS],
    "grammar, causal LM": (*BEFORE, "least_change"),
    "grammar, ranks, causal LM": CHOSEN[LIKELIHOOD],
    "grammar, ranks, neighbours, causal LM": (*CHOSEN[NEIGHBOURS], "least_change"),
}
LIMITS: Final = (0.4, 0.5, 0.6)
MLMS: Final = ("bert-tiny-mlm", "minilm-l6-mlm")

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Judged:
    """Judged variants, in the order of the signals file."""

    features: Mapping[str, Floats]
    good: np.ndarray[Any, np.dtype[np.bool_]]
    """[n] whether F + R is 9 or more on average over all passes."""
    seeds: tuple[str, ...]


def read_judged(folder: Path) -> Judged:
    session = read_session(folder)
    passes = [answers_of(path) for path in sorted((folder / "answers").glob("*.csv"))]
    with (folder / SIGNALS).open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    totals = [
        sum(
            reading[row["variant_id"]].fluency + reading[row["variant_id"]].reasoning
            for reading in passes
        )
        for row in rows
    ]
    return Judged(
        features=features(partial(_column, rows), CHANGES),
        good=np.array([is_good(total, len(passes)) for total in totals]),
        seeds=tuple(session.items[row["variant_id"]].seed_id for row in rows),
    )


def _column(rows: Sequence[Mapping[str, str]], name: str) -> pa.Array:
    texts = [row[name] or None for row in rows]
    if name == "word_class":
        return pa.array(texts)
    if name in FAULTS:
        return pa.array([None if text is None else text == "true" for text in texts], pa.bool_())
    return pa.array([None if text is None else float(text) for text in texts], pa.float32())


def together(*judged: Judged) -> Judged:
    return Judged(
        features={
            name: np.concatenate([item.features[name] for item in judged])
            for name in judged[0].features
        },
        good=np.concatenate([item.good for item in judged]),
        seeds=tuple(seed for item in judged for seed in item.seeds),
    )


def rows_of(judged: Judged, chosen: Sequence[str]) -> Floats:
    values = np.stack([judged.features[item] for item in chosen], axis=1)
    assert not np.isnan(values).any()
    return values


@dataclass(frozen=True, slots=True)
class Fitted:
    means: Floats
    deviations: Floats
    coefficients: Floats
    intercept: float

    def probabilities(self, values: Floats) -> Floats:
        z = self.intercept + ((values - self.means) / self.deviations) @ self.coefficients
        return 1 / (1 + np.exp(-z))


def fit(values: Floats, good: np.ndarray[Any, np.dtype[np.bool_]]) -> Fitted:
    means, deviations = values.mean(axis=0), values.std(axis=0)
    deviations[deviations == 0] = 1.0
    regression = LogisticRegression(C=PENALTY, tol=1e-10, max_iter=10_000)
    regression.fit((values - means) / deviations, good)
    return Fitted(means, deviations, regression.coef_[0], float(regression.intercept_[0]))


def out_of_fold(
    judged: Judged, chosen: Sequence[str], *, repeats: int = 10
) -> tuple[Floats, Floats]:
    """Return [n] probabilities by models not fitted on a row's seed, and [n] good or not."""
    assert len(set(judged.seeds)) == len(judged.seeds)
    values, good = rows_of(judged, chosen), judged.good
    total = np.zeros(len(good))
    for repeat in range(repeats):
        folds = StratifiedKFold(10, shuffle=True, random_state=repeat)
        for train, test in folds.split(values, good):
            total[test] += fit(values[train], good[train]).probabilities(values[test])
    return total / repeats, good.astype(np.float64)


def on_others(fitted_on: Judged, judged: Judged, chosen: Sequence[str]) -> tuple[Floats, Floats]:
    """Return [n] probabilities by a model fitted on another session, and [n] good or not."""
    result = fit(rows_of(fitted_on, chosen), fitted_on.good)
    return result.probabilities(rows_of(judged, chosen)), judged.good.astype(np.float64)


def auc(probability: Floats, good: Floats) -> float:
    """Return how often a good variant has a higher value than a bad one; ties count as half."""
    better = probability[good == 1][:, None] - probability[good == 0][None, :]
    return float((better > 0).mean() + 0.5 * (better == 0).mean())


def interval(
    probability: Floats, good: Floats, less: Floats | None = None, *, replicates: int = 1000
) -> tuple[float, float]:
    """Return the bootstrapped 95 % interval of an AUC, or of its difference from that of `less`."""
    rng, result = np.random.default_rng(0), []
    for _ in range(replicates):
        rows = rng.integers(0, len(good), len(good))
        other = 0.0 if less is None else auc(less[rows], good[rows])
        result.append(auc(probability[rows], good[rows]) - other)
    low, high = np.percentile(result, [2.5, 97.5])
    return float(low), float(high)


def summary(probability: Floats, good: Floats) -> dict[str, float]:
    """Return AUC, Brier score (also of the base rate) and expected calibration error."""
    bins = np.minimum((probability * BINS).astype(int), BINS - 1)
    misses = [abs((probability - good)[bins == n].sum()) for n in range(BINS)]
    return {
        "n": len(good),
        "auc": auc(probability, good),
        "brier": float(((probability - good) ** 2).mean()),
        "brier_of_base_rate": float(good.mean() * (1 - good.mean())),
        "calibration_error": float(sum(misses)) / len(good),
    }


def render(judged: Judged, date: str) -> str:
    files = [path for session in SESSIONS for path in sorted((session / "answers").glob("*.csv"))]
    files += [session / SIGNALS for session in SESSIONS]
    lines = [
        "# Logistic regressions for the column quality: python -m helpers.fit_quality, in tests/.",
        "# z = intercept + sum of coefficient * (value - mean) / deviation; quality = 1/(1+e^-z).",
        "",
        "[fitted]",
        f'date = "{date}"',
        f"variants = {len(judged.good)}",
        f"good = {int(judged.good.sum())}",
        f"l2_penalty = {PENALTY}",
        f'neighbours_by = "{", ".join(MLMS)}"',
        'likelihood_by = "SmolLM2-135M-Instruct, 4-bit"',
        "[fitted.sha256]",
        *(f'"{path.relative_to(DATA.parent).as_posix()}" = "{digest_of_file(path)}"'
          for path in files),
    ]  # fmt: skip
    for name, chosen in CHOSEN.items():
        result = fit(rows_of(judged, chosen), judged.good)
        lines += ["", f"[{name}]", f"intercept = {result.intercept:.9f}"]
        for n, item in enumerate(chosen):
            lines += [
                f"[{name}.features.{item}]",
                f"mean = {result.means[n]:.9f}",
                f"deviation = {result.deviations[n]:.9f}",
                f"coefficient = {result.coefficients[n]:.9f}",
            ]
    return "\n".join([*lines, ""])


def measure(models: Path, work: Path) -> None:
    """Add `mean_rank` and `neighbour_change` of judged variants to their signals files."""
    from generation import Config, generate
    from generation.signals.likelihoods import item_of, neighbour_changes
    from generation.suggestions.masked_lm import MaskedLM

    folders = [str(models / name) for name in MLMS]
    samples = [
        [json.loads(line) for line in (session / "sample.jsonl").read_text("utf-8").splitlines()]
        for session in SESSIONS
    ]
    ranks = {}
    for source in ("snli", "mnli-m"):
        data = work / f"{source}.csv"
        with data.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["id", "premise", "hypothesis", "label"])
            for judged in (
                judged for sample in samples for judged in sample if judged["source"] == source
            ):
                name = judged["seed_id"].partition(":")[2]
                writer.writerow([name, *judged["seed_texts"].values(), judged["label"]])
        config = Config.from_recipe("paper-v2", source=source, data=str(data), mlms=folders,
                                    min_replacements=1, run=str(work / source))  # fmt: skip
        names = [*REPLACEMENT_KEY, "mean_rank"]
        for *key, rank in zip(
            *(c.to_pylist() for c in read_table(generate(config).replacements, names).columns),
            strict=True,
        ):
            ranks["/".join((key[0], *key[1:]))] = rank
    mlms = [MaskedLM.load(folder) for folder in folders]
    for folder, sample in zip(SESSIONS, samples, strict=True):
        items = {
            judged["variant_id"]: [
                item_of(*(judged[f"{side}_{what}"][field] for side in ("seed", "variant")
                          for what in ("texts", "spans")))
                for field in judged["seed_texts"]
            ]
            for judged in sample
        }  # fmt: skip
        every = list(dict.fromkeys(item for judged in items.values() for item in judged))
        result = np.mean([neighbour_changes(mlm, every)["pll"].to_numpy() for mlm in mlms], axis=0)
        change = dict(zip(every, result.tolist(), strict=True))
        with (folder / SIGNALS).open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        for row in rows:
            row["mean_rank"] = f"{ranks[row['variant_id']]:.4f}"
            mean = np.mean([change[item] for item in items[row["variant_id"]]])
            row["neighbour_change"] = f"{mean:.4f}"
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(folder / SIGNALS, text.getvalue())


def main() -> None:
    if sys.argv[1] == "measure":
        with TemporaryDirectory() as work:
            measure(Path(sys.argv[2]), Path(work))
        return
    sessions = [read_judged(session) for session in SESSIONS]
    judged = together(*sessions)
    write_text(SHIPPED, render(judged, sys.argv[1]))
    plain, _ = out_of_fold(judged, BEFORE)
    for name, chosen in COMPARED.items():
        result, good = out_of_fold(judged, chosen)
        others = on_others(*sessions, chosen)
        print(
            f"{name}: out of fold {auc(result, good):.3f} {interval(result, good)}, more than "
            f"grammar alone {interval(result, good, plain)}; fitted on 330, of 255 others "
            f"{auc(*others):.3f} {interval(*others)}"
        )
        print(" ", summary(result, good))
        for limit in LIMITS:
            kept = result >= limit
            low, high = wilson(int(good[kept].sum()), int(kept.sum()))
            print(
                f"  from {limit}: {int(kept.sum())} kept, {good[kept].mean():.3f} "
                f"[{low:.3f}, {high:.3f}] good, "
                f"{1 - good[kept].sum() / good.sum():.3f} of these lost"
            )


if __name__ == "__main__":
    main()
