"""Checks of paraphrases: ids, seeds, and that nothing but the hypothesis differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from merge_dataset.checks.rules import (
    ROW,
    Finding,
    Rule,
    check,
    collision_findings,
    duplicates,
    fetched,
    quoted,
    repeated_texts,
    rule_findings,
    seeds_findings,
    unused_findings,
    variant_rules,
    view_rows,
    view_with_seeds,
)
from merge_dataset.dataset_columns import OPTIONAL
from merge_dataset.engine import connect
from merge_dataset.layout import collections, format_in, split_files
from merge_dataset.numbered_files import patterns_of
from merge_dataset.provenance import PARAPHRASES
from merge_dataset.schema import (
    PARAPHRASE,
    SIGNALS,
    SPLITS,
    arrow_schema,
    parse_config_name,
    variant_id,
)

_EMPTY: Final = ("premise_spans", "mlms", "premise_mlms", "hypothesis_mlms")

_OF_SEED: Final = ("label", "premise", "hypothesis", "annotator_labels")
"""Columns of a seed that its paraphrases are compared with."""


@check(
    "paraphrases",
    looks_at="ids, values, labels, and that nothing but the hypothesis differs from the seed",
    kind=PARAPHRASES,
)
def check_paraphrases(folder: Path, collection: str) -> Iterator[Finding]:
    """Find what is wrong in the rows of a source's paraphrases, whose columns are right."""
    source, _ = parse_config_name(collection)
    problem_format, files = format_in(folder, collection), split_files(folder, collection)
    seeds_file, variants_file = (", ".join(patterns_of(files[split])) for split in SPLITS)
    with connect() as connection:
        for split in SPLITS:
            view_rows(connection, split, folder, files[split])
        yield from seeds_findings(connection, seeds_file, "seeds", source, problem_format)
        yield from unused_findings(connection, seeds_file, "seeds", "variants")
        view_with_seeds(connection, "paired", "variants", "seeds", _OF_SEED)
        rules = variant_rules(collection, problem_format)
        yield from rule_findings(connection, variants_file, "paired", rules)
        yield from duplicates(connection, variants_file, "variants", "variant_id")
        fields = problem_format.fields
        yield from collision_findings(connection, variants_file, "variants", "seeds", fields)
        query = (
            "SELECT hypothesis, count(*) AS times, seed_id FROM variants GROUP BY seed_id, "
            f"hypothesis HAVING times > 1 ORDER BY min({ROW})"
        )
        for text, times, seed in fetched(connection, query):
            got = f"{text!r} {times} times ({seed})"
            yield Finding(variants_file, "each paraphrase of a seed once", got)
        several = repeated_texts(connection, "variants", "seeds", fields, of_one_seed=False)
        for first, other in several:
            got = f"{first} and {other}"
            yield Finding(variants_file, "texts that stand in one variant", got)
        columns = arrow_schema(problem_format).names
        of_seed = [f"seed {name}" for name in _OF_SEED]
        query = f'SELECT "has seed", {quoted(*of_seed, *columns)} FROM paired ORDER BY {ROW}'
        for has_seed, *values in fetched(connection, query):
            its_seed = dict(zip(_OF_SEED, values, strict=False)) if has_seed else None
            row = dict(zip(columns, values[len(_OF_SEED) :], strict=True))
            for expected, got in paraphrase_problems(row, its_seed):
                yield Finding(variants_file, expected, f"{got} ({row['variant_id']})")
        # The same seed is the same in both collections of its source.
        others = split_files(folder, source)["seeds"] if source in collections(folder) else []
        for number, file in enumerate(others):
            view_rows(connection, f"other_{number}", folder, [file])
            shared = ("premise", "hypothesis", "label")
            view_with_seeds(connection, "compared", "seeds", f"other_{number}", shared)
            differing = (
                Rule(
                    f"{name} as in {file}",
                    f'"has seed" AND {name} IS DISTINCT FROM "seed {name}"',
                    (name, f"seed {name}", "seed_id"),
                    "{0!r} instead of {1!r} ({2})",
                )
                for name in shared
            )
            yield from rule_findings(connection, seeds_file, "compared", differing)


def paraphrase_problems(
    variant: Mapping[str, Any], seed: Mapping[str, Any] | None
) -> Iterator[tuple[str, str]]:
    """Find what is wrong within one paraphrase of a seed, if known, as pairs (expected, got)."""
    text = variant["hypothesis"]
    if text is None:  # found elsewhere, as every missing value
        return
    if seed is not None:
        if variant["premise"] != seed["premise"]:
            yield "the seed's premise", repr(variant["premise"])
        if variant["hypothesis"] == seed["hypothesis"]:
            yield "another hypothesis than the seed's", repr(variant["hypothesis"])
        if variant["original"] != seed["hypothesis"]:
            yield "original to be the seed's hypothesis", repr(variant["original"])
        if (variant["annotator_labels"] or []) != (seed["annotator_labels"] or []):
            yield "the annotator_labels of the seed", str(variant["annotator_labels"])
    if not text.strip():
        yield "a hypothesis with words in it", repr(text)
    if variant["replacement"] != text:
        yield "replacement to be the hypothesis", repr(variant["replacement"])
    if variant["hypothesis_spans"] != [[0, len(text)]]:
        expected = "hypothesis_spans to cover the whole hypothesis"
        yield expected, f"{variant['hypothesis_spans']}, not {[[0, len(text)]]}"
    for column in _EMPTY:
        if variant[column]:
            yield f"{column} to be empty in paraphrases", str(variant[column])
    for column in ("log_odds", *SIGNALS, *OPTIONAL):
        if variant.get(column) is not None:
            yield f"{column} to be null in paraphrases", str(variant[column])
    if variant["subsamples"] != [0]:
        yield "subsamples to be [0] in paraphrases", str(variant["subsamples"])
    identifier = variant_id(variant["seed_id"], PARAPHRASE, variant["original"], text)
    if variant["variant_id"] != identifier:
        expected = "variant_id to be the seed's, the class and a digest of the hypothesis"
        yield expected, f"other than {identifier.removeprefix(str(variant['seed_id']))}"
