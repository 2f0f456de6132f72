"""The dataset card: README.md of a dataset folder, a pure function of its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import yaml

from merge_dataset import card_text, provenance
from merge_dataset.layout import (
    PROVENANCE,
    all_configurations,
    require_dataset,
    sources,
    split_files,
)
from merge_dataset.merge_nli import content_hash
from merge_dataset.schema import CONFIG_SUFFIXES, LABELS, arrow_schema, parse_config_name
from merge_dataset.statistics import Statistics, compute_statistics, split_size

STATISTICS_START: Final = "<!-- statistics -->"
STATISTICS_END: Final = "<!-- /statistics -->"

_SIZES: Final = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"))


def render(folder: Path) -> str:
    """The whole card of a dataset folder, from the data and the provenance in it.

    Raises:
        NotADirectoryError, ValueError: `folder` is no dataset folder, or a file in it is
            not what it should be.
    """
    require_dataset(folder)
    names = sources(folder)
    statistics = [compute_statistics(folder, name) for name in all_configurations(folder)]
    made = [provenance.read(folder / source / PROVENANCE) for source in names]
    body = [
        card_text.INTRODUCTION,
        card_text.loading(statistics[1].config),
        card_text.COLUMNS_HEADING + _table(("column", "content"), card_text.COLUMNS.items()),
        card_text.STATISTICS + statistics_block(statistics),
        card_text.MAKING + "\n".join(map(_making, made)),
        card_text.licences(names),
        card_text.LIMITS,
        card_text.citations(names),
    ]
    header = yaml.safe_dump(front_matter(folder), sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{header}---\n\n" + "\n".join(body)


def front_matter(folder: Path) -> dict[str, Any]:
    """The card's YAML: what the Hub lists, and what `load_dataset` goes by."""
    names = sources(folder)
    configs = all_configurations(folder)
    facts = [card_text.source_facts(name) for name in names]
    creators = sorted({"machine-generated", *(fact.creators for fact in facts)})
    variants = sum(
        split_size(folder, split_files(folder, source)["variants"]).num_examples for source in names
    )
    return {
        "pretty_name": "MERGE-NLI",
        "language": ["en"],
        "license": sorted({licence for fact in facts for licence in fact.licence_ids}),
        "task_categories": ["text-classification"],
        "task_ids": ["natural-language-inference"],
        "annotations_creators": creators,
        "language_creators": [*creators],  # its own list: YAML would write the same as an alias
        "multilinguality": ["monolingual"],
        "source_datasets": sorted({fact.source_dataset for fact in facts}),
        "size_categories": [next((s for limit, s in _SIZES if variants < limit), "1M<n<10M")],
        "tags": ["merge", "mere", "robustness", "generalization", "minimal-pairs", "nli"],
        "configs": [_config(folder, name) for name in configs],
        "dataset_info": [_dataset_info(folder, name) for name in configs],
    }


def statistics_block(statistics: list[Statistics]) -> str:
    """The table of figures per configuration, between the markers a check looks for."""
    header = (
        "configuration",
        "seeds",
        *(f"{label} (%)" for label in LABELS),
        "unique variants",
        "unique variants per seed",
        "variants per subsample",
    )
    rows = [
        (
            f"`{each.config}`",
            f"{each.seeds:,}",
            *(f"{100 * share:.1f}" for share in each.label_shares),
            f"{each.variants:,}",
            f"{each.variants_per_seed:.1f}",
            f"{each.variants_per_subsample:,.1f}",
        )
        for each in statistics
    ]
    return f"{STATISTICS_START}\n{_table(header, rows)}{STATISTICS_END}\n"


def find_statistics_block(card: str) -> str | None:
    """The statistics block of a card's text, markers included; None where it has none."""
    start, end = card.find(STATISTICS_START), card.find(STATISTICS_END)
    return card[start : end + len(STATISTICS_END)] + "\n" if 0 <= start < end else None


def read_front_matter(card: str) -> dict[str, Any]:
    """The YAML of a card's text.

    Raises:
        ValueError: there is none between two lines of `---`, or it is no mapping.
    """
    opening, _, rest = card.partition("---\n")
    header, closing, _ = rest.partition("\n---\n")
    try:
        value = yaml.safe_load(header) if closing and not opening else None
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"no mapping but {type(value).__name__}")
    return value


