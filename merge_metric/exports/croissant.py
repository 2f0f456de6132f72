"""Metadata as Croissant: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html."""

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Final

from merge_dataset.commands.command_line import option
from merge_dataset.files import digest_of_file, read_record, to_json
from merge_dataset.layout import PROVENANCE, format_in
from merge_dataset.schema import (
    LABELS,
    SPLITS,
    ProblemFormat,
    arrow_schema,
    collection_name,
    column_meanings,
    parse_config_name,
)
from merge_metric.exports.registry import (
    FILES,
    Configs,
    Exported,
    Folder,
    Overwrite,
    configurations_of,
    count,
    export,
    new_file,
    read_card,
    require_date,
    split_paths,
    template,
)

FILE: Final = "croissant.json"

_PARQUET: Final = "application/x-parquet"

_VOTES: Final = (
    "`annotator_labels` has the labels of the source's annotators for the seed, where the source "
    "gives them."
)
_LABELS: Final = "labels"
"""Name of the record set of labels; for formats other than NLI the source is added."""

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
    published: Annotated[str | None, option("Date of publication, e.g. 2026-01-31.")] = None,
    overwrite: Overwrite = False,
) -> Exported:
    """Metadata of the dataset as MLCommons' Croissant (1.1), JSON-LD: croissant.json in its folder.

    Files with their hashes, a record set per configuration and split, and the RAI fields:
    collection, annotation, limits, biases, uses. Write it again when the dataset is built anew.

    \b
    Examples:
      merge-nli export croissant merge-nli
    """  # \b is a mark of click: keep the lines that follow
    require_date("published", published)
    chosen = configurations_of(folder, config or ())
    path = folder / FILE
    metadata = build_metadata(folder, chosen)
    if version:
        metadata["version"] = version
    if published:
        metadata["datePublished"] = date.fromisoformat(published).isoformat()
    with new_file(path, overwrite=overwrite) as partial:
        partial.write_text(to_json(metadata) + "\n", encoding="utf-8")
    names = [record_set["@id"] for record_set in metadata["recordSet"] if "data" not in record_set]
    text = f"{path}: {count(names, 'record set')}: {', '.join(names)}"
    return Exported(path, {"record_sets": names}, text, f"mlcroissant validate --jsonld {path}")


def build_metadata(folder: Path, configs: Sequence[str]) -> dict[str, Any]:
    """Build the metadata; see `export_croissant`."""
    facts, body = read_card(folder)
    paragraphs = [part.strip() for part in body.split("\n\n")]
    prose = next((part for part in paragraphs if part and not part.startswith("#")), "")
    files = {
        (config, split): [path.relative_to(folder) for path in split_paths(folder, config, split)]
        for config in configs
        for split in SPLITS
    }
    formats = {config: format_in(folder, config) for config in configs}
    label_sets = {
        config: _LABELS if own.labels == LABELS else f"{_LABELS}-{parse_config_name(config)[0]}"
        for config, own in formats.items()
    }
    of_labels = {name: formats[config].labels for config, name in label_sets.items()}
    distribution = [
        _node(
            "FileObject",
            name.as_posix(),
            contentUrl=name.as_posix(),
            contentSize=f"{(folder / name).stat().st_size} B",
            encodingFormat=_PARQUET,
            sha256=digest_of_file(folder / name),
        )
        for name in dict.fromkeys(name for names in files.values() for name in names)
    ]
    distribution += [
        _node(
            "FileSet",
            f"{config}/{split}/files",
            encodingFormat=_PARQUET,
            includes=[name.as_posix() for name in names],
        )
        for (config, split), names in files.items()
        if len(names) > 1  # a split with a file for each word class
    ]
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
        "distribution": distribution,
        "recordSet": [
            *(_label_names(name, labels) for name, labels in of_labels.items()),
            *(
                _record_set(config, split, names, formats[config], label_sets[config])
                for (config, split), names in files.items()
            ),
        ],
    }
    return {key: value for key, value in record.items() if value or not key.startswith("rai:")}


def _responsible_ai(folder: Path, configs: Sequence[str], body: str) -> dict[str, Any]:
    names = dict.fromkeys(collection_name(*parse_config_name(config)) for config in configs)
    made = {name: read_record(folder / name / PROVENANCE, verify=False) for name in names}
    sections = dict[str, str]()
    for part in body.split("\n## ")[1:]:
        heading, _, text = part.partition("\n")
        sections.setdefault(heading, text.strip())
    making = sections.get("How it was made", "").partition("\n###")[0]
    limits = sections.get("Limits", "").split("\n- ")
    limits = [" ".join(limit.split()) for limit in limits]
    raw, steps, tools = [], [], []
    for name, facts in made.items():
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
    fields = {
        "dataCollection": " ".join(making.split()),
        "dataCollectionRawData": "; ".join(raw),
        "dataPreprocessingProtocol": steps,
        "dataAnnotationProtocol": [limits[0].removeprefix("- "), _VOTES],
        "machineAnnotationTools": list(dict.fromkeys(tools)),
        "dataLimitations": [limit.removeprefix("- ") for limit in limits if limit],
        "dataBiases": [limit for limit in limits if "biases" in limit],
    }
    return {f"rai:{key}": value for key, value in fields.items()}


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
    config: str, split: str, names: Sequence[Path], problem_format: ProblemFormat, labels_id: str
) -> dict[str, Any]:
    import pyarrow as pa

    identifier, meanings = f"{config}/{split}", column_meanings(problem_format)
    if len(names) > 1:
        source = {"fileSet": {"@id": f"{identifier}/files"}}
    else:
        source = {"fileObject": {"@id": names[0].as_posix()}}
    fields = []
    for column in arrow_schema(problem_format):
        shape: list[str] = []
        kind = column.type
        while pa.types.is_list(kind):
            shape.append("2" if shape else "-1")  # a nested list holds spans: start and end
            kind = kind.value_type
        field = _node(
            "Field",
            f"{identifier}/{column.name}",
            description=meanings[column.name],
            dataType=_TYPES[str(kind)],
            source={**source, "extract": {"column": column.name}},
        )
        if shape:
            field |= {"isArray": True, "arrayShape": ",".join(shape)}
        if column.name == "label":
            field["references"] = {"field": {"@id": f"{labels_id}/code"}}
        fields.append(field)
    return _node(
        "RecordSet",
        identifier,
        description=f"The {split} of the configuration {config}.",
        key={"@id": f"{identifier}/variant_id"},
        field=fields,
    )
