"""`merge-nli signals --nonce`: does a label depend on the meaning of a replaced word?

A model is asked about each seed, and about the seed with nonce words, made up and unknown to
wordfreq, in place of each word that has replacements. Where it loses the seed's gold label with
most of them, the label may depend on the word's meaning, and not hold with a replacement (compare
the wug of Berko 1958, "The Child's Learning of English Morphology", Word 14).
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from tqdm import tqdm

from generation.model_signals.built import Built, absolute
from generation.problems.on_disk import read_block
from generation.problems.shared_words import coarse_class
from generation.records import Sentence, SharedWord, substitute
from generation.run_folder import slug
from generation.signals.grammar import fitting_article
from generation.signals.label_flags import NONCE_SCHEMA, NONCE_WORDS, hangs
from generation.signals.signal_columns import zipf_frequency
from generation.variants.words import match_case
from merge_dataset.executors.calls import keeps_result
from merge_dataset.executors.plan import Distribution
from merge_dataset.files import RowGroupWriter, atomic, digest_of
from merge_dataset.part_store import read_or_make, require_header
from merge_dataset.schema import WORD_CLASSES
from merge_metric.models.inspection import CAUSAL_LM, CLASSIFIER
from merge_metric.models.label_order import ASKED_SEEDS
from merge_metric.models.loading import LabelledPairs, find_kind, open_model
from merge_metric.models.pair_model import ModelRequest, Pair, Share, require_probabilities
from merge_metric.models.readiness import inspect_models, machine_for, require_all

PART_SIZE: Final = 512
"""Number of pairs in a part; a killed run loses the answers to at most one part."""

_ONSETS: Final = (
    "b", "bl", "br", "d", "dr", "f", "fl", "g", "gl", "gr", "k", "kl", "kr", "l", "m", "n",
    "p", "pl", "pr", "r", "s", "sk", "sm", "sn", "sp", "st", "t", "tr", "v", "w", "z",
)  # fmt: skip
_MIDDLES: Final = ("b", "d", "l", "m", "r", "v", "z", "rd", "lm")
_ENDS: Final = ("nk", "rt", "lk", "mp", "rk", "lt", "sk", "sp", "lp", "ft", "rp")
"""Ends of stems that stay the same before endings: no letter is doubled, "-s" needs no "e"."""

_ENDING: Final = {
    **dict.fromkeys(("NNS", "NNPS", "VBZ"), "s"),
    **dict.fromkeys(("VBD", "VBN"), "ed"),
    "VBG": "ing",
    **{"JJ": "y", "JJR": "ier", "JJS": "iest"},
    **dict.fromkeys(("RB", "RBR", "RBS"), "ily"),
}
"""Penn tag → ending of the form; forms of other tags are the bare stem."""


def write_nonce_answers(
    run: str | Path,
    model: str,
    *,
    of: str | None = None,
    distribution: Distribution | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Ask a model about a build's seeds with nonce words; write `nonce.parquet`, return its record.

    `settings` are fields of its `ModelRequest`; `of` names a build inside the run's folder.
    """
    with Built.held(run, of) as built:
        config, build = built.config, built.build
        settings = {"device": config.device, **settings}
        request = ModelRequest(model=model, **settings)
        is_classifier = find_kind(request, can_be_told=False) == "classifier"
        look = "", request, CLASSIFIER if is_classifier else CAUSAL_LM
        machine = machine_for(distribution, request.device)
        require_all(inspect_models([look], machine, config.problem_format.labels))
        if distribution is None:
            answers = _open(built, request)
        else:
            plan = {"request": {"model": absolute(model), **settings}}
            unit = f"{__name__}:ask_unit"
            same = built.in_tasks(unit, build.tasks("nonce"), plan, distribution)

            def refuse(pairs: Sequence[Pair]) -> pa.Table:
                raise ValueError(
                    f"{build.path}: expected answers to all pairs from the tasks, {len(pairs)} "
                    "are missing; run the same command again"
                )

            answers = _Answers(same, _parts_folder(built, same), refuse)
        build.nonce_made.unlink(missing_ok=True)
        counts = _write(built, answers)
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


@dataclass(frozen=True, slots=True)
class _Answers:
    """A model's answers to pairs, kept in parts."""

    model: dict[str, Any]
    folder: Path
    ask: Callable[[Sequence[Pair]], pa.Table]
    """Function from pairs to a table with a column of their labels."""

    def part(self, pairs: Sequence[Pair]) -> dict[Pair, str]:
        """Return the labels of a part; ask and write the part if it is missing or damaged."""
        table = read_or_make(self.folder, digest_of(pairs)[:16], partial(self.ask, pairs))
        return dict(zip(pairs, table["label"].to_pylist(), strict=True))


