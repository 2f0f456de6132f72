"""Counts over a run's problems and suggestions, for `analyse seeds` and `analyse filters`."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tqdm import tqdm

from generation.config import Config
from generation.problems.on_disk import block_sizes, read_block
from generation.problems.substitutions import Substitutions
from generation.problems.tagging import Tagger, tag_problems
from generation.records import Scores, pairs, split
from generation.run_folder import RunFolder
from generation.suggestions.store import read_scores, stored_vocabulary, unchanged_questions
from generation.suggestions.vocabulary import Vocabulary
from generation.variants.equation import Lexicon, Words
from generation.variants.grammar import family_of, has_library
from generation.variants.reasons import NO_REASON, Reason
from generation.variants.validation import judge_in_context
from generation.variants.work import BlockWork
from merge_dataset import files
from merge_dataset.executors import map_blocks
from merge_dataset.schema import WORD_CLASSES

log = logging.getLogger(__name__)

PASSED: Final = ("suggestions", "whole_words", "same_class", "more_probable", "both")
"""Columns of counts: suggestions, whole words among them (D4), words that keep the class in context
(D8), suggestions more probable than the original (D5), and words that pass the last two."""

_COUNTED: Final = ("occurrences", "not_in_vocabulary", *PASSED)
"""All columns: occurrences, those without suggestions, and the columns `PASSED`."""
_AT_ONCE: Final = 256
"""Number of questions processed together, whose suggestions are held in memory."""


def count_run(run: str | Path) -> dict[str, Any]:
    """Count shared words of all classes, and suggestions by filter passed; return `counts.json`."""
    folder = RunFolder(Path(run))
    folder.require("suggest")
    with folder.locked():
        unchanged_questions(folder)
        config = Config.read(folder.config)
        suggested = files.read_record(folder.suggested)
        if "asked" in suggested:
            raise ValueError(
                f"{folder.path}: expected answers to all {suggested['questions']:,} questions, got "
                f"{suggested['asked']['questions']:,}; run the command that made this run again "
                "with --ask-all"
            )
        work = _Counting(folder, replace(config, without_mlms=()))
        sizes = block_sizes(folder.problems)
        fields, sums = config.problem_format.fields, 0
        if not has_library():
            log.warning(
                "lemminflect is not installed, so it is not told which words have another form in "
                "their problem; for that: pip install 'merge-nli[morphology]', and count again"
            )
        folder.counts.unlink(missing_ok=True)
        results = map_blocks(range(len(sizes)), partial(getattr, work, "counts"),
                             workers=config.workers)  # fmt: skip
        with (
            tqdm(total=sum(sizes), desc="filters", unit="problem") as bar,
            files.atomic(folder.shared_words) as path,
            files.RowGroupWriter(path, _words_schema(fields)) as words,
        ):
            for size, (table, of_block) in zip(sizes, results, strict=True):
                words.write(table)
                sums = sums + of_block
                bar.update(size)
        of_mlms = dict(zip(work.stores, np.asarray(sums).tolist(), strict=True))
        groups = list(product(WORD_CLASSES, fields))
        filters = [
            {"mlm": mlm["name"], "word_class": word_class, "field": field,
             **dict(zip(_COUNTED, counted, strict=True))}
            for mlm in suggested["mlms"]
            for (word_class, field), counted in zip(groups, of_mlms[mlm["name"]], strict=True)
            if counted[0]
        ]  # fmt: skip
        tables = {path.name: path for path in (folder.problems, folder.shared_words)}
        record = {
            "source": config.source,
            "tagger": work.tagger.name,
            "tag_match": config.tag_match,
            "other_forms": has_library(),
            "filters": filters,
            "made_from": files.digest_of_file(folder.suggested),
            "files": files.digests(tables),
        }
        files.write_record(folder.counts, record)
        return record


def _words_schema(fields: Sequence[str]) -> pa.Schema:
    return pa.schema(
        [
            *((name, pa.string()) for name in ("seed_id", "word_class", "word")),
            *((f"{field}_occurrences", pa.int32()) for field in fields),
            ("other_forms", pa.list_(pa.string())),
        ]
    )


class _Counting(BlockWork):
    """Work that counts shared words, and the suggestions for them, in blocks of problems."""

    def counts(self, block: int) -> tuple[pa.Table, NDArray[np.int64]]:
        """Return the block's shared words, and [MLMs, classes × texts, columns] sums of counts."""
        config, fields = self.config, self.config.problem_format.fields
        seeds = read_block(self.run.problems, block)
        problems = tag_problems(seeds, self.tagger, WORD_CLASSES, config.sharing)
        schema = _words_schema(fields)
        rows: list[dict[str, Any]] = []
        for seed, word in problems.pairs():
            sentences, forms = problems.of(seed), None
            if has_library():
                family = family_of(word.word, word.word_class, sentences)
                forms = sorted({sentences[text].tokens[at].text for text, at in family})
            values = [seed.seed_id, word.word_class, word.word, *map(len, word.positions)]
            rows.append(dict(zip(schema.names, [*values, forms], strict=True)))
        vocabularies = {mlm: stored_vocabulary(store) for mlm, store in self.stores.items()}
        asked = {
            seed_id: [word for word in words if word.word_class in config.word_classes]
            for seed_id, words in problems.words.items()
        }
        words = Words.of(replace(problems, words=asked), Lexicon.of(vocabularies), config)
        answers = {
            mlm: (read_scores(store, words.queries), vocabularies[mlm])
            for mlm, store in self.stores.items()
        }
        passed = count_passed(words, answers, self.tagger, tag_match=config.tag_match)
        is_missing = passed[:, :, :1] == 0
        counted = np.concatenate([np.ones_like(is_missing), is_missing, passed], axis=2)
        sums = np.zeros((len(passed), len(WORD_CLASSES) * len(fields), len(_COUNTED)), np.int64)
        group = words.word_class[words.word_of] * len(fields) + words.text_of
        for of_mlm, of_queries in zip(sums, counted, strict=True):
            np.add.at(of_mlm, group, of_queries)
        return pa.Table.from_pylist(rows, schema), sums


