"""Checks of a dataset folder: its files, their columns, its rows, and the card.

Modules of further checks are imported here.
"""

import errno
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from merge_dataset import layout, provenance
from merge_dataset.card import front_matter, read_front_matter, statistics_block
from merge_dataset.checks import variants  # noqa: F401
from merge_dataset.checks.rules import CHECKS, Finding, check, summarise
from merge_dataset.engine import engine_errors
from merge_dataset.files import changed_files, describe_os_error, open_parquet, read_record
from merge_dataset.layout import CARD, FILES, PROVENANCE
from merge_dataset.schema import (
    DATASET_NAME,
    PARAPHRASE,
    arrow_schema,
    config_files,
    format_of,
    parse_config_name,
)

__all__ = ["check_dataset"]


def check_dataset(folder: str | Path) -> list[str]:
    """List the problems of a dataset folder, one line per file and kind; none when it is good.

    Rows and card are only looked at when all files are there with the right columns.
    """
    try:
        folder = layout.as_dataset(folder)
        layout.require_collections(folder)
    except (NotADirectoryError, ValueError) as error:
        return [str(error)]
    findings = [*_findings("structure", folder)]
    if findings:
        return summarise(findings)
    for collection in layout.collections(folder):
        kind = provenance.kind_of(provenance.read(folder / collection / PROVENANCE))
        findings += _findings(kind, folder, collection)
    findings += _findings("contents", folder)
    # If something else is wrong with the data, changed bytes are no further news.
    only_card = all(finding.where == CARD for finding in findings)
    return summarise([*findings, *(_findings("bytes", folder) if only_card else ())])


def _findings(of: str, folder: Path, *collection: str) -> Iterator[Finding]:
    """Yield the findings of checks; a damaged file that stops a check is a finding, too."""
    for find in CHECKS[of]:
        try:
            with engine_errors():
                yield from find(folder, *collection)
        except Exception as error:
            if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.EMFILE:
                raise  # no problem of the dataset
            got = describe_os_error(error) if isinstance(error, OSError) else f"{error}"
            where = "/".join(collection) or folder.name
            name = find.__name__.replace("_", " ")
            if not isinstance(error, ValueError | OSError):
                # Such as DuckDB's "Invalid Input Error: Incorrect stats size".
                kind_of_error = type(error).__name__
                got = f"damaged ones ({kind_of_error}, {got.replace('Error: ', 'error, ')})"
            yield Finding(where, f"files with which to {name}", " ".join(got.split()))


# --- Files, columns and the card ---


@check("structure")
def check_collections(folder: Path) -> Iterator[Finding]:
    """Find collections with wrong descriptions or missing files."""
    for collection in layout.collections(folder):
        where = f"{collection}/{PROVENANCE}"
        try:
            made = provenance.read(folder / where)
        except ValueError as error:
            yield Finding(where, "a readable description", str(error))
            continue
        source, variant_class = parse_config_name(collection)
        if made["source"] != source:
            yield Finding(where, f"the source {source!r}", repr(made["source"]))
        elif provenance.collection_of(made) != collection:
            yield Finding(where, f"the kind of {collection}", provenance.kind_of(made))
        if variant_class != PARAPHRASE and len(layout.configurations(folder, collection)) == 1:
            yield Finding(collection, "a word class with variants.parquet", "none")
        for name in layout.configurations(folder, collection):
            for split, files in layout.split_files(folder, name).items():
                if not files:
                    expected = f"a file, for the split {split} of {name}"
                    yield Finding(config_files(name)[split][0], expected, "none")