def _open(built: Built, request: ModelRequest) -> _Answers:
    """Open the model and the store of its answers."""
    problem_format, sources = built.config.problem_format, [built.config.source]
    labels = problem_format.labels

    def labelled_seeds() -> LabelledPairs:
        """Return some problems and their gold labels, to find out which label each class means."""
        blocks = (read_block(built.run.problems, number) for number in range(len(built.sizes)))
        seeds = list(islice(chain.from_iterable(blocks), ASKED_SEEDS))
        gold = np.array([labels.index(seed.label) for seed in seeds], np.int64)
        return [_pair(seed.texts) for seed in seeds], gold

    opened = open_model(
        request, problem_format=problem_format, sources=sources, seeds=labelled_seeds
    )

    def ask(pairs: Sequence[Pair]) -> pa.Table:
        """Return the most probable label of each pair."""
        found = [""] * len(pairs)
        for positions, probabilities in opened.probabilities(pairs):
            require_probabilities([pairs[n] for n in positions], labels, probabilities)
            for position, best in zip(positions, probabilities.argmax(axis=1), strict=True):
                found[position] = labels[best]
        return pa.table({"label": pa.array(found, pa.string())})

    described = opened.describe()
    return _Answers(described, _parts_folder(built, described), ask)


def _parts_folder(built: Built, model: Mapping[str, Any]) -> Path:
    """Open or make the store of a model with this description; return its folder of parts."""
    identity = {**model, "labels": list(built.config.problem_format.labels)}
    store = built.store(built.run.nonce_parts) / f"{slug(model['name'])}-{digest_of(identity)[:12]}"
    require_header(store, identity, contents="answers", redo="merge-nli signals --nonce")
    return store / "parts"


def in_form(stem: str, tag: str) -> str:
    """Give a made-up stem the form that a Penn tag asks for.

    >>> [in_form("blodask", tag) for tag in ("NN", "NNS", "VBD", "VBG", "JJ", "JJR")]
    ['blodask', 'blodasks', 'blodasked', 'blodasking', 'blodasky', 'blodaskier']
    """
    return stem + _ENDING.get(tag, "")


def nonce_stems(
    word: str, tags: Collection[str], *, key: str, not_in: Collection[str] = ()
) -> list[str]:
    """Make `NONCE_WORDS` stems, by key and word; no form is an English word or in `not_in`."""
    rng = random.Random(f"{key}\n{word}")

    def choose(parts: Sequence[str]) -> str:
        return parts[int(rng.random() * len(parts))]

    starts_with_vowel = fitting_article(word) == "an"
    found: list[str] = []
    while len(found) < NONCE_WORDS:
        # Two syllables; "u" begins no word, as it may sound like "you".
        start = choose("aeio") if starts_with_vowel else choose(_ONSETS) + choose("aeiou")
        stem = start + choose(_MIDDLES) + choose("aeio") + choose(_ENDS)
        forms = {stem, *(in_form(stem, tag) for tag in tags)}
        if stem not in found and forms.isdisjoint(not_in) and not any(map(zipf_frequency, forms)):
            found.append(stem)
    return found