def _config(folder: Path, name: str) -> dict[str, Any]:
    # `datasets` names its cache entry for a folder after this YAML, not after the data:
    # without the digest, data exported anew would go on loading from the old entry.
    title = card_text.source_facts(parse_config_name(name)[0]).title
    files = split_files(folder, name)
    return {
        "config_name": name,
        "description": f"{title}; content {content_hash(folder, name)}",
        "data_files": [
            {"split": split, "path": paths[0] if len(paths) == 1 else paths}
            for split, paths in files.items()
        ],
    }


def _dataset_info(folder: Path, name: str) -> dict[str, Any]:
    sizes = {s: split_size(folder, files) for s, files in split_files(folder, name).items()}
    return {
        "config_name": name,
        "features": [{"name": field.name, **_feature(field)} for field in arrow_schema()],
        "splits": [
            {"name": split, "num_bytes": size.num_bytes, "num_examples": size.num_examples}
            for split, size in sizes.items()
        ],
        "download_size": sum(size.file_bytes for size in sizes.values()),
        "dataset_size": sum(size.num_bytes for size in sizes.values()),
    }


def _feature(field: pa.Field) -> dict[str, Any]:
    # `list:` is read by datasets 3.6 (as a Python list) and by 5.x; what 5.x writes.
    label = {"class_label": {"names": {str(i): name for i, name in enumerate(LABELS)}}}
    if field.name == "label":
        return {"dtype": label}
    if field.name == "annotator_labels":
        return {"list": label}
    kind = _type(field.type)
    return kind if isinstance(kind, dict) else {"dtype": kind}


def _type(arrow: pa.DataType) -> str | dict[str, Any]:
    if pa.types.is_list(arrow):
        return {"list": _type(arrow.value_type)}
    return "float32" if pa.types.is_float32(arrow) else str(arrow)


def _making(made: dict[str, Any]) -> str:
    """How one source's data was made: problems, taggers, models, settings, funnel."""
    data, problems = made["source_data"], made["problems"]
    digest = f" (SHA-256 `{data['sha256']}`)" if data["sha256"] else ""
    eligible = ", ".join(
        f"{count:,} for {CONFIG_SUFFIXES[word_class]}"
        for word_class, count in made["eligible"].items()
    )
    funnel = made["funnel"]
    columns = list(dict.fromkeys(key for row in funnel for key in row))
    settings = [
        (key, value) for key, value in made["config"].items() if value not in (None, {}, [])
    ]
    return "\n".join(
        [
            f"### `{made['source']}`\n",
            f"Problems: {data['description']}{digest}; {problems['read']:,} read, "
            f"{problems['unlabelled']:,} without a gold label dropped, {problems['kept']:,} kept. "
            f"Eligible seeds: {eligible}. Tagger: {made['tagger']}. "
            f"Ablation: {made['ablation'] or 'none'}. "
            f"Fingerprint: `{made['fingerprint']}`.\n",
            "Masked language models:\n",
            _table(
                provenance.MLM_KEYS,
                ([mlm[key] for key in provenance.MLM_KEYS] for mlm in made["mlms"]),
            ),
            "Settings (the others are unset):\n",
            _table(("setting", "value"), settings),
            "What became of the suggestions, by model and word class; each was rejected for one "
            "reason or kept:\n",
            _table(columns, ([_count(row.get(key, 0)) for key in columns] for row in funnel)),
            "Packages: " + ", ".join(f"{k} {v}" for k, v in made["packages"].items()) + ".\n",
        ]
    )


def _table(header: Any, rows: Any) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _cell(value: Any) -> str:
    match value:
        case None:
            text = "none"
        case bool():
            text = str(value).lower()
        case list() | tuple():
            text = ", ".join(map(str, value)) or "none"
        case dict():
            text = ", ".join(f"{k}: {v}" for k, v in value.items()) or "none"
        case _:
            text = str(value)
    return " ".join(text.split()).replace("|", "\\|")
