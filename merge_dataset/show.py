"""Readable display of problems and variants of a dataset folder, with marked words."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from merge_dataset import layout
from merge_dataset.files import draw_rank, read_table
from merge_dataset.schema import VARIANT_CLASSES
from merge_dataset.settings import did_you_mean


def choose_problems(
    folder: Path,
    configs: Sequence[str] = (),
    *,
    seed_ids: Sequence[str] = (),
    n: int = 3,
    variants: int | None = 5,
    rng_seed: int = 0,
) -> list[dict[str, Any]]:
    """Draw `n` problems of each configuration (default: of all classes), or named ones.

    Returns problems with `config`, `seed_id`, `label`, `texts` by field, rows of some or all
    `variants`, and `counts` of all of them by class and original.
    """
    layout.require_dataset(folder)
    layout.check_configurations(folder, configs)
    chosen = list(configs) or layout.collections(folder)
    ids = {
        config: [
            seed_id
            for file in layout.split_files(folder, config)["seeds"]
            for seed_id in read_table(folder / file, ["seed_id"])["seed_id"].to_pylist()
        ]
        for config in chosen
    }
    known = dict.fromkeys(seed for own in ids.values() for seed in own)
    if unknown := next((seed for seed in seed_ids if seed not in known), None):
        names = [*known]
        part = next((name for name in names if unknown in name or name in unknown), None)
        # Not among all variants, as each takes time.
        hint = f"; did you mean {part!r}?" if part else did_you_mean(unknown, names[:20_000])
        raise ValueError(
            f"{folder}: expected the seed_id of one of {len(names):,} problems of "
            f"{', '.join(ids)}, such as {names[0]!r}, got {unknown!r}{hint}"
        )
    problems = []
    for config in chosen:
        mine = [seed for seed in seed_ids if seed in set(ids[config])]
        if not seed_ids:
            mine = sorted(ids[config], key=lambda seed: draw_rank(rng_seed, seed))[:n]
        problem_format, files = layout.format_in(folder, config), layout.split_files(folder, config)
        where = pc.field("seed_id").isin(mine)  # other row groups are not read
        seeds, rows = (
            [row for name in names for row in read_table(folder / name, where=where).to_pylist()]
            for names in (files["seeds"], files["variants"])
        )
        by_id = {row["seed_id"]: row for row in seeds}
        for seed in map(by_id.__getitem__, mine):
            own = sorted((row for row in rows if row["seed_id"] == seed["seed_id"]), key=_order)
            ranked = sorted(own, key=lambda row: draw_rank(rng_seed, row["variant_id"]))
            problems.append(
                {
                    "config": config,
                    "seed_id": seed["seed_id"],
                    "label": problem_format.labels[seed["label"]],
                    "texts": {field: seed[field] for field in problem_format.fields},
                    "variants": sorted(ranked[:variants], key=_order),
                    "counts": Counter((row["word_class"], row["original"]) for row in own),
                }
            )
    return problems


def render(problem: dict[str, Any], mark: Callable[[str], str] = "[{}]".format) -> str:
    """Render a problem, with the variants of each word below it."""
    texts = problem["texts"]
    lines = [f"{problem['seed_id']}  {problem['config']}  {problem['label']}"]
    width = max(map(len, texts))
    lines += [f"  {field:<{width}}  {text}" for field, text in texts.items()]
    for (word_class, original), count in problem["counts"].items():
        word = (word_class, original)
        mine = [v for v in problem["variants"] if (v["word_class"], v["original"]) == word]
        if mine:
            name = word_class if original in texts.values() else " ".join(word)
            lines.append(f"  {name}: {len(mine)} of {count} variants")
            lines += [f"    {line_of(row, texts, mark)}" for row in mine]
    return "\n".join(lines)


def line_of(
    row: dict[str, Any], fields: Iterable[str], mark: Callable[[str], str] = "[{}]".format
) -> str:
    """Render the texts of a variant on one line, with marked words."""
    return " / ".join(marked(row[field], row[f"{field}_spans"], mark) for field in fields)


def marked(text: str, spans: Iterable[Sequence[int]], mark: Callable[[str], str]) -> str:
    """Apply `mark` to parts of a text, given as ascending half-open spans of characters.

    >>> marked("A boy runs.", [[2, 5]], "[{}]".format)
    'A [boy] runs.'
    >>> marked("An owl.", [[0, 2], [3, 6]], {"owl": "girl", "An": "A"}.__getitem__)
    'A girl.'
    """
    for start, end in reversed(list(spans)):
        text = f"{text[:start]}{mark(text[start:end])}{text[end:]}"
    return text


def marked_parts(text: str, spans: Sequence[Sequence[int]]) -> list[tuple[str, bool]]:
    """Cut a text into parts, marked or not, as JavaScript counts offsets differently.

    >>> marked_parts("A girl runs.", [[2, 6]])
    [('A ', False), ('girl', True), (' runs.', False)]
    """
    bounds = [0, *(offset for span in spans for offset in span), len(text)]
    cut = [(text[a:b], i % 2 == 1) for i, (a, b) in enumerate(pairwise(bounds))]
    return [(part, is_marked) for part, is_marked in cut if part]


def spans_in_seed(spans: Sequence[Sequence[int]], lengths: Sequence[int]) -> list[list[int]]:
    """Compute the spans of originals from the spans of replacements and the originals' lengths.

    >>> spans_in_seed([[2, 8], [15, 21]], [3, 3])  # a boy and a boy → a poodle and a poodle
    [[2, 5], [12, 15]]
    """
    originals, shift = [], 0
    for (start, end), length in zip(spans, lengths, strict=True):
        originals.append([start - shift, start - shift + length])
        shift += end - start - length
    return originals


def _order(row: dict[str, Any]) -> tuple[int, str, str]:
    return VARIANT_CLASSES.index(row["word_class"]), row["original"], row["replacement"]