def nonce_variants(
    word: SharedWord, sentences: Sequence[Sentence], seed_id: str
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Replace a shared word by nonce words in its forms; return stems, and the texts of each."""
    places = [
        [sentence.tokens[n] for n in at]
        for sentence, at in zip(sentences, word.positions, strict=True)
    ]
    own = [t.tag for of_text in places for t in of_text if coarse_class(t.tag) == word.word_class]

    def form(tag: str) -> str:
        # A token tagged otherwise, as "running" as a preposition, gets the form of the others.
        return tag if coarse_class(tag) in WORD_CLASSES or not own else own[0]

    stems = nonce_stems(
        word.word,
        {token.tag for of_text in places for token in of_text},
        key=f"{seed_id}\n{word.word_class}",
        not_in={token.text.lower() for sentence in sentences for token in sentence.tokens},
    )
    texts = [
        tuple(
            substitute(
                sentence.text,
                [token.span for token in of_text],
                [match_case(in_form(stem, form(token.tag)), token.text) for token in of_text],
            )[0]
            for sentence, of_text in zip(sentences, places, strict=True)
        )
        for stem in stems
    ]
    return stems, texts


def _write(built: Built, answers: _Answers) -> dict[tuple[str, str], Counter[str]]:
    """Write answers by block; return counts of words, `seed_right`, `hangs` by label and class."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    with (
        tqdm(total=sum(built.sizes), desc=answers.model["name"], unit="problem") as bar,
        atomic(built.build.nonce) as path,
        RowGroupWriter(path, NONCE_SCHEMA) as writer,
    ):
        for number, size in enumerate(built.sizes):
            questions = _questions(built, number)
            parts, known = _parts(questions), dict[Pair, str]()
            for place, pairs in enumerate(parts):
                known |= answers.part(pairs)
                bar.update((place + 1) * size // len(parts) - place * size // len(parts))
            rows = []
            for row, label, asked in questions:
                own, *others = (known[pair] == label for pair in asked)
                rows.append({**row, "seed_right": own, "nonce_right": sum(others)})
                found = hangs(own, sum(others), len(others))
                of_word = counts.setdefault((label, row["word_class"]), Counter())
                of_word.update(words=1, seed_right=own, hangs=bool(found))
            writer.write(pa.Table.from_pylist(rows, NONCE_SCHEMA))
            bar.update(0 if parts else size)
    return counts


_Question = tuple[dict[str, Any], str, list[Pair]]
"""A word of a seed, as a row of `NONCE_SCHEMA` without answers; the label; and the pairs that
the model is asked about: the seed, and the seed with each of the stems."""


def _questions(built: Built, block: int) -> list[_Question]:
    """List the questions about the words of a block that have replacements."""
    problems = built.problems(block)
    seeds = {seed.seed_id: seed for seed in problems.seeds}
    names = ["seed_id", "word_class", "word"]
    columns = (column.to_pylist() for column in built.replacements(problems, names).columns)
    # Where other words change too, the shared word comes first.
    keys = dict.fromkeys(
        (*of, words.partition(" ")[0]) for *of, words in zip(*columns, strict=True)
    )
    found = []
    for seed_id, word_class, word in keys:
        seed = seeds[seed_id]
        (shared,) = (
            w for w in problems.words[seed_id] if (w.word, w.word_class) == (word, word_class)
        )
        stems, variants = nonce_variants(shared, problems.of(seed), seed_id)
        row = {**dict(zip(names, (seed_id, word_class, word), strict=True)), "stems": stems}
        found.append((row, seed.label, [_pair(texts) for texts in (seed.texts, *variants)]))
    return found


def _parts(questions: Sequence[_Question]) -> list[list[Pair]]:
    pairs = list(dict.fromkeys(pair for *_, asked in questions for pair in asked))
    return [pairs[start : start + PART_SIZE] for start in range(0, len(pairs), PART_SIZE)]


def _pair(texts: Sequence[str]) -> Pair:
    """Return a problem as a pair for models: the first text, and the others joined."""
    return texts[0], " ".join(texts[1:])


@keeps_result
def ask_unit(folder: Path, unit: str) -> dict[str, Any]:
    """Do a unit of work: ask about a share of missing parts; return the model's description."""
    (built, plan), share = Built.of_task(folder), Share.parse(unit)
    answers, blocks = _open(built, ModelRequest(**plan["request"])), len(built.sizes)
    for block in range(blocks):
        if share.looks_at(block, blocks):
            for number, pairs in enumerate(_parts(_questions(built, block))):
                if share.takes(number, block, blocks):
                    answers.part(pairs)
    return answers.model


def nonce_lines(made: Mapping[str, Any]) -> list[str]:
    """Write the result of `write_nonce_answers` as lines of text, by label and word class."""

    def hangs(rows: Sequence[Mapping[str, Any]]) -> str:
        hang, right = (sum(row[key] for row in rows) for key in ("hangs", "seed_right"))
        return f"{hang:,} of {right:,}" + (f" ({100 * hang / right:.0f} %)" if right else "")

    rows = made["words"]
    lines = [
        f"{sum(row['words'] for row in rows):,} words of seeds; {made['model']['name']} gives the "
        f"seed its label, and loses it with most of {made['nonce_words']} made-up words, for "
        f"{hangs(rows)}:"
    ]
    for key in ("label", "word_class"):
        for value in dict.fromkeys(row[key] for row in rows):
            lines.append(f"  {value}: {hangs([row for row in rows if row[key] == value])}")
    return lines
