"""Checks of signals in variants: what rows show, what seeds and words share, what builds limit.

Nothing is asked of a tagger, a dictionary or a model here. So `common_mlm_count` is counted again;
of other columns it is checked when they have to be null, or equal, or within a range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset.checks.registry import Finding
from merge_dataset.checks.splits import row_findings
from merge_dataset.schema import ProblemFormat, format_of

_OF_SEEDS: Final = "beyond_premise"
"""A column that depends on nothing but the seed."""
_OF_WORDS: Final = ("in_compound", "hangs_on_word")
"""Columns that depend on nothing but the seed and its words."""

_LEAST: Final = {
    "log_odds": "min_log_odds",
    "mlm_count": "min_mlms",
    "zipf_frequency": "min_zipf_frequency",
    "valency": "min_valency",
    "quality": "min_quality",
}
"""Column → the setting that says its least value."""
_REFUSED: Final = {
    "number_changed": ("same_number", True),
    "tense_changed": ("same_tense", True),
    "article_fits": ("fitting_article", False),
    "form_attested": ("attested_form", False),
    "number_agrees": ("agreeing_number", False),
    "determiner_fits": ("fitting_determiner", False),
    "in_compound": ("no_compounds", True),
}
"""Flag → the setting that refuses an answer, and that answer."""


def signal_findings(where: str, variants: pa.Table, made: Mapping[str, Any]) -> Iterator[Finding]:
    """Find signals that cannot be right in the variants of some seeds.

    Args:
        where: Their file.
        variants: All variants of these seeds in one class.
        made: The description of their collection.
    """
    columns = set(variants.column_names)
    yield from _limit_findings(where, variants, made["config"])
    yield from _number_findings(where, variants)
    yield from _empty_findings(where, variants, made)
    if "common_mlm_count" in columns:
        yield from _common_mlm_findings(where, variants, format_of(variants.schema))
    for name in _OF_WORDS:
        if name in columns:
            keys = ("seed_id", "original")
            yield from _same_findings(where, variants, name, keys, "of one word of a seed")


def seed_flag_findings(where: str, variants: Sequence[pa.Table]) -> Iterator[Finding]:
    """Find seeds of which variants of any class have different flags.

    Args:
        where: The files.
        variants: All variants of some seeds, a table per class.
    """
    if all(_OF_SEEDS in table.column_names for table in variants):
        both = pa.concat_tables(t.select(["variant_id", "seed_id", _OF_SEEDS]) for t in variants)
        yield from _same_findings(where, both, _OF_SEEDS, ("seed_id",), "of one seed")


def _limit_findings(where: str, variants: pa.Table, config: Mapping[str, Any]) -> Iterator[Finding]:
    """Find values that the build would have left out."""
    changes = format_of(variants.schema).pll_changes
    least = {**_LEAST, **dict.fromkeys(changes, "min_pll_change")}
    for name, setting in least.items():
        limit = config.get(setting)
        if limit is not None and name in variants.column_names:
            # As the column has it: 3.1 as float32 is less than 3.1 as float64.
            low = pc.less(variants[name], pa.scalar(limit, variants[name].type))
            expected = f"{name} of {limit} at least, as {setting} says"
            yield from row_findings(where, expected, variants, low, name)
    for name, (setting, answer) in _REFUSED.items():
        if config.get(setting) and name in variants.column_names:
            wrong = pc.equal(variants[name], answer)
            expected = f"{name} not to be {answer}, as {setting} says"
            yield from row_findings(where, expected, variants, wrong, name)


def _number_findings(where: str, variants: pa.Table) -> Iterator[Finding]:
    """Find numbers that are none, or out of range."""
    changes = format_of(variants.schema).pll_changes
    for name in ("zipf_frequency", "valency", "quality", *changes):
        if name in variants.column_names:
            wrong = pc.invert(pc.is_finite(variants[name]))
            yield from row_findings(where, f"{name} to be a number", variants, wrong, name)
    if "quality" in variants.column_names:
        quality = variants["quality"]
        wrong = pc.or_(pc.less(quality, 0), pc.greater(quality, 1))
        yield from row_findings(where, "quality from 0 to 1", variants, wrong, "quality")


def _empty_findings(where: str, variants: pa.Table, made: Mapping[str, Any]) -> Iterator[Finding]:
    """Find values where there can be none, and none where there has to be one."""
    there, count = set(variants.column_names), made["config"].get("words_at_once", 1)
    if "pronoun_clash" in there:
        flag = variants["pronoun_clash"]
        wrong = pc.equal(pc.is_valid(flag), pc.not_equal(variants["word_class"], "noun"))
        expected = "pronoun_clash of nouns, and null for others"
        yield from row_findings(where, expected, variants, wrong, "pronoun_clash")
    if _OF_SEEDS in there:
        labels = format_of(variants.schema).labels
        entailment = labels.index("entailment") if "entailment" in labels else len(labels)
        wrong = pc.and_(
            pc.is_valid(variants[_OF_SEEDS]), pc.not_equal(variants["label"], entailment)
        )
        expected = f"{_OF_SEEDS} to be null where the label is not entailment"
        yield from row_findings(where, expected, variants, wrong, _OF_SEEDS)
    if "hangs_on_word" in there and "nonce" not in made:
        wrong = pc.is_valid(variants["hangs_on_word"])
        expected = "hangs_on_word to be null, as no model was asked with made-up words"
        yield from row_findings(where, expected, variants, wrong, "hangs_on_word")
    for name in ("quality", "common_mlm_count"):
        if count > 1 and name in there:
            wrong = pc.is_valid(variants[name])
            expected = f"{name} to be null, as {count} words change at once"
            yield from row_findings(where, expected, variants, wrong, name)


def _common_mlm_findings(
    where: str, variants: pa.Table, problem_format: ProblemFormat
) -> Iterator[Finding]:
    """Count again, for variants in which one word changes, who validated it in every text."""
    texts = list(zip(problem_format.spans, problem_format.mlms, strict=True))
    names = [name for pair in texts for name in pair]
    for row in variants.select(["variant_id", "original", "common_mlm_count", *names]).to_pylist():
        given = row["common_mlm_count"]
        if given is None or " " in (row["original"] or ""):
            continue  # other forms may stand in texts where the word does not
        of_texts = [set(row[mlms] or ()) for spans, mlms in texts if row[spans]]
        count = len(set.intersection(*of_texts)) if of_texts else 0
        if given != count:
            expected = f"common_mlm_count to be the masked LMs of every text, {count}"
            yield Finding(where, expected, f"{given} ({row['variant_id']})")


def _same_findings(
    where: str, variants: pa.Table, name: str, keys: Sequence[str], of: str
) -> Iterator[Finding]:
    """Find rows with the same keys and different answers; the last of each group is told."""
    answers = pc.fill_null(variants[name].cast(pa.int8()), -1)
    asked = variants.select([*keys, "variant_id"]).append_column("answer", answers)
    bounds = [("answer", "min"), ("answer", "max"), ("variant_id", "max")]
    groups = asked.group_by(list(keys)).aggregate(bounds)
    for row in groups.filter(pc.not_equal(groups["answer_min"], groups["answer_max"])).to_pylist():
        yield Finding(
            where, f"the same {name} in all variants {of}", f"two ({row['variant_id_max']})"
        )