@check("structure")
def check_columns(folder: Path) -> Iterator[Finding]:
    """Find files whose columns are not those of the contract, or of their collection."""
    optional: dict[str, tuple[str, ...]] = {}
    for file in layout.parquet_files(folder):
        try:
            with open_parquet(folder / file) as opened:
                for batch in opened.iter_batches():  # reading it detects damage
                    batch.validate(full=True)
                schema = opened.schema_arrow
        except (OSError, ValueError, pa.ArrowException, MemoryError) as error:
            yield Finding(file, "a whole Parquet file", " ".join(str(error).split()))
            continue
        try:
            problem_format = format_of(schema)
        except ValueError as error:
            yield Finding(file, "a format of problems in its metadata", str(error))
            continue
        collection = file.partition("/")[0]
        with suppress(OSError, ValueError):  # a missing description is another finding
            made = provenance.format_of_run(provenance.read(folder / collection / PROVENANCE))
            if made != problem_format:
                expected_format = f"problems with the {made.described}, as in {collection}"
                yield Finding(file, f"{expected_format}/{PROVENANCE}", problem_format.described)
        first = optional.setdefault(collection, problem_format.optional)
        if problem_format.optional != first:
            wanted, got = (", ".join(names) or "none" for names in (first, problem_format.optional))
            yield Finding(file, f"the optional columns of its collection: {wanted}", got)
        columns, present = (
            [(field.name, field.type) for field in own]
            for own in (arrow_schema(problem_format), schema)
        )
        if missing := [column for column in columns if column not in present]:
            others = [column for column in present if column not in columns]
            wanted, got = (", ".join(f"{n} ({of})" for n, of in own) for own in (missing, others))
            yield Finding(file, f"the columns {wanted} of the contract", got or "a file without")
        elif present != columns:
            names = [name for name, _ in columns]
            yield Finding(file, f"the columns {', '.join(names)}", ", ".join(schema.names))
        if b"huggingface" in (schema.metadata or {}):
            yield Finding(file, "no `huggingface` metadata", "some, which datasets 3 cannot read")


@check()
def check_strays(folder: Path) -> Iterator[Finding]:
    """Find files that should not be in the folder, and those that are gone from it."""
    for path in layout.leftovers(folder):
        yield Finding(path.name, "no leftover of an interrupted export", "one; export again")
    for name in sorted({DATASET_NAME, folder.resolve().name}):
        if (folder / f"{name}.py").exists():
            expected = "no script of the folder's name: datasets would refuse to load the folder"
            yield Finding(f"{name}.py", expected, "one")
    names = layout.all_configurations(folder)
    listed = {f for n in names for files in layout.split_files(folder, n).values() for f in files}
    for file in sorted(set(layout.parquet_files(folder)) - listed):
        yield Finding(file, "every Parquet file to belong to a configuration", "one of none")
    for collection in layout.collections(folder):
        for name in read_record(folder / collection / PROVENANCE, FILES, verify=False)[FILES]:
            if not (folder / collection / name).is_file():
                expected = f"a file, which {collection}/{PROVENANCE} names"
                yield Finding(f"{collection}/{name}", expected, "none")


@check("bytes")
def check_bytes(folder: Path) -> Iterator[Finding]:
    """Find files that were changed or damaged in ways that no other check detects."""
    expected = "what was written, byte for byte"
    for collection in layout.collections(folder):
        try:
            made = read_record(folder / collection / PROVENANCE, FILES)
        except ValueError:
            yield Finding(f"{collection}/{PROVENANCE}", expected, "other contents")
            continue
        for file in changed_files(folder / collection, made[FILES]):
            yield Finding(f"{collection}/{file}", expected, "other contents")


@check()
def check_card(folder: Path) -> Iterator[Finding]:
    """Find statements of the card that contradict the data."""
    path = folder / CARD
    if not path.is_file():
        yield Finding(CARD, "a dataset card", "no such file")
        return
    try:
        text = path.read_text(encoding="utf-8")
        given = read_front_matter(text)
    except ValueError as error:
        yield Finding(CARD, "text in UTF-8, with YAML between two lines of ---", str(error))
        return
    fresh = front_matter(folder)
    for key in ("configs", "dataset_info"):
        wanted, got = fresh[key], given.get(key) or []
        other = [e for e in (*wanted, *got) if e not in wanted or e not in got]
        if other:
            configs = dict.fromkeys(str(entry.get("config_name")) for entry in other)
            expected = f"`{key}` in the YAML to be that of the data"
            yield Finding(CARD, expected, f"another for {', '.join(configs)}")
    lines, block = text.splitlines(), statistics_block(folder)
    if block not in text:
        missing = [line for line in block.splitlines() if line not in lines]
        yield Finding(CARD, f"the statistics of the data: {missing}", "others")
