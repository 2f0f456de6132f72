"""Settings as frozen dataclasses: what a value may be, and how they are read and written.

Also the settings that say where problems come from, which every kind of run has.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from merge_dataset.schema import LABELS, NLI, ProblemFormat, check_source

Settings = TypeVar("Settings")

_FIRST: Final = "first"
_LATER: Final = "later"


def first_field(default: Any) -> Any:
    """A field that is written before those of the class's base."""
    return dataclasses.field(default=default, metadata={_FIRST: True})


def later_field(default: Any) -> Any:
    """A field that runs made before it was there know nothing of.

    It is written only where it is not the default, so that whatever does without it keeps its
    bytes and its fingerprint.
    """
    return dataclasses.field(default=default, metadata={_LATER: True})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSettings:
    """Where problems come from (D15)."""

    source: str = "snli"
    """`snli`, `mnli-m`, `mnli-mm`, `anli-r1` to `anli-r3`, `demo`, or a slug of your own."""
    data: str | None = None
    """A local .jsonl, .csv, .tsv or .parquet file; otherwise the source's Hub dataset."""
    dataset: str | None = None
    """A Hub dataset id for a source of your own."""
    dataset_config: str | None = None
    split: str | None = None
    revision: str | None = None
    """Revision of the Hub dataset."""
    premise_column: str | None = None
    hypothesis_column: str | None = None
    label_column: str | None = None
    id_column: str | None = None
    label_map: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """A data set's own label (as text) → one of the labels, or "" for unlabelled."""
    limit: int | None = None
    """Only the first so many labelled problems."""
    fields: tuple[str, ...] = later_field(NLI.fields)
    """Names of a problem's texts."""
    labels: tuple[str, ...] = later_field(())
    """Of the problems; may be left out where the fields are those of NLI."""
    shared_fields: tuple[str, ...] = later_field(())
    """Those of the fields that have to share a word; by default all."""
    field_columns: Mapping[str, str] | None = later_field(None)
    """Field → column of its text; by default the column is called like the field."""

    @property
    def problem_format(self) -> ProblemFormat:
        """The format of the problems.

        Raises:
            ValueError: they are not of NLI, and no labels are named.
        """
        is_nli = self.fields == NLI.fields
        return ProblemFormat(self.fields, self.labels or (LABELS if is_nli else ()))

    @property
    def sharing(self) -> tuple[int, ...] | None:
        """Numbers of the texts that have to share a word; None if all have to."""
        numbers = tuple(n for n, field in enumerate(self.fields) if field in self.shared_fields)
        return numbers if len(numbers) < len(self.fields) and numbers else None


def check_settings(settings: Any) -> None:
    """Check the types of all fields, and the values of those of `ProblemSettings`.

    Raises:
        ValueError, TypeError: a value cannot be right; field and remedy are named.
    """
    hints = get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        _check_type(field.name, getattr(settings, field.name), hints[field.name])
    check_source(settings.source)
    _check_format(settings)
    check_counts(settings, optional=("limit",))


def _check_format(settings: ProblemSettings) -> None:
    """Check what the settings say of fields and labels; labels may come to be named later."""
    is_nli = settings.fields == NLI.fields
    labels = settings.labels or LABELS
    ProblemFormat(settings.fields, labels)  # checks its values itself
    if settings.labels or is_nli:
        check_members("label_map", [v for v in settings.label_map.values() if v], labels)
    shared = settings.shared_fields
    check_members("shared_fields", shared, settings.fields)
    if shared and len(set(shared)) < 2:
        raise ValueError(
            f"shared_fields: expected two or more of {list(settings.fields)}, got {list(shared)}"
        )
    check_members("field_columns", settings.field_columns or (), settings.fields)
    for name in ("premise_column", "hypothesis_column"):
        if getattr(settings, name) is not None and not is_nli:
            raise ValueError(
                f"{name}: expected the fields {' and '.join(NLI.fields)} with it, got "
                f"{list(settings.fields)}; name columns with field_columns"
            )


def check_counts(settings: Any, *names: str, optional: Iterable[str] = ()) -> None:
    """Raise ValueError where one of these fields is below 1; `optional` ones may be None."""
    for name in names:
        if getattr(settings, name) < 1:
            raise ValueError(f"{name}: expected at least 1, got {getattr(settings, name)}")
    for name in optional:
        if (value := getattr(settings, name)) is not None and value < 1:
            raise ValueError(f"{name}: expected at least 1 or nothing, got {value}")


def check_members(name: str, values: Iterable[str], allowed: tuple[str, ...]) -> None:
    """Raise ValueError where one of a field's values is not allowed; the nearest is named."""
    for value in values:
        if value not in allowed:
            near = difflib.get_close_matches(value, allowed, n=1)
            suffix = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{name}: expected members of {list(allowed)}, got {value!r}{suffix}")


def values_of(settings: Any) -> dict[str, Any]:
    """Fields by name, in the order in which they are written; see `later_field`."""
    fields = sorted(dataclasses.fields(settings), key=lambda field: _FIRST not in field.metadata)
    values = {field.name: getattr(settings, field.name) for field in fields}
    unused = {f.name for f in fields if _LATER in f.metadata and values[f.name] == f.default}
    return {name: value for name, value in values.items() if name not in unused}


def from_mapping(cls: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Settings from fields by name, as read from TOML; lists become tuples.

    Raises:
        ValueError: a key is no field; the message names the nearest one.
    """
    known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {sorted(known)}"
            raise ValueError(f"unknown setting {key!r}{hint}")
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def to_toml(settings: Any) -> str:
    """The settings as TOML; unset ones left out."""
    import tomli_w

    values = values_of(settings)
    values["label_map"] = dict(sorted(settings.label_map.items()))
    return tomli_w.dumps({k: v for k, v in values.items() if v not in (None, {})})


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """What a TOML file says.

    Raises:
        ValueError: it is none; the message begins with `where`.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: expected TOML, got an error: {error}") from error


def _check_type(name: str, value: Any, hint: Any) -> None:
    members = get_args(hint) if type(None) in get_args(hint) else (hint,)
    if options := next((get_args(h) for h in members if get_origin(h) is Literal), None):
        if value not in options and (value is not None or type(None) not in members):
            near = difflib.get_close_matches(str(value), options, n=1)
            suffix = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{name}: expected one of {list(options)}, got {value!r}{suffix}")
        return
    allowed: tuple[type, ...] = tuple(get_origin(h) or h for h in members)
    # As for type checkers, an int is a float, and a bool is no int.
    taken = (*allowed, int) if float in allowed else allowed
    if not isinstance(value, taken) or (isinstance(value, bool) and bool not in allowed):
        expected = " or ".join(t.__name__ for t in allowed)
        raise TypeError(f"{name}: expected {expected}, got {value!r}")
    if isinstance(value, tuple) and not all(isinstance(item, str) for item in value):
        raise TypeError(f"{name}: expected a list of strings, got {value!r}")
    if isinstance(value, Mapping) and not all(
        isinstance(item, str) for pair in value.items() for item in pair
    ):
        raise TypeError(f"{name}: expected a table of strings, got {value!r}")
