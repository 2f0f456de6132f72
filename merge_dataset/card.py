"""The dataset card: README.md of a dataset folder, with figures; a pure function of its files."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import yaml

from merge_dataset import layout, provenance
from merge_dataset.dataset_columns import COLUMNS
from merge_dataset.engine import connect, no_pattern, parquet
from merge_dataset.files import naming_damage, open_parquet, read_record
from merge_dataset.known_sources import SOURCES, Source, source_of
from merge_dataset.layout import PROVENANCE
from merge_dataset.provenance import MODEL_KEYS, PARAPHRASES, REPLACEMENTS
from merge_dataset.schema import (
    NLI,
    SPLITS,
    ProblemFormat,
    arrow_schema,
    content_hash,
    parse_config_name,
    patterns_of,
)

if TYPE_CHECKING:
    import jinja2

LOADING: Final = re.compile(r"<!-- loading -->\n.*?<!-- /loading -->\n", re.DOTALL)
"""Pattern of the lines of a card that `loading_block` writes."""

_SIZES: Final = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"),
                 (10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B"))  # fmt: skip


def render(folder: Path) -> str:
    """Render the card of a dataset folder; raise NotADirectoryError or ValueError for others."""
    layout.require_dataset(folder)
    # First, as this reads every page of the files, and so detects damage.
    matter = front_matter(folder)
    formats = {name: layout.format_in(folder, name) for name in layout.collections(folder)}
    made = {name: provenance.read(folder / name / PROVENANCE) for name in formats}
    kinds = {provenance.kind_of(record) for record in made.values()}
    files = (
        folder / file for name in formats for file in layout.split_files(folder, name)["variants"]
    )
    listed = ", ".join(map(no_pattern, files))
    query = (
        f"SELECT DISTINCT path_in_schema FROM parquet_metadata([{listed}]) "
        "WHERE coalesce(stats_null_count, 0) < num_values"
    )
    with connect() as connection:
        filled = {name for (name,) in connection.execute(query).fetchall()}
    signals = dict.fromkeys(name for own in formats.values() for name in own.signals)
    empty = [name for name in signals if name not in filled]
    notes = {
        recipe: dict.fromkeys(provenance.note_of(record, recipe) for record in made.values())
        for recipe in provenance.NOTES
    }
    counts = {
        info["config_name"]: {split["name"]: split["num_examples"] for split in info["splits"]}
        for info in matter["dataset_info"]
        if info["config_name"] in formats
    }
    variants = sum(count["variants"] for count in counts.values())
    template = environment(Path(__file__).parent).get_template("card.md.j2")
    return template.render(
        header=yaml.safe_dump(matter, sort_keys=False, allow_unicode=True, width=1000),
        size=next((size for limit, size in _SIZES if variants < limit), "n>1B"),
        kinds=kinds,
        trials=notes["try"],
        readings=notes["clean"],
        other_formats={name: own for name, own in formats.items() if own != NLI},
        title=title_of(folder),
        counts=counts,
        loading=loading_block(folder, folder.resolve().name),
        empty=empty,
        columns=meanings_of_columns(kinds, formats, empty),
        statistics=statistics_block(folder),
        collections=made,
        model_keys=MODEL_KEYS,
        sources=sources_of(folder),
        relatives_stay=any(
            record["config"].get("families", "ignore") == "ignore"
            for record in made.values()
            if provenance.kind_of(record) == REPLACEMENTS
        ),
    )


@cache
def environment(folder: Path) -> jinja2.Environment:
    """Make the environment of a folder's templates of Markdown and YAML, which it compiles once."""
    import jinja2

    made = jinja2.Environment(  # no HTML
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "cell": _cell,
        "columns": lambda rows: dict.fromkeys(chain.from_iterable(rows)),
        # Counts get commas; models and classes are unchanged.
        "counted": lambda value: f"{value:,}" if isinstance(value, int) else value,
        "json": partial(json.dumps, ensure_ascii=False),
    }
    return made


def front_matter(folder: Path) -> dict[str, Any]:
    """Make the part of the card's YAML that says what the files hold, for `load_dataset`."""
    configs, sources = layout.all_configurations(folder), sources_of(folder)
    return {
        # `datasets` names its cache entry for a folder after this YAML, not after the data:
        # without the digest, data exported anew would go on loading from the old entry.
        "configs": [
            {
                "config_name": name,
                "description": f"{sources[parse_config_name(name)[0]].title}; content "
                f"{content_hash(folder, name)}",
                "data_files": [
                    {"split": split, "path": paths[0] if len(paths) == 1 else paths}
                    for split, files in layout.split_files(folder, name).items()
                    for paths in [patterns_of(files)]
                ],
            }
            for name in configs
        ],
        "dataset_info": [_dataset_info(folder, name) for name in configs],
    }


def sources_of(folder: Path) -> dict[str, Source]:
    """Look up the sources of a folder by name; a user's own has the title of its settings."""
    sources = {name: source_of(name) for name in layout.sources(folder)}
    for collection in layout.collections(folder):
        made = read_record(folder / collection / PROVENANCE, verify=False)
        name = parse_config_name(collection)[0]
        if title := made.get("config", {}).get("title"):
            sources[name] = replace(sources[name], title=" ".join(title.split()))
    return sources


def title_of(folder: Path) -> str:
    """Name a dataset after the sources that are a user's own, if any."""
    own = [source.title for name, source in sources_of(folder).items() if name not in SOURCES]
    return f"{' and '.join(own)}: MERGE variants" if own else "MERGE-NLI"


