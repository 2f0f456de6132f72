"""Metadata of a dataset folder as MLCommons' Croissant, JSON-LD.

Specification: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from merge_dataset.commands.command_line import option
from merge_dataset.files import digest_of_file, to_json
from merge_dataset.layout import CARD, format_in
from merge_dataset.schema import (
    LABELS,
    SPLITS,
    ProblemFormat,
    arrow_schema,
    column_summaries,
    parse_config_name,
)
from merge_metric.exports.folders import configurations_of, new_file, split_paths
from merge_metric.exports.registry import FILES, Configs, Exported, Folder, Overwrite, count, export

FILE: Final = "croissant.json"

_PARQUET: Final = "application/x-parquet"

if TYPE_CHECKING:
    import pyarrow as pa

_TERMS: Final = (
    *("arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field"),
    *("fileObject", "fileProperty", "fileSet", "format", "includes", "isArray", "isLiveDataset"),
    *("jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex"),
    *("repeated", "replace", "samplingRate", "separator", "source", "subField", "transform"),
)
_CONTEXT: Final[dict[str, Any]] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    **{term: f"cr:{term}" for term in _TERMS},
}
"""The standard context in full: readers warn about any other."""

_LABELS: Final = "labels"
"""Record set of the names of labels; those of another format also have its source's."""

_TYPES: Final = {
    "string": "sc:Text",
    "int32": "cr:Int32",
    "int64": "cr:Int64",
    "float": "cr:Float32",
    "bool": "sc:Boolean",
}
"""Type in Arrow → data type."""


@export("croissant", panel=FILES)
def export_croissant(
    folder: Folder = Path("merge-nli"),
    out: Annotated[
        Path | None, option("File to write; by default croissant.json in the dataset folder.")
    ] = None,
    config: Configs = None,
    base_url: Annotated[
        str | None,
        option("Address of the files; by default beside the metadata, in the folder."),
    ] = None,
    version: Annotated[
        str | None, option("Version of the data, e.g. 1.0.0.", "--data-version")
    ] = None,
    published: Annotated[str | None, option("Date of publication, e.g. 2026-01-31.")] = None,
    overwrite: Overwrite = False,
) -> Exported:
    """Metadata of the dataset as MLCommons' Croissant (1.1), JSON-LD.

    Files with their hashes, and a record set per configuration and split. Write it again
    when the dataset is built anew.

    \b
    Examples:
      merge-nli export croissant merge-nli

    \b
      merge-nli export croissant merge-nli --out croissant.json
        --base-url https://huggingface.co/datasets/USER/merge-nli/resolve/v1
    """  # \b is a mark of click: keep the lines that follow
    chosen = configurations_of(folder, config or ())
    path = out or folder / FILE
    if base_url is None and path.resolve().parent != folder.resolve():
        raise ValueError(
            f"{path}: expected a file in the dataset folder {folder}, as metadata name files by "
            f"their place beside them; or say with --base-url where the files are to be had"
        )
    metadata = build_metadata(folder, chosen, base_url=base_url)
    if version:
        metadata["version"] = version
    if published:
        metadata["datePublished"] = _date(published)
    with new_file(path, overwrite=overwrite) as partial:
        text = to_json(metadata)
        partial.write_text(text + "\n", encoding="utf-8")
    names = [each["@id"] for each in metadata["recordSet"] if "data" not in each]
    text = f"{path}: {count(names, 'record set')}: {', '.join(names)}"
    return Exported(path, {"record_sets": names}, text, f"mlcroissant validate --jsonld {path}")


def build_metadata(
    folder: Path, configs: Sequence[str], *, base_url: str | None = None
) -> dict[str, Any]:
    """Build the metadata; see `export_croissant`."""
    facts, description, citation = _read_card(folder)
    files = {
        (config, split): [path.relative_to(folder) for path in split_paths(folder, config, split)]
        for config in configs
        for split in SPLITS
    }
    formats = {config: format_in(folder, config) for config in configs}
    of_labels = {_labels_id(config, formats): each for config, each in formats.items()}
    names = dict.fromkeys(name for names in files.values() for name in names)
    several = {key: names for key, names in files.items() if len(names) > 1}
    if base_url:  # a set of files is in a folder or an archive, not at several addresses
        files = {key: names for key, names in files.items() if key not in several}
        several = {}
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": facts["pretty_name"],
        "description": description,
        "inLanguage": facts["language"],
        "license": [_licence(name) for name in facts["license"]],
        "keywords": facts["tags"],
        "citeAs": citation,
        "url": base_url or "https://arxiv.org/abs/2510.24295",
        "distribution": [
            *(_file_object(folder, name, base_url) for name in names),
            *(_file_set(f"{config}/{split}", names) for (config, split), names in several.items()),
        ],
        "recordSet": [
            *(_label_names(name, each.labels) for name, each in of_labels.items()),
            *(
                _record_set(config, split, names, formats[config], _labels_id(config, formats))
                for (config, split), names in files.items()
            ),
        ],
    }


