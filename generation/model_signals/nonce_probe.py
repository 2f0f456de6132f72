"""`merge-nli signals --nonce`: does a label hang on what a replaced word means?

A model is asked about each seed, and about the seed with a nonce word in place of each word that
has replacements. Where it gives the seed its gold label and loses it with most nonce words, the
label may hang on the word, and so may fail with a replacement.

Answers are kept in parts of `PART_SIZE` pairs, as the questions about a block of problems come, so
that an interrupted run goes on, and tasks may share them.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from tqdm import tqdm

from generation.config import Config
from generation.model_signals.built import Built
from generation.model_signals.nonce_words import in_form, nonce_stems
from generation.part_store import read_or_make, require_header
from generation.problems.on_disk import block_sizes, read_block
from generation.problems.shared_words import coarse_class
from generation.problems.tagging import Tagger
from generation.records import Seed, Sentence, SharedWord
from generation.run_folder import slug
from generation.signals.nonce_answers import NONCE_WORDS, SCHEMA, distinct_words, hangs
from generation.variants.rows import substitute
from generation.variants.words import match_case
from merge_dataset.executors.calls import says
from merge_dataset.executors.plan import Distribution
from merge_dataset.files import RowGroupWriter, atomic, digest_of
from merge_dataset.schema import WORD_CLASSES, ProblemFormat
from merge_metric.models.heads import CAUSAL_LM, CLASSIFIER
from merge_metric.models.label_order import ASKED_SEEDS
from merge_metric.models.opening import LabelledPairs, find_kind, open_model
from merge_metric.models.pair_model import (
    ModelRequest,
    Pair,
    PairModel,
    Share,
    require_probabilities,
)
from merge_metric.models.readiness import Wanted, look_at, machine_for, require_all

PART_SIZE: Final = 512
"""Pairs in a part: a killed run loses at most as many answers."""


def write_nonce_answers(
    run: str | Path,
    model: str,
    *,
    of: str | None = None,
    distribution: Distribution | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Ask a model about the seeds of a build with nonce words; write `nonce.parquet`.

    Goes on where an earlier run of the same model stopped.

    Args:
        run: A run folder after `build`.
        model: Hub id (optionally `id@revision`) or folder of a classifier, or of a causal LM,
            which may also be a .gguf file.
        of: Name of a build inside the folder, such as an ablation; by default the run's own.
        distribution: Where tasks ask; by default all is done here.
        settings: Fields of `ModelRequest`, such as `label_order`.

    Returns:
        The contents of `nonce.json`: the model, and counts of words by label and class.

    Raises:
        ExecutorError: tasks failed; what they finished is kept.
        FileNotFoundError: there is no such build.
        ValueError: the model or the tagger cannot be loaded, or the model's answers are no
            probabilities.
    """
    with Built.held(run, of) as built:
        config, build = built.config(), built.build
        _look_at_model(config, model, settings, distribution)
        if distribution is None:
            answers = _Answers.of(_open(built, config, model, settings), built, config)
        else:
            answers = _ask_in_tasks(built, config, model, settings, distribution)
        build.nonce_made.unlink(missing_ok=True)
        counts = _write(built, config, answers)
        shutil.rmtree(build.tasks("nonce"), ignore_errors=True)
        made = {
            "model": answers.model,
            "nonce_words": NONCE_WORDS,
            "words": [
                {"label": label, "word_class": word_class, **dict(sorted(of_words.items()))}
                for (label, word_class), of_words in sorted(counts.items())
            ],
        }
        return built.record(build.nonce_made, made, build.nonce)


def _open(built: Built, config: Config, model: str, settings: Mapping[str, Any]) -> PairModel:
    """Load the model, or get ready to ask it."""
    return open_model(
        ModelRequest(model=model, **{"device": config.device, **settings}),
        problem_format=config.problem_format,
        sources=[config.source],
        seeds=partial(_labelled_seeds, built, config.problem_format),
    )


def _look_at_model(
    config: Config, model: str, settings: Mapping[str, Any], distribution: Distribution | None
) -> None:
    """Raise ValueError where the model cannot be used, or has no room where it will run."""
    request = ModelRequest(model=model, **{"device": config.device, **settings})
    labels = config.problem_format.labels
    is_classifier = find_kind(request, can_be_told=False) == "classifier"
    wanted = Wanted(
        model=model,
        head=CLASSIFIER if is_classifier else CAUSAL_LM,
        dtype=request.dtype or ("float32" if is_classifier else "auto"),
        label_order=request.label_order,
        labels=labels,
    )
    machine = machine_for(distribution, request.device)
    require_all(look_at([wanted], machine), machine)