def loading_block(folder: Path, name: str, repository: str = "", version: str = "") -> str:
    """Say how to load and use a folder called `name`, or a version of it in a repository."""
    collections = {name: layout.configurations(folder, name) for name in layout.collections(folder)}
    configs = [*chain.from_iterable(collections.values())]
    # A configuration of one class, if there is one.
    example = next((name for name in configs if parse_config_name(name)[1]), configs[0])
    given = {"name": name, "repository": repository, "version": version, "example": example}
    page = environment(Path(__file__).parent).get_template("card_loading.md.j2")
    return page.render(collections=collections, **given)


def statistics_block(folder: Path) -> str:
    """Write the figures of configurations (the paper's Table 2), between marks for the check.

    There is a table for each set of labels; the files must be undamaged.
    """
    rows: dict[tuple[str, ...], list[list[str]]] = {}
    for config in layout.all_configurations(folder):
        files, names = layout.split_files(folder, config), layout.format_in(folder, config).labels
        seeds, variants = (parquet(folder / file for file in files[split]) for split in SPLITS)
        with connect() as connection:
            query = f"SELECT label, count(*) FROM {seeds} GROUP BY label"
            labels = dict(connection.execute(query).fetchall())
            query = (
                f"SELECT (SELECT count(*) FROM {variants}), count(DISTINCT draw), count(draw) "
                f"FROM (SELECT unnest(subsamples) AS draw FROM {variants})"
            )
            [(unique, subsamples, draws)] = connection.execute(query).fetchall()
        n_seeds = sum(labels.values())
        shares = (100 * (labels.get(code, 0) / n_seeds) for code in range(len(names)))
        row = [f"`{config}`", f"{n_seeds:,}", *(f"{share:.1f}" for share in shares)]
        row += [f"{unique:,}", f"{unique / n_seeds:.1f}", f"{draws / subsamples:,.1f}"]
        rows.setdefault(names, []).append(row)
    tables = []
    for names, own in rows.items():
        header = ["configuration", "seeds", *(f"{label} (%)" for label in names)]
        header += ["unique variants", "unique variants per seed", "variants per subsample"]
        lines = (" | ".join(map(_cell, line)) for line in (header, ["---"] * len(header), *own))
        tables.append("".join(f"| {line} |\n" for line in lines))
    return f"<!-- statistics -->\n{chr(10).join(tables)}<!-- /statistics -->\n"


def read_front_matter(card: str) -> dict[str, Any]:
    """Parse the YAML front matter of a card's text."""
    header = re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)
    try:
        return dict(yaml.safe_load(header[1]) if header else {})
    except (TypeError, yaml.YAMLError) as error:
        raise ValueError(f"no YAML with keys ({' '.join(str(error).split())})") from error


def _dataset_info(folder: Path, name: str) -> dict[str, Any]:
    problem_format = layout.format_in(folder, name)
    splits, download_size = [], 0
    for split, files in layout.split_files(folder, name).items():
        num_examples = num_bytes = 0  # size of the rows in Arrow memory, in bytes
        for file in files:
            with naming_damage(folder / file), open_parquet(folder / file) as opened:
                num_examples += opened.metadata.num_rows
                num_bytes += sum(batch.nbytes for batch in opened.iter_batches())
            download_size += (folder / file).stat().st_size
        splits.append({"name": split, "num_bytes": num_bytes, "num_examples": num_examples})
    features = []
    for field in arrow_schema(problem_format):
        depth, kind = 0, field.type
        while pa.types.is_list(kind):
            depth, kind = depth + 1, kind.value_type
        inner: Any = "float32" if pa.types.is_float32(kind) else str(kind)
        if field.name in ("label", "annotator_labels"):
            names = {str(number): label for number, label in enumerate(problem_format.labels)}
            inner = {"class_label": {"names": names}}
        feature = {"dtype": inner}
        for level in range(depth):  # datasets 3.6 reads `list:` of datasets 5, too
            feature = {"list": feature if level else inner}
        features.append({"name": field.name, **feature})
    return {
        "config_name": name,
        "features": features,
        "splits": splits,
        "download_size": download_size,
        "dataset_size": sum(split["num_bytes"] for split in splits),
    }


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


def meanings_of_columns(
    kinds: Collection[str], formats: Mapping[str, ProblemFormat], empty: Collection[str]
) -> dict[str, str]:
    """Map names of columns, as code, to their meanings for some kinds; leave out empty columns."""
    fields = dict.fromkeys(one.fields for one in formats.values())
    labels = dict.fromkeys(one.labels for one in formats.values())
    numbers = (", ".join(f"{n} {label}" for n, label in enumerate(names)) for names in labels)
    label_text, meanings = "; or ".join(numbers), {}
    for column in COLUMNS:
        is_used = not column.optional or any(
            column.name in own.optional for own in formats.values()
        )
        groups = dict.fromkeys(column.names(names) for names in fields)
        if not is_used or {*chain.from_iterable(groups)} <= {*empty}:
            continue
        names = "; ".join(", ".join(f"`{name}`" for name in group) for group in groups)
        meaning = column.meaning
        if PARAPHRASES in kinds and column.in_paraphrases:
            others = f"{meaning}; of a paraphrase: " if REPLACEMENTS in kinds else ""
            meaning = f"{others}{column.in_paraphrases}"
        meanings[names] = meaning.format(labels=label_text)
    return meanings
