"""Metadata as Croissant: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

from merge_dataset.commands.command_line import Format, option
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
    Configs,
    Folder,
    Overwrite,
    configurations_of,
    date_option,
    export,
    new_file,
    tell,
    template,
)

FILE: Final = "croissant.json"

_PARQUET: Final = {"encodingFormat": "application/x-parquet"}

_VOTES: Final = (
    "`annotator_labels` has the labels of the source's annotators for the seed, where the source "
    "gives them."
)
_TYPES: Final = {
    "string": "sc:Text",
    "int32": "cr:Int32",
    "int64": "cr:Int64",
    "float": "cr:Float32",
    "bool": "sc:Boolean",
}


@export("croissant", panel=FILES)
def export_croissant(
    folder: Folder = Path("merge-nli"),
    config: Configs = None,
    version: Annotated[
        str | None, option("Version of the data, e.g. 1.0.0.", "--data-version")
    ] = None,
    published: Annotated[
        datetime | None, date_option("Date of publication, e.g. 2026-01-31.")
    ] = None,
    overwrite: Overwrite = False,
    output: Format = "text",
) -> None:
    """Metadata of the dataset as MLCommons' Croissant (1.1), JSON-LD: croissant.json in its folder.

    Files with their hashes, a record set per configuration and split, and the RAI fields:
    collection, annotation, limits, biases, uses. Write it again when the dataset is built anew.

    \b
    Examples:
      merge-nli export croissant merge-nli
    """  # \b is a mark of click: keep the lines that follow
    path, metadata = folder / FILE, build_metadata(folder, configurations_of(folder, config or ()))
    if version:
        metadata["version"] = version
    if published:
        metadata["datePublished"] = f"{published:%Y-%m-%d}"
    with new_file(path, overwrite=overwrite) as partial:
        partial.write_text(to_json(metadata) + "\n", encoding="utf-8")
    names = [record_set["@id"] for record_set in metadata["recordSet"] if "data" not in record_set]
    text = f"{path}: record sets {', '.join(names)}"
    tell(output, path, {"record_sets": names}, text, f"mlcroissant validate --jsonld {path}")


def build_metadata(folder: Path, configs: Sequence[str]) -> dict[str, Any]:
    """Build the metadata; see `export_croissant`."""
    from merge_dataset.card import read_front_matter

    text = read_text(folder / CARD)
    try:
        matter = read_front_matter(text)
        facts = {name: matter[name] for name in ("pretty_name", "language", "license", "tags")}
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{folder / CARD}: expected a card with a name, language, license and tags, got "
            f"{error}; `merge-nli check {folder}` says more"
        ) from error
    body = text.partition("\n---\n")[2]
    paragraphs = (part.strip() for part in body.split("\n\n"))
    prose = next((part for part in paragraphs if part and not part.startswith("#")), "")
    files, sets, label_names, record_sets = {}, [], {}, []
    for config in configs:
        own = format_in(folder, config)
        labels = "labels" if own.labels == LABELS else f"labels-{parse_config_name(config)[0]}"
        label_names[labels] = _label_names(labels, own.labels)
        for split, names in split_files(folder, config).items():
            source = {"fileObject": {"@id": names[0]}}
            if len(names) > 1:  # a split with a file for each word class
                sets.append(_node("FileSet", f"{config}/{split}/files", **_PARQUET, includes=names))
                source = {"fileSet": {"@id": f"{config}/{split}/files"}}
            record_sets.append(_record_set(config, split, source, own, labels))
            for name in (name for name in names if name not in files):
                size, digest = (folder / name).stat().st_size, digest_of_file(folder / name)
                of_file = {"contentSize": f"{size} B", **_PARQUET, "sha256": digest}
                files[name] = _node("FileObject", name, contentUrl=name, **of_file)
    # Keys are in order, with the full standard context: readers warn about any other.
    record = json.loads(template("croissant.json")) | {
        "name": facts["pretty_name"],
        "description": " ".join(prose.split()),
        "inLanguage": facts["language"],
        "license": [
            f"https://spdx.org/licenses/{name.upper()}.html" if name.startswith("cc") else name
            for name in facts["license"]
        ],
        "keywords": facts["tags"],
        "citeAs": body.partition("```bibtex\n")[2].partition("```")[0].strip(),
        **_responsible_ai(folder, configs, body),
        "distribution": [*files.values(), *sets],
        "recordSet": [*label_names.values(), *record_sets],
    }
    return {key: value for key, value in record.items() if value or not key.startswith("rai:")}


def _responsible_ai(folder: Path, configs: Sequence[str], body: str) -> dict[str, Any]:
    making, limits = (
        body.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        for heading in ("How it was made", "Limits")
    )
    limited = [" ".join(limit.split()) for limit in limits.split("\n- ")[1:]]
    raw, steps, tools = [], [], []
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
        tools += [f"{model['name']}, revision {model['revision']}" for model in models if model]
        tools += [facts["tagger"]] if facts.get("tagger") else []
    return {
        "rai:dataCollection": " ".join(making.partition("\n###")[0].split()),
        "rai:dataCollectionRawData": "; ".join(raw),
        "rai:dataPreprocessingProtocol": steps,
        "rai:dataAnnotationProtocol": [*limited[:1], _VOTES],
        "rai:machineAnnotationTools": list(dict.fromkeys(tools)),
        "rai:dataLimitations": limited,
        "rai:dataBiases": [limit for limit in limited if "biases" in limit],
    }


def _node(kind: str, identifier: str, **more: Any) -> dict[str, Any]:
    return {"@type": f"cr:{kind}", "@id": identifier, "name": identifier, **more}


def _label_names(identifier: str, labels: Sequence[str]) -> dict[str, Any]:
    code, name = f"{identifier}/code", f"{identifier}/name"
    return _node(
        "RecordSet",
        identifier,
        description="What the numbers of labels mean.",
        dataType="sc:Enumeration",
        key={"@id": code},
        field=[_node("Field", code, dataType="cr:Int64"), _node("Field", name, dataType="sc:Text")],
        data=[{code: position, name: label} for position, label in enumerate(labels)],
    )


def _record_set(
    config: str, split: str, source: dict[str, Any], problem_format: ProblemFormat, labels: str
) -> dict[str, Any]:
    import pyarrow as pa

    fields = []
    for column in arrow_schema(problem_format):
        kind, shape = column.type, dict[str, Any]()
        while pa.types.is_list(kind):  # a nested list holds spans: start and end
            shape = {"isArray": True, "arrayShape": "-1,2" if shape else "-1"}
            kind = kind.value_type
        field = _node(
            "Field",
            f"{config}/{split}/{column.name}",
            description=column_meanings(problem_format)[column.name],
            dataType=_TYPES[str(kind)],
            source={**source, "extract": {"column": column.name}},
            **shape,
        )
        if column.name == "label":
            field["references"] = {"field": {"@id": f"{labels}/code"}}
        fields.append(field)
    return _node(
        "RecordSet",
        f"{config}/{split}",
        description=f"The {split} of the configuration {config}.",
        key={"@id": f"{config}/{split}/variant_id"},
        field=fields,
    )
