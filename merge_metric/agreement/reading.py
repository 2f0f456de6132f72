"""Answers, and what sessions or a dataset know of the variants they are about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from merge_dataset.annotation.sample import Item as Sampled
from merge_dataset.annotation.session import SESSION, Session, read_session
from merge_dataset.annotation.transfer import read_answers
from merge_dataset.files import read_row_groups
from merge_dataset.layout import all_configurations, require_dataset, split_files
from merge_dataset.provenance import words_at_once
from merge_dataset.schema import parse_config_name
from merge_metric.agreement.judgements import Cell, Item, Judgements
from merge_metric.agreement.provided import mlm_columns

_KNOWN: Final = ("variant_id", "seed_id", "source", "word_class")


@dataclass(frozen=True, slots=True)
class Answers:
    """What was judged, and what it was drawn from."""

    judgements: Judgements
    seeds: Mapping[Cell, int] | None
    """Source and class → seeds in the dataset; None where they are not known."""


def read(
    files: Sequence[Path], sessions: Sequence[Path] = (), dataset: Path | None = None
) -> Answers:
    """Read answers, and what is known of the variants they are about.

    Args:
        files: Session folders, annotators' files (.jsonl) and tables (.csv).
        sessions: Session folders that know the variants, beside those among `files`.
        dataset: A dataset folder, for variants that no session knows.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: one is malformed, or there are answers to variants of which nothing is known.
    """
    answers = read_answers(files)
    opened = [read_session(path) for path in files if (path / SESSION).is_file()]
    opened += [read_session(path) for path in sessions]
    items = dict(item for session in opened for item in _of_session(session))
    seeds = _seeds_of_sessions(opened)
    if dataset is not None:
        require_dataset(dataset)
        unknown = set(answers["variant_id"].to_pylist()) - set(items)
        items |= dict(_of_dataset(dataset, unknown))
        sources = {item.source for item in items.values()}
        there = {cell: n for cell, n in _seeds_of(dataset).items() if cell[0] in sources}
        seeds = there | seeds
    known = bool(opened) or dataset is not None
    return Answers(Judgements.of(answers, items if known else None), seeds if known else None)


def _of_session(session: Session) -> Iterator[tuple[str, Item]]:
    population = session.description["population"]
    # Sessions of before variants could replace several do not say how many.
    words = {(row["source"], row["class"]): row.get("words_at_once", 1) for row in population}
    for name, item in session.items.items():
        yield name, _of_sampled(item, words.get((item.source, item.word_class), 1))


def _of_sampled(item: Sampled, words: int) -> Item:
    return Item(
        source=item.source,
        word_class=item.word_class,
        seed_id=item.seed_id,
        validated=_validated(item.mlms_by_field.values()),
        chance=item.chance,
        words_at_once=words,
    )


def _validated(by_text: Iterable[Sequence[str]]) -> tuple[frozenset[str], ...]:
    """Who validated which text; nothing of a paraphrase, which nobody did."""
    validated = tuple(map(frozenset, by_text))
    return validated if any(validated) else ()


def _seeds_of_sessions(sessions: Iterable[Session]) -> dict[Cell, int]:
    """Of each source and class that something was drawn from.

    Raises:
        ValueError: two sessions were drawn from different data.
    """
    seeds: dict[Cell, tuple[int, Path]] = {}
    for session in sessions:
        for row in session.description["population"]:
            cell = (row["source"], row["class"])
            n, folder = seeds.setdefault(cell, (row["seeds"], session.folder))
            if n != row["seeds"]:
                raise ValueError(
                    f"expected sessions of the same data, got {n} seeds of {' '.join(cell)} in "
                    f"{folder} and {row['seeds']} in {session.folder}; look at them one by one"
                )
    return {cell: n for cell, (n, _) in seeds.items()}


def _of_dataset(dataset: Path, wanted: set[str]) -> Iterator[tuple[str, Item]]:
    ids = pa.array(sorted(wanted), pa.string())
    for cell, _, variants in _class_files(dataset):
        words = words_at_once(dataset, *cell)
        columns = mlm_columns(variants)
        for table in read_row_groups(variants, [*_KNOWN, *columns]):
            for row in table.filter(pc.is_in(table["variant_id"], ids)).to_pylist():
                yield (
                    row["variant_id"],
                    Item(
                        source=row["source"],
                        word_class=row["word_class"],
                        seed_id=row["seed_id"],
                        validated=_validated(row[name] for name in columns),
                        words_at_once=words,
                    ),
                )


def _seeds_of(dataset: Path) -> dict[Cell, int]:
    return {cell: pq.read_metadata(seeds).num_rows for cell, seeds, _ in _class_files(dataset)}


def variant_files(dataset: Path) -> list[Path]:
    """The files of a dataset's variants, a class in each."""
    require_dataset(dataset)
    return [variants for _, _, variants in _class_files(dataset)]


def _class_files(dataset: Path) -> Iterator[tuple[Cell, Path, Path]]:
    """Source and class, seeds, variants."""
    for config in all_configurations(dataset):
        source, word_class = parse_config_name(config)
        if word_class is not None:
            files = split_files(dataset, config)
            yield (source, word_class), dataset / files["seeds"][0], dataset / files["variants"][0]