@dataclass(frozen=True, slots=True)
class _Answers:
    """A model's answers to pairs, kept in parts."""

    model: dict[str, Any]
    """The model, as it describes itself."""
    parts: Path
    ask: Callable[[Sequence[Pair]], Sequence[str]]
    """Gives the labels of pairs."""

    @classmethod
    def of(cls, model: PairModel, built: Built, config: Config) -> Self:
        """Open the store of a live model, and make it if it is not there."""
        labels = config.problem_format.labels
        return cls.kept(model.describe(), built, config, lambda pairs: _ask(model, pairs, labels))

    @classmethod
    def kept(
        cls,
        model: dict[str, Any],
        built: Built,
        config: Config,
        ask: Callable[[Sequence[Pair]], Sequence[str]],
    ) -> Self:
        """Open the store of a model that describes itself so."""
        own = built.run.nonce_parts
        root = Path(config.store) / own.name if config.store else own
        identity = {**model, "labels": list(config.problem_format.labels)}
        store = root / f"{slug(model['name'])}-{digest_of(identity)[:12]}"
        require_header(store, identity, contents="answers", redo="merge-nli signals --nonce")
        return cls(model, store / "parts", ask)

    def part(self, pairs: Sequence[Pair]) -> dict[Pair, str]:
        """Return the labels of a part; a part that is missing or damaged is asked and written."""

        def make() -> pa.Table:
            return pa.table({"label": pa.array(self.ask(pairs), pa.string())})

        table = read_or_make(self.parts, digest_of(pairs)[:16], make)
        return dict(zip(pairs, table["label"].to_pylist(), strict=True))


