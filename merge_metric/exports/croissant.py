"""Metadata as Croissant: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

from merge_dataset.commands.command_line import option
from merge_dataset.files import digest_of_file, read_record, read_text, to_json
from merge_dataset.layout import CARD, PROVENANCE, format_in, split_files
from merge_dataset.schema import (
    LABELS,
    ProblemFormat,
    arrow_schema,
    collection_name,
    column_meanings,
    parse_config_name,
)
from merge_metric.exports.registry import (
    FILES,
    Exported,
    date_option,
    export,
    filled,
    new_file,
    tell,
)

FILE: Final = "croissant.json"

_TYPES: Final = {
    "string": "sc:Text",
    "int32": "cr:Int32",
    "int64": "cr:Int64",
    "float": "cr:Float32",
    "bool": "sc:Boolean",
}


@export("croissant", panel=FILES)
def export_croissant(
    exported: Exported,
    version: Annotated[
        str | None, option("Version of the data, e.g. 1.0.0.", "--data-version")
    ] = None,
    published: Annotated[
        datetime | None, date_option("Date of publication, e.g. 2026-01-31.")
    ] = None,
) -> None:
    """Metadata of the dataset as MLCommons' Croissant (1.1), JSON-LD: croissant.json in its folder.

    Files with their hashes, a record set per configuration and split, and the RAI fields:
    collection, annotation, limits, biases, uses. Write it again when the dataset is built anew.

    \b
    Examples:
      merge-nli export croissant merge-nli
    """  # \b is a mark of click: keep the lines that follow
    path, metadata = exported.folder / FILE, build_metadata(exported)
    if version:
        metadata["version"] = version
    if published:
        metadata["datePublished"] = f"{published:%Y-%m-%d}"
    with new_file(path, overwrite=exported.overwrite) as partial:
        partial.write_text(to_json(metadata) + "\n", encoding="utf-8")
    names = [record_set["@id"] for record_set in metadata["recordSet"] if "data" not in record_set]
    text = f"{path}: record sets {', '.join(names)}"
    tell(
        exported.output, path, {"record_sets": names}, text, f"mlcroissant validate --jsonld {path}"
    )


def build_metadata(exported: Exported) -> dict[str, Any]:
    """Build the metadata; see `export_croissant`."""
    from merge_dataset.card import read_front_matter

    folder, configs = exported.folder, exported.configurations()
    text = read_text(folder / CARD)
    try:
        matter = read_front_matter(text)
        card = {name: matter[name] for name in ("pretty_name", "language", "license", "tags")}
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{folder / CARD}: expected a card with a name, language, license and tags, got "
            f"{error}; `merge-nli check {folder}` says more"
        ) from error
    body = text.partition("\n---\n")[2]
    paragraphs = (part.strip() for part in body.split("\n\n"))
    prose = next((part for part in paragraphs if part and not part.startswith("#")), "")
    # Parts of the page that says how the data were made, and what their limits are.
    making, limits = (
        body.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        for heading in ("How it was made", "Limits")
    )
    limited = [" ".join(limit.split()) for limit in limits.split("\n- ")[1:]]
    files, labels, splits = dict[str, Any](), dict[str, Any](), list[dict[str, Any]]()
    for config in configs:
        own = format_in(folder, config)
        of_labels = "labels" if own.labels == LABELS else f"labels-{parse_config_name(config)[0]}"
        labels[of_labels], columns = own.labels, _columns(own)
        for split, names in split_files(folder, config).items():
            facts = {"id": f"{config}/{split}", "config": config, "name": split, "files": names}
            splits.append({**facts, "labels": of_labels, "columns": columns})
            for path in (folder / name for name in names if name not in files):
                described = {"size": path.stat().st_size, "digest": digest_of_file(path)}
                files[path.relative_to(folder).as_posix()] = described
    # Keys are in order, with the full standard context: readers warn about any other.
    text = filled(
        "croissant.json.j2",
        card=card,
        description=" ".join(prose.split()),
        licences=[
            f"https://spdx.org/licenses/{name.upper()}.html" if name.startswith("cc") else name
            for name in card["license"]
        ],
        citation=body.partition("```bibtex\n")[2].partition("```")[0].strip(),
        making=" ".join(making.partition("\n###")[0].split()),
        limits=limited,
        biases=[limit for limit in limited if "biases" in limit],
        files=files,
        several=[split for split in splits if len(split["files"]) > 1],
        labels=labels,
        splits=splits,
        **_provenance(folder, configs),
    )
    record = json.loads(text)
    return {key: value for key, value in record.items() if value or not key.startswith("rai:")}


def _provenance(folder: Path, configs: Sequence[str]) -> dict[str, list[str]]:
    """Say of the collections what they were made from, in which steps, and with which models."""
    raw, steps, tools = [], [], dict[str, None]()
    for name in dict.fromkeys(collection_name(*parse_config_name(config)) for config in configs):
        facts = read_record(folder / name / PROVENANCE, verify=False)
        if data := facts.get("source_data"):
            digest = f", SHA-256 {data['sha256']}" if data["sha256"] else ""
            raw.append(f"{name}: {data['description']}{digest}")
        if problems := facts.get("problems"):
            counts = ", ".join(f"{count:,} {what}" for what, count in problems.items())
            steps.append(f"{name}: problems {counts}")
        if config := facts.get("config"):
            steps.append(f"{name}: settings {json.dumps(config, sort_keys=True)}")
        models = [*facts.get("mlms", ()), facts.get("generator"), facts.get("nli_model")]
        used = [f"{model['name']}, revision {model['revision']}" for model in models if model]
        tools |= dict.fromkeys([*used, *filter(None, [facts.get("tagger")])])
    return {"raw": raw, "steps": steps, "tools": list(tools)}


def _columns(problem_format: ProblemFormat) -> list[dict[str, str]]:
    """Describe the columns of a split: name, meaning, type of a value, and shape of a list."""
    import pyarrow as pa

    columns, meanings = [], column_meanings(problem_format)
    for column in arrow_schema(problem_format):
        kind, shape = column.type, ""
        while pa.types.is_list(kind):  # a nested list holds spans: start and end
            kind, shape = kind.value_type, "-1,2" if shape else "-1"
        facts = {"name": column.name, "meaning": meanings[column.name]}
        columns.append({**facts, "type": _TYPES[str(kind)], "shape": shape})
    return columns