def count_passed(
    words: Words,
    answers: Mapping[str, tuple[Scores, Vocabulary]],
    tagger: Tagger,
    *,
    tag_match: str,
) -> NDArray[np.int32]:
    """Return [MLMs, occurrences, len(PASSED)] numbers of suggestions that pass each filter alone.

    Words are tagged at all occurrences (D2). Counts are 0 where the original is no token (D3).
    """
    counts = np.zeros((len(answers), len(words.queries), len(PASSED)), np.int32)
    places, casings = words.place[words.word_of, words.text_of], words.casing[words.word_of]
    for start in range(0, len(words.queries), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        rows, keys, probable = [], [], []
        of_part = counts[:, part]
        for n, (mlm, (every, vocabulary)) in enumerate(answers.items()):
            scores = every.take(part)
            suggested = scores.answered[:, None] & (scores.tokens >= 0)
            not_alphabetic, subword, less_probable = (
                reason.drops(suggested, scores, vocabulary, Config())
                for reason in (Reason.NOT_ALPHABETIC, Reason.SUBWORD, Reason.LESS_PROBABLE)
            )
            whole = suggested & ~not_alphabetic & ~subword
            more_probable = suggested & ~less_probable
            row, column = np.nonzero(whole)
            word = words.lexicon.of_token[mlm][scores.tokens[row, column]]
            rows.append(row)
            keys.append(pairs(places[part][row], words.lexicon.form(casings[part][row], word)))
            probable.append(more_probable[row, column])
            of_part[n, :, 0] = suggested.sum(1)
            of_part[n, :, 1] = whole.sum(1)
            of_part[n, :, 3] = more_probable.sum(1)
        distinct, of_key = np.unique(np.concatenate(keys), return_inverse=True)
        keeps_class = np.zeros(0, np.bool_)
        if len(distinct):
            # All occurrences are replaced, as in a variant, and each has to keep its class.
            put = Substitutions(words.places, words.lexicon.forms, *split(distinct)).compact()
            reasons, _ = judge_in_context(put, tagger, tag_match=tag_match)
            keeps_class = (reasons == NO_REASON)[of_key]
        ends = np.cumsum([len(row) for row in rows])[:-1]
        for n, same in enumerate(np.split(keeps_class, ends)):
            size = of_part.shape[1]
            of_part[n, :, 2] = np.bincount(rows[n][same], minlength=size)
            of_part[n, :, 4] = np.bincount(rows[n][same & probable[n]], minlength=size)
    return counts