def nonce_variants(
    word: SharedWord, sentences: Sequence[Sentence], seed_id: str
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Put nonce words in place of a shared word, each where the word stands, in its forms.

    Args:
        word: The word and where it stands.
        sentences: The tagged texts of its problem.
        seed_id: Key of the draw.

    Returns:
        The stems, and for each the texts with it.
    """
    places = [[sentence.tokens[n] for n in at] for sentence, at in _standing(word, sentences)]
    own = [t.tag for of_text in places for t in of_text if coarse_class(t.tag) == word.word_class]
    stems = nonce_stems(
        word.word,
        {token.tag for of_text in places for token in of_text},
        key=f"{seed_id}\n{word.word_class}",
        number=NONCE_WORDS,
        not_in={token.text.lower() for sentence in sentences for token in sentence.tokens},
    )
    texts = [
        tuple(
            substitute(
                sentence.text,
                [token.span for token in of_text],
                [match_case(in_form(stem, _form(token.tag, own)), token.text) for token in of_text],
            )[0]
            for sentence, of_text in zip(sentences, places, strict=True)
        )
        for stem in stems
    ]
    return stems, texts


def _standing(
    word: SharedWord, sentences: Sequence[Sentence]
) -> Iterator[tuple[Sentence, tuple[int, ...]]]:
    return zip(sentences, word.positions, strict=True)


def _form(tag: str, own: Sequence[str]) -> str:
    """Return the tag whose form a nonce word takes: its own, or the word's where it has no class.

    Where the tagger took "running" for a preposition, it is still the form of the others.
    """
    return tag if coarse_class(tag) in WORD_CLASSES or not own else own[0]


def _write(built: Built, config: Config, answers: _Answers) -> dict[tuple[str, str], Counter[str]]:
    """Write the answers, block by block.

    Returns:
        Label and word class → counts: `words`, of these `seed_right`, of these `hangs`.
    """
    tagger = Tagger.load(config.tagger)
    counts: dict[tuple[str, str], Counter[str]] = {}
    sizes = block_sizes(built.run.problems)
    with (
        tqdm(total=sum(sizes), desc=answers.model["name"], unit="problem") as bar,
        atomic(built.build.nonce) as path,
        RowGroupWriter(path, SCHEMA) as writer,
    ):
        for number, size in enumerate(sizes):
            questions = _questions(built, config, tagger, number)
            parts, known = _parts(questions), dict[Pair, str]()
            for place, pairs in enumerate(parts):
                known |= answers.part(pairs)
                bar.update((place + 1) * size // len(parts) - place * size // len(parts))
            rows = [_row(question, known) for question in questions]
            for row in rows:
                of_word = counts.setdefault((row.pop("label"), row["word_class"]), Counter())
                found = hangs(row["seed_right"], row["nonce_right"], len(row["stems"]))
                of_word.update(words=1, seed_right=row["seed_right"], hangs=bool(found))
            writer.write(pa.Table.from_pylist(rows, SCHEMA))
            bar.update(0 if parts else size)
    return counts


@dataclass(frozen=True, slots=True)
class _Question:
    """A word of a seed, and what the model is asked about it."""

    seed: Seed
    word_class: str
    word: str
    stems: list[str]
    asked: list[Pair]
    """The seed, and the seed with each of the stems."""


def _questions(built: Built, config: Config, tagger: Tagger, block: int) -> list[_Question]:
    """List the questions about the words of a block that have replacements."""
    problems = built.problems(block, tagger, config)
    seeds = {seed.seed_id: seed for seed in problems.seeds}
    replaced = built.replacements(problems, ["seed_id", "word_class", "word"])
    found = []
    for seed_id, word_class, word in distinct_words(replaced):
        seed = seeds[seed_id]
        (shared,) = (
            w for w in problems.words[seed_id] if (w.word, w.word_class) == (word, word_class)
        )
        stems, variants = nonce_variants(shared, problems.of(seed), seed_id)
        asked = [_pair(texts) for texts in (seed.texts, *variants)]
        found.append(_Question(seed, word_class, word, stems, asked))
    return found


def _parts(questions: Sequence[_Question]) -> list[list[Pair]]:
    """Cut the distinct pairs of a block into parts."""
    pairs = list(dict.fromkeys(pair for question in questions for pair in question.asked))
    return [pairs[start : start + PART_SIZE] for start in range(0, len(pairs), PART_SIZE)]


def _row(question: _Question, answers: Mapping[Pair, str]) -> dict[str, Any]:
    """Return a row of `SCHEMA`, and the label."""
    label = question.seed.label
    own, *others = (answers[pair] == label for pair in question.asked)
    return {
        "seed_id": question.seed.seed_id,
        "word_class": question.word_class,
        "word": question.word,
        "stems": question.stems,
        "seed_right": own,
        "nonce_right": sum(others),
        "label": label,
    }


def _pair(texts: Sequence[str]) -> Pair:
    """Return a problem as models are asked: the first text, and the others."""
    return texts[0], " ".join(texts[1:])


def _ask(model: PairModel, pairs: Sequence[Pair], labels: Sequence[str]) -> list[str]:
    """Return the most probable label of each pair."""
    found = [""] * len(pairs)
    for positions, probabilities in model.probabilities(pairs):
        require_probabilities([pairs[n] for n in positions], labels, probabilities)
        for position, best in zip(positions, probabilities.argmax(axis=1), strict=True):
            found[position] = labels[best]
    return found


def _labelled_seeds(built: Built, problem_format: ProblemFormat) -> LabelledPairs:
    """Return some problems and their gold labels, to find out what a classifier's classes mean."""
    seeds: list[Seed] = []
    for number in built.blocks():
        seeds += read_block(built.run.problems, number)
        if len(seeds) >= ASKED_SEEDS:
            break
    seeds = seeds[:ASKED_SEEDS]
    gold = np.array([problem_format.labels.index(seed.label) for seed in seeds], np.int64)
    return [_pair(seed.texts) for seed in seeds], gold


# --- In tasks ---


def _ask_in_tasks(
    built: Built,
    config: Config,
    model: str,
    settings: Mapping[str, Any],
    distribution: Distribution,
) -> _Answers:
    """Let tasks fill the store, and return it with a model that is not asked any more."""
    plan = {"model": model, "settings": dict(settings)}
    function = "generation.model_signals.nonce_probe:ask_unit"
    same = built.in_tasks(function, built.build.tasks("nonce"), plan, distribution)

    def refuse(pairs: Sequence[Pair]) -> Sequence[str]:
        raise ValueError(
            f"{built.build.path}: expected answers to all pairs from the tasks, {len(pairs)} are "
            "missing; run the same command again"
        )

    return _Answers.kept(same, built, config, refuse)


@says
def ask_unit(folder: Path, unit: str) -> dict[str, Any]:
    """Do a unit of work: ask a share of the parts that are missing.

    Args:
        folder: `RunFolder.tasks`.
        unit: A share of the parts of all blocks.

    Returns:
        The model, as it describes itself.

    Raises:
        ValueError: the model cannot be used.
    """
    (built, plan), share = Built.of_task(folder), Share.parse(unit)
    config = built.config()
    answers = _Answers.of(_open(built, config, plan["model"], plan["settings"]), built, config)
    tagger, blocks = Tagger.load(config.tagger), built.blocks()
    for block in blocks:
        if share.looks_at(block, len(blocks)):
            for number, pairs in enumerate(_parts(_questions(built, config, tagger, block))):
                if share.takes(number, block, len(blocks)):
                    answers.part(pairs)
    return answers.model