def _read_card(folder: Path) -> tuple[dict[str, Any], str, str]:
    """Front matter, first paragraph and BibTeX entries of the folder's card."""
    path = folder / CARD
    try:
        text = path.read_text(encoding="utf-8")
        from merge_dataset.card.render import read_front_matter

        facts = read_front_matter(text)
        missing = {"pretty_name", "language", "license", "tags"} - set(facts)
        if missing:
            raise ValueError(f"no {', '.join(sorted(missing))} in its front matter")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path}: expected the card of the dataset, got {error}; `merge-nli check {folder}` "
            f"says more"
        ) from error
    body = text.partition("\n---\n")[2]
    paragraphs = [part.strip() for part in body.split("\n\n")]
    prose = next((part for part in paragraphs if part and not part.startswith("#")), "")
    citation = body.partition("```bibtex\n")[2].partition("```")[0]
    return facts, " ".join(prose.split()), citation.strip()


def _date(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError(f"published: expected a date such as 2026-01-31, got {text!r}") from None


def _licence(name: str) -> str:
    """An identifier as the Hub spells it, as the address of the licence where it is one."""
    if name.startswith("cc"):
        return f"https://spdx.org/licenses/{name.upper()}.html"
    return name


def _file_object(folder: Path, name: Path, base_url: str | None) -> dict[str, Any]:
    url = f"{base_url.rstrip('/')}/{name.as_posix()}" if base_url else name.as_posix()
    return {
        "@type": "cr:FileObject",
        "@id": name.as_posix(),
        "name": name.as_posix(),
        "contentUrl": url,
        "contentSize": f"{(folder / name).stat().st_size} B",
        "encodingFormat": _PARQUET,
        "sha256": digest_of_file(folder / name),
    }


def _file_set(identifier: str, names: Sequence[Path]) -> dict[str, Any]:
    """Describe a split that has a file for each class of variants."""
    return {
        "@type": "cr:FileSet",
        "@id": _set_of(identifier),
        "name": _set_of(identifier),
        "encodingFormat": _PARQUET,
        "includes": [name.as_posix() for name in names],
    }


def _set_of(identifier: str) -> str:
    return f"{identifier}/files"


def _labels_id(config: str, formats: Mapping[str, ProblemFormat]) -> str:
    """Record set of the labels of a configuration."""
    is_nli = formats[config].labels == LABELS
    return _LABELS if is_nli else f"{_LABELS}-{parse_config_name(config)[0]}"


def _label_names(identifier: str, labels: Sequence[str]) -> dict[str, Any]:
    fields = {"code": "cr:Int64", "name": "sc:Text"}
    return {
        "@type": "cr:RecordSet",
        "@id": identifier,
        "name": identifier,
        "description": "What the numbers of labels mean.",
        "dataType": "sc:Enumeration",
        "key": {"@id": f"{identifier}/code"},
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{identifier}/{name}",
                "name": f"{identifier}/{name}",
                "dataType": kind,
            }
            for name, kind in fields.items()
        ],
        "data": [
            {f"{identifier}/code": code, f"{identifier}/name": name}
            for code, name in enumerate(labels)
        ],
    }


def _record_set(
    config: str,
    split: str,
    names: Sequence[Path],
    problem_format: ProblemFormat,
    labels_id: str,
) -> dict[str, Any]:
    identifier, summaries = f"{config}/{split}", column_summaries(problem_format)
    if len(names) > 1:
        source = {"fileSet": {"@id": _set_of(identifier)}}
    else:
        source = {"fileObject": {"@id": names[0].as_posix()}}
    return {
        "@type": "cr:RecordSet",
        "@id": identifier,
        "name": identifier,
        "description": f"The {split} of the configuration {config}.",
        "key": {"@id": f"{identifier}/variant_id"},
        "field": [
            _field(identifier, column, summaries[column.name], source, labels_id)
            for column in arrow_schema(problem_format)
        ],
    }


def _field(
    identifier: str,
    column: pa.Field,
    summary: str,
    source: dict[str, Any],
    labels_id: str,
) -> dict[str, Any]:
    shape: list[str] = []
    kind = column.type
    import pyarrow as pa

    while pa.types.is_list(kind):
        shape.append("2" if shape else "-1")  # a list of a list is one of spans: start and end
        kind = kind.value_type
    field: dict[str, Any] = {
        "@type": "cr:Field",
        "@id": f"{identifier}/{column.name}",
        "name": f"{identifier}/{column.name}",
        "description": summary,
        "dataType": _TYPES[str(kind)],
        "source": {**source, "extract": {"column": column.name}},
    }
    if shape:
        field |= {"isArray": True, "arrayShape": ",".join(shape)}
    if column.name == "label":
        field["references"] = {"field": {"@id": f"{labels_id}/code"}}
    return field
