"""Answers to seeds with nonce words, as `merge-nli signals --nonce` leaves them for builds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from generation.run_folder import RunFolder
from merge_dataset.files import read_where

NONCE_WORDS: Final = 3
"""Nonce words that each shared word is replaced by, one after the other."""

SCHEMA: Final = pa.schema(
    [
        ("seed_id", pa.string()),
        ("word_class", pa.string()),
        ("word", pa.string()),
        ("stems", pa.list_(pa.string())),
        ("seed_right", pa.bool_()),
        ("nonce_right", pa.int8()),
    ]
)
"""A row per shared word that has replacements: the stems put in its place, whether the model gives
the seed its gold label, and for how many of the nonce words it gives it."""


def hangs(seed_right: bool, nonce_right: int, asked: int) -> bool | None:
    """Tell whether a label hangs on a word: the model loses it with most nonce words.

    Returns:
        None where the model gives the seed itself another label, so that it tells nothing.

    >>> hangs(True, 1, 3), hangs(True, 2, 3), hangs(False, 0, 3)
    (True, False, None)
    """
    return 2 * nonce_right < asked if seed_right else None


@dataclass(frozen=True, slots=True)
class NonceAnswers:
    """A file of answers. Can be sent to other processes."""

    path: Path
    made_by: dict[str, Any]
    """The model, for the manifest."""

    @classmethod
    def of(cls, build: RunFolder, base: RunFolder) -> Self | None:
        """Open those of a build, else those of the run it belongs to; None where there are none.

        Raises:
            ValueError: they were changed, or are of other problems than the run's.
        """
        for folder in (build, base):
            made_by = folder.record_of(folder.nonce, folder.nonce_made, base)
            if made_by is not None:
                return cls(folder.nonce, made_by)
        return None

    def hanging(self, keys: Sequence[tuple[str, str, str]]) -> list[bool | None]:
        """Tell for rows whether their label hangs on a word that they replace.

        Args:
            keys: [n] Seed, word class, and words with spaces between, of a block.

        Returns:
            [n] None where nothing is known of any of the words.
        """
        if not keys:
            return []
        ids = [seed_id for seed_id, *_ in keys]
        span = [("seed_id", ">=", min(ids)), ("seed_id", "<=", max(ids))]
        rows = read_where(self.path, span).to_pylist()
        known = {
            (row["seed_id"], row["word_class"], row["word"]): hangs(
                row["seed_right"], row["nonce_right"], len(row["stems"])
            )
            for row in rows
        }
        found = []
        for seed_id, word_class, words in keys:
            answers = {known.get((seed_id, word_class, word)) for word in words.split(" ")}
            found.append(True if True in answers else False if False in answers else None)
        return found


def distinct_words(replacements: pa.Table) -> list[tuple[str, str, str]]:
    """List seed, class and shared word of replacements, each once and in order.

    Where more than the word changes, it stands first in `word`.
    """
    first = pc.list_element(pc.split_pattern(replacements["word"], " "), 0)
    columns = (replacements["seed_id"], replacements["word_class"], first)
    keys = zip(*(column.to_pylist() for column in columns), strict=True)
    return list(dict.fromkeys(keys))
