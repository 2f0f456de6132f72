"""Runs of paraphrases: a slow oracle, and problems and models for comparing with it."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from generation.paraphrases.config import ParaphraseConfig
from generation.paraphrases.paraphrase_run import paraphrase
from generation.paraphrases.rounds import (
    REASONS,
    Candidate,
    ParaphraseRequest,
    clean,
    temperature_of,
)
from generation.run_folder import RunFolder
from helpers.paraphrasing import (
    INSTRUCTION,
    Budget,
    FakeGenerator,
    FakeJudge,
    Problem,
    random_problems,
    random_verdict,
    random_writer,
    settings,
    write_problems,
)
from merge_dataset.schema import LABELS

Writer = Callable[[ParaphraseRequest], list[Candidate]]
Verdict = Callable[[str, str], Sequence[float]]

TABLES = ("answers", "paraphrases", "exclusions", "seeds", "variants")


def table(run: RunFolder, name: str) -> list[dict[str, Any]]:
    return pq.ParquetFile(run.path / f"{name}.parquet").read().to_pylist()


def manifest(run: RunFolder) -> dict[str, Any]:
    return json.loads(run.manifest.read_text())


def outcome(run: RunFolder) -> dict[str, bytes]:
    names = [*(f"{name}.parquet" for name in (*TABLES, "problems")), "manifest.json"]
    return {name: (run.path / name).read_bytes() for name in names}


# --- A slow oracle ---


def form_of(text: str) -> str:
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    letters = [" " if unicodedata.category(c).startswith(("P", "Z", "C")) else c for c in text]
    return " ".join("".join(letters).split())


def echo_in(text: str, hypothesis: str) -> bool:
    words, own = form_of(text).split(), form_of(hypothesis).split()
    told = form_of(INSTRUCTION).split()
    for start in range(len(told) - 3):
        run = told[start : start + 4]
        for where in range(len(words) - 3):
            if words[where : where + 4] == run and all(
                own[i : i + 4] != run for i in range(len(own))
            ):
                return True
    return False


@dataclass
class Expected:
    exclusions: dict[str, tuple[str, int | None]]
    candidates: list[dict[str, Any]]
    variants: dict[str, list[tuple[str, str]]]
    """Seed → its premise and the text of each variant."""
    funnel: list[dict[str, int]]
    pairs: set[tuple[str, str]]


def expected_of(
    problems: Sequence[Problem], config: ParaphraseConfig, write: Writer, verdict: Verdict
) -> Expected:
    """Compute the expected run: one problem, hypothesis, candidate and pair at a time."""

    def predicted(premise: str, hypothesis: str) -> str:
        pairs.add((premise, hypothesis))
        scores = list(verdict(premise, hypothesis))
        return LABELS[scores.index(max(scores))]

    pairs: set[tuple[str, str]] = set()
    exclusions: dict[str, tuple[str, int | None]] = {}
    right = []
    for number, premise, hypothesis, label in problems:
        if label == "-":
            exclusions[f"snli:{number}"] = ("unlabelled", None)
        elif predicted(premise, hypothesis) != label:
            exclusions[f"snli:{number}"] = ("answered_wrong", None)
        else:
            right.append((f"snli:{number}", premise, hypothesis))
    rows: list[dict[str, Any]] = []
    kept: dict[str, list[str]] = {}
    counts: dict[int, Counter[str]] = {}
    for hypothesis in sorted({h for _, _, h in right}):
        kept[hypothesis] = []
        raw: list[str] = []
        for number in range(1, config.max_rounds + 1):
            if len(kept[hypothesis]) >= config.k:
                break
            counts.setdefault(number, Counter())
            temperature = temperature_of(hypothesis, number, config)
            before = [form_of(clean(text, hypothesis)) for text in raw]
            for rank, item in enumerate(
                write(ParaphraseRequest(hypothesis, temperature, tuple(raw)))
            ):
                text = clean(item.text, hypothesis)
                entailed = entailing = None
                if form_of(text) == "":
                    reason = "empty"
                elif not item.finished:
                    reason = "unfinished"
                elif len(text) > 10 * config.max_new_tokens:
                    reason = "too_long"
                elif echo_in(text, hypothesis):
                    reason = "prompt_echoed"
                elif form_of(text) == form_of(hypothesis):
                    reason = "copy"
                elif f" {form_of(hypothesis)} " in f" {form_of(text)} ":
                    reason = "quoted"
                elif form_of(text) in before:
                    reason = "duplicate"
                else:
                    forth, back = predicted(hypothesis, text), predicted(text, hypothesis)
                    entailed = verdict(hypothesis, text)[0]
                    entailing = verdict(text, hypothesis)[0]
                    if forth != "entailment":
                        reason = "not_entailed"
                    elif back != "entailment":
                        reason = "not_entailing"
                    elif len(kept[hypothesis]) == config.k:
                        reason = "surplus"
                    else:
                        reason = "kept"
                        kept[hypothesis].append(text)
                before.append(form_of(text))
                raw.append(item.text)
                counts[number][reason] += 1
                rows.append({
                    "hypothesis": hypothesis, "text": text, "raw_text": item.text,
                    "round": number, "rank": rank, "temperature": temperature,
                    "score": item.score, "entailed": entailed, "entailing": entailing,
                    "reason": reason,
                })  # fmt: skip
    variants: dict[str, list[tuple[str, str]]] = {}
    for seed_id, premise, hypothesis in right:
        if kept[hypothesis]:
            variants[seed_id] = [(premise, text) for text in kept[hypothesis]]
        else:
            exclusions[seed_id] = ("no_paraphrase", 0)
    funnel = [
        {"round": n, "generated": sum(of.values()),
         **{reason: of[reason] for reason in (*REASONS, "kept")}}
        for n, of in sorted(counts.items())
    ]  # fmt: skip
    return Expected(exclusions, rows, variants, funnel, pairs)


def check(run: RunFolder, expected: Expected, problems: Sequence[Problem]) -> None:
    assert table(run, "paraphrases") == expected.candidates
    by_id = {f"snli:{number}": row for number, *row in problems}
    rows = table(run, "exclusions")
    assert [row["seed_id"] for row in rows] == sorted(expected.exclusions)
    assert {r["seed_id"]: (r["reason"], r["replacements"]) for r in rows} == expected.exclusions
    assert {(r["source"], r["word"], r["word_class"]) for r in rows} <= {("snli", None, None)}
    seeds = table(run, "seeds")
    assert [row["seed_id"] for row in seeds] == sorted(expected.variants)
    for row in seeds:
        premise, hypothesis, label = by_id[row["seed_id"]]
        assert (row["premise"], row["hypothesis"]) == (premise, hypothesis)
        assert LABELS[row["label"]] == label
    result: dict[str, list[tuple[str, str]]] = {}
    variants = table(run, "variants")
    for row in variants:
        result.setdefault(row["seed_id"], []).append((row["premise"], row["hypothesis"]))
        digest = hashlib.sha256(row["hypothesis"].encode()).hexdigest()[:12]
        assert row["variant_id"] == f"{row['seed_id']}/paraphrase/{digest}"
        assert row["original"] == by_id[row["seed_id"]][1]
    assert {k: sorted(v) for k, v in result.items()} == {
        k: sorted(v) for k, v in expected.variants.items()
    }
    keys = [(row["seed_id"], row["variant_id"]) for row in variants]
    assert keys == sorted(keys)
    made = manifest(run)
    assert made["funnel"] == expected.funnel
    assert made["eligible"] == {"paraphrase": len(seeds)}
    assert made["variants"] == len(variants)
    reasons = Counter(reason for reason, _ in expected.exclusions.values())
    labelled = sum(label != "-" for *_, label in problems)
    assert made["problems"] == {
        "read": len(problems),
        "unlabelled": reasons["unlabelled"],
        "kept": labelled,
        "answered_right": labelled - reasons["answered_wrong"],
    }


@dataclass
class World:
    """Problems, and models whose random answers are always the same."""

    problems: list[Problem]
    write: Writer
    verdict: Verdict

    @classmethod
    def of(cls, seed: int, count: int = 30) -> World:
        problems = random_problems(seed, count)
        others = [text for _, premise, hypothesis, _ in problems for text in (premise, hypothesis)]
        entailment_mostly = random_verdict(seed)
        gold = {(p, h): label for _, p, h, label in problems}

        def verdict(premise: str, hypothesis: str) -> Sequence[float]:
            label = gold.get((premise, hypothesis), "-")
            if label == "-" or len(premise + hypothesis) % 4 == 0:
                return entailment_mostly(premise, hypothesis)
            return [0.6 if label == item else 0.2 for item in LABELS]

        return cls(problems, random_writer(seed, others), verdict)

    def run(
        self, folder: Path, data: Path | None = None, budget: Budget | None = None, **changes: Any
    ) -> tuple[RunFolder, FakeGenerator, FakeJudge]:
        data = data or write_problems(folder.with_suffix(".jsonl"), self.problems)
        budget = budget or Budget()
        size, overwrite = changes.pop("generator_batches", 4), changes.pop("overwrite", False)
        generator = FakeGenerator(self.write, batch_size=size, budget=budget)
        judge = FakeJudge(self.verdict, budget=budget)
        config = settings(folder, data, **changes)
        run = paraphrase(
            config, generator=lambda: generator, judge=lambda problems: judge, overwrite=overwrite
        )
        return run, generator, judge
