"""`merge-nli count`: counts over a run's problems and suggestions that a build does without.

For tables about what a build starts from: which problems share words (paper, table 3) and what
each filter by itself lets pass (table 5). No masked LM runs, and no build is needed or changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from tqdm import tqdm

from generation.config import Config
from generation.problems.morphology import has_library
from generation.problems.on_disk import block_sizes, read_block
from generation.problems.shared_words import TaggedProblems, tag_problems
from generation.problems.substitutions import Place, Substitutions
from generation.problems.tagging import Tagger
from generation.reasons import NO_REASON, Reason
from generation.records import MaskedQuery, Scores, pairs, split
from generation.run_folder import RunFolder
from generation.suggestions.ask import stores_of, unchanged_questions
from generation.suggestions.questions import Questions, Shard, masked_queries
from generation.suggestions.store import SuggestionStore
from generation.suggestions.vocabulary import Vocabulary
from generation.variants.adaptation import family_of
from generation.variants.candidates import each_filter, in_words
from generation.variants.validation import judge_in_context
from generation.variants.words import CASINGS, Lexicon, casing_of
from merge_dataset.executors.calls import map_blocks
from merge_dataset.files import (
    RowGroupWriter,
    atomic,
    digest_of_file,
    digests,
    read_record,
    write_record,
)
from merge_dataset.schema import WORD_CLASSES

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

PASSED: Final = ("suggestions", "whole_words", "same_class", "more_probable", "both")
"""Columns of counts: suggestions, those that are whole words (D4), that keep the word class in
context (D8), that are more probable than the original (D5), and the last two together."""

_AT_ONCE: Final = 256
"""Questions that are worked on together: their suggestions are held in memory."""


def count_run(run: str | Path, *, workers: int | None = None) -> dict[str, Any]:
    """Count shared words of all classes, and the suggestions that each filter lets pass.

    Returns:
        The contents of `counts.json`.

    Raises:
        BlockingIOError: another command is at work in the folder.
        FileNotFoundError: it holds no suggestions.
        ValueError: suggestions are missing or were changed since, or the tagger cannot be loaded.
    """
    folder = RunFolder(Path(run))
    folder.require_suggestions()
    with folder.locked():
        questions = unchanged_questions(folder)
        config = Config.read(folder.config).overlaid(None, {"workers": workers} if workers else {})
        suggested = read_record(folder.suggested)
        if "asked" in suggested:
            raise ValueError(
                f"{folder.path}: expected answers to all {suggested['questions']:,} questions, as "
                f"these counts are of all suggestions; {suggested['asked']['questions']:,} were "
                "asked; run the command that made this run again with --ask-all"
            )
        mlms = suggested["mlms"]
        tagger = Tagger.load(config.tagger)
        folder.counts.unlink(missing_ok=True)
        work = _Work(questions, stores_of(folder, config, mlms), config)
        parts = []
        with tqdm(total=len(questions), desc="filters", unit="question") as bar:
            for part in map_blocks(questions.shards, work.open, workers=config.workers):
                parts.append(part)
                bar.update(part.shape[1])
        # [MLMs, questions, len(PASSED)] counts, questions by shard and key
        passed = np.concatenate(parts, axis=1)
        tally = _Tally([mlm["name"] for mlm in mlms], config, questions, passed)
        _write_words(folder, config, tagger, tally)
        record = {
            "source": config.source,
            "tagger": tagger.name,
            "tag_match": config.tag_match,
            "other_forms": has_library(),
            "filters": list(tally.rows()),
            "made_from": digest_of_file(folder.suggested),
            "files": digests({path.name: path for path in (folder.problems, folder.shared_words)}),
        }
        write_record(folder.counts, record)
        return record


@dataclass(frozen=True, slots=True)
class _Work:
    """Everything that a shard needs. Can be sent to other processes."""

    questions: Questions
    stores: Mapping[str, SuggestionStore]
    """Stores by masked LM."""
    config: Config

    def open(self) -> Callable[[Shard], NDArray[np.int32]]:
        """Return the function that works on shards; each process has its own tagger."""
        vocabularies = {mlm: store.vocabulary() for mlm, store in self.stores.items()}
        tagger = Tagger.load(self.config.tagger, spare_torch=self.config.workers > 1)

        def count(shard: Shard) -> NDArray[np.int32]:
            queries = self.questions.of(shard)
            answers = {
                mlm: in_words(store.answers(shard, queries), vocabularies[mlm])
                for mlm, store in self.stores.items()
            }
            return count_passed(queries, answers, tagger, tag_match=self.config.tag_match)

        return count


class _Tally:
    """Sums of counts by masked LM, word class and text, an occurrence at a time."""

    def __init__(
        self, mlms: Sequence[str], config: Config, questions: Questions, passed: NDArray[np.int32]
    ) -> None:
        """Start without counts."""
        self._mlms, self._config, self._questions, self._passed = mlms, config, questions, passed
        self._fields = config.problem_format.fields
        shape = (len(mlms), len(WORD_CLASSES) * len(self._fields), len(PASSED))
        self._sums = np.zeros(shape, np.int64)
        self._occurrences = np.zeros(shape[:2], np.int64)
        self._missing = np.zeros(shape[:2], np.int64)

    def add(self, problems: TaggedProblems) -> None:
        """Count the occurrences of a block's words that were asked about."""
        groups, queries = [], []
        for seed in problems.seeds:
            for word in problems.words[seed.seed_id]:
                if word.word_class not in self._config.word_classes:
                    continue
                group = WORD_CLASSES.index(word.word_class) * len(self._fields)
                for text, place in problems.places(seed, word):
                    asked = masked_queries(place, masking=self._config.masking)
                    queries += asked
                    groups += [group + text] * len(asked)
        if not queries:
            return
        rows, group_of = self._questions.rows(queries), np.array(groups)
        for n in range(len(self._mlms)):
            counts = self._passed[n, rows]
            np.add.at(self._sums[n], group_of, counts)
            np.add.at(self._occurrences[n], group_of, 1)
            np.add.at(self._missing[n], group_of, counts[:, 0] == 0)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a record per masked LM, word class and text."""
        for n, mlm in enumerate(self._mlms):
            for group, sums in enumerate(self._sums[n].tolist()):
                word_class, text = divmod(group, len(self._fields))
                if self._occurrences[n, group]:
                    yield {
                        "mlm": mlm,
                        "word_class": WORD_CLASSES[word_class],
                        "field": self._fields[text],
                        "occurrences": int(self._occurrences[n, group]),
                        "not_in_vocabulary": int(self._missing[n, group]),
                        **dict(zip(PASSED, sums, strict=True)),
                    }


def _write_words(folder: RunFolder, config: Config, tagger: Tagger, tally: _Tally) -> None:
    """Write `shared_words.parquet` block by block, and add each block to the tally."""
    if not has_library():
        log.warning(
            "lemminflect is not installed, so it is not told which words have another form in "
            "their problem; for that: pip install 'merge-nli[morphology]', and count again"
        )
    fields = config.problem_format.fields
    schema = pa.schema(
        [
            ("seed_id", pa.string()),
            ("word_class", pa.string()),
            ("word", pa.string()),
            *((f"{field}_occurrences", pa.int32()) for field in fields),
            ("other_forms", pa.list_(pa.string())),
        ]
    )
    sizes = block_sizes(folder.problems)
    with (
        tqdm(total=sum(sizes), desc="shared words", unit="problem") as bar,
        atomic(folder.shared_words) as path,
        RowGroupWriter(path, schema) as words,
    ):
        for number, size in enumerate(sizes):
            seeds = read_block(folder.problems, number)
            problems = tag_problems(seeds, tagger, WORD_CLASSES, config.sharing)
            rows: list[dict[str, Any]] = []
            for seed in problems.seeds:
                sentences = problems.of(seed)
                for word in problems.words[seed.seed_id]:
                    forms = None
                    if has_library():
                        family = family_of(word, sentences)
                        forms = sorted({sentences[text].tokens[at].text for text, at in family})
                    counts = {
                        f"{field}_occurrences": len(positions)
                        for field, positions in zip(fields, word.positions, strict=True)
                    }
                    row = {"seed_id": seed.seed_id, "word_class": word.word_class, **counts}
                    rows.append({**row, "word": word.word, "other_forms": forms})
            words.write(pa.Table.from_pylist(rows, schema))
            tally.add(problems)
            bar.update(size)


# --- Each filter by itself ---


def count_passed(
    queries: Sequence[MaskedQuery],
    answers: Mapping[str, tuple[Scores, Vocabulary]],
    tagger: Tagger,
    *,
    tag_match: str,
) -> NDArray[np.int32]:
    """Count the suggestions that each filter lets pass, whatever the others say.

    A build drops each suggestion for the first reason that applies, and tags only what the cheap
    filters leave. Here all suggestions that are words are tagged.

    Questions about the same sentence stand side by side.

    Returns:
        [MLMs, n, len(PASSED)]; zeros where the original is not in the vocabulary (D3).
    """
    lexicon = Lexicon.of({mlm: vocabulary for mlm, (_, vocabulary) in answers.items()})
    counts = np.zeros((len(answers), len(queries), len(PASSED)), np.int32)
    for start in range(0, len(queries), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        of_part = {mlm: (scores.take(part), known) for mlm, (scores, known) in answers.items()}
        counts[:, part] = _count(queries[part], of_part, lexicon, tagger, tag_match)
    return counts


def _count(
    queries: Sequence[MaskedQuery],
    answers: Mapping[str, tuple[Scores, Vocabulary]],
    lexicon: Lexicon,
    tagger: Tagger,
    tag_match: str,
) -> NDArray[np.int32]:
    # Words are put at all occurrences of the word asked about (D2).
    texts = list(dict.fromkeys(query.sentence for query in queries))
    sentences = dict(zip(texts, tagger.tag(texts), strict=True))
    numbers: dict[tuple[str, str], int] = {}
    places: list[Place] = []
    for query in queries:
        text = query.sentence[slice(*query.span)]
        if (query.sentence, text) not in numbers:
            numbers[query.sentence, text] = len(places)
            tokens = sentences[query.sentence].tokens
            positions = tuple(i for i, token in enumerate(tokens) if token.text == text)
            places.append(Place(sentences[query.sentence], positions))
    asked = [(query.sentence, query.sentence[slice(*query.span)]) for query in queries]
    place = np.array([numbers[key] for key in asked], np.int64)
    casing = np.array([list(CASINGS).index(casing_of(word)) for _, word in asked], np.int64)
    rows, keys, probable = [], [], []
    counts = np.zeros((len(answers), len(queries), len(PASSED)), np.int32)
    for n, (mlm, (scores, vocabulary)) in enumerate(answers.items()):
        alone = each_filter(scores, vocabulary)
        words = alone[Reason.NOT_ALPHABETIC] & alone[Reason.SUBWORD]
        row, column = np.nonzero(words)
        word = lexicon.of_token[mlm][scores.tokens[row, column]]
        rows.append(row)
        keys.append(pairs(place[row], lexicon.form(casing[row], word)))
        probable.append(alone[Reason.LESS_PROBABLE][row, column])
        counts[n, :, 0] = scores.answered * (scores.tokens >= 0).sum(1)
        counts[n, :, 1] = words.sum(1)
        counts[n, :, 3] = alone[Reason.LESS_PROBABLE].sum(1)
    distinct, of_key = np.unique(np.concatenate(keys), return_inverse=True)
    keeps_class = np.zeros(0, np.bool_)
    if len(distinct):
        # All occurrences are replaced, as in a variant, and each has to keep its class.
        put = Substitutions(places, lexicon.forms, *split(distinct)).compact()
        reasons, _ = judge_in_context(put, tagger, tag_match=tag_match)
        keeps_class = (reasons == NO_REASON)[of_key]
    ends = np.cumsum([len(row) for row in rows])[:-1]
    for n, same in enumerate(np.split(keeps_class, ends)):
        counts[n, :, 2] = np.bincount(rows[n][same], minlength=len(queries))
        counts[n, :, 4] = np.bincount(rows[n][same & probable[n]], minlength=len(queries))
    return counts
