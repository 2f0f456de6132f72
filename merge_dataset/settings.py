"""Settings, each declared once, by `setting`: as a field of a frozen dataclass, its key in TOML."""

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from merge_dataset.paths import described

Settings = TypeVar("Settings")
Value = TypeVar("Value")

REQUIRED: Final[Any] = dataclasses.MISSING
"""In place of a default: the setting has to be given."""

INPUT, OUTPUT, STATISTICS, RUNNING = "Input", "Output", "Statistics", "Running"
"""Headings of the help, of most commands."""

_KEY: Final = "setting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Declaration of a field beside its name, type and default."""

    help: str
    commands: str = ""
    """Names of the commands that have an option for it, with spaces between."""
    option: str | None = None
    """Name of the option, or `--yes/--no`; by default made of the field's name."""
    panel: str | None = None
    """Heading under which the help shows it."""
    metavar: str | None = None
    """Stands for the value in the help; by default its type."""
    minimum: float | None = None
    members: tuple[str, ...] | None = None
    """Strings that a tuple may hold."""
    parse: Callable[[Any], Any] | None = None
    """From what the command line has to the value; ValueError says what was expected."""
    repeated: bool = False
    """Whether the option may be repeated, so that `parse` takes a list."""
    affects_output: bool = True
    """Whether runs that differ in it make different things; paths and machine do not."""
    omit_if_default: bool = False
    """Written only where used, so older runs keep their bytes and fingerprints."""
    written_first: bool = False
    """Write it before the fields of the class's base."""


def setting(default: Value, help: str, **declared: Any) -> Value:
    """Declare a field of a settings class, whose type says what it takes; a dict is copied."""
    metadata = {_KEY: Setting(help=help, **declared)}
    if isinstance(default, dict):
        field: Any = dataclasses.field(default_factory=default.copy, metadata=metadata)
    else:
        field = dataclasses.field(default=default, metadata=metadata)
    return field  # type: ignore[no-any-return]  # for type checkers it is the default


def setting_of(cls: type, name: str, **changes: Any) -> Any:
    """Declare a field as another settings class declares it, with its default."""
    field, declared = next((f, s) for f, s in declared_settings(cls).items() if f.name == name)
    metadata = {_KEY: dataclasses.replace(declared, **changes)}
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=field.default_factory, metadata=metadata)
    return dataclasses.field(default=field.default, metadata=metadata)


def declared_settings(cls: type) -> dict[dataclasses.Field[Any], Setting]:
    """Map the fields of a settings class to their declarations, in their order."""
    return {f: f.metadata[_KEY] for f in dataclasses.fields(cls) if _KEY in f.metadata}


# --- Checks ---


def check_types(settings: Any) -> None:
    """Check types and choices; lists, lone texts and paths get their field's type in place."""
    hints = get_type_hints(type(settings))
    for name in (field.name for field in dataclasses.fields(settings)):
        value, hint = getattr(settings, name), hints[name]
        kinds = {get_origin(each) or each for each in (hint, *get_args(hint))}
        if tuple in kinds and isinstance(value, list | str | os.PathLike):
            many = value if isinstance(value, list) else [value]
            value = tuple(str(each) if isinstance(each, os.PathLike) else each for each in many)
            object.__setattr__(settings, name, value)
        elif str in kinds and isinstance(value, os.PathLike):
            value = str(value)
            object.__setattr__(settings, name, value)
        members = get_args(hint) if _is_optional(hint) else (hint,)
        if choices := next((get_args(h) for h in members if get_origin(h) is Literal), None):
            if value not in choices and (value is not None or not _is_optional(hint)):
                near = did_you_mean(str(value), choices)
                known = ", ".join(str(each) or '""' for each in choices)
                raise ValueError(f"{name}: expected one of {known}, got {value!r}{near}")
            continue
        allowed: tuple[type, ...] = tuple(get_origin(h) or h for h in members)
        # As for type checkers, an int is a float, and a bool is no int.
        taken = (*allowed, int) if float in allowed else allowed
        if not isinstance(value, taken) or (isinstance(value, bool) and bool not in allowed):
            expected = " or ".join(_IN_WORDS.get(t, t.__name__) for t in allowed)
            raise TypeError(f"{name}: expected {expected}, got {value!r}")
        if isinstance(value, tuple) and not all(isinstance(item, str) for item in value):
            raise TypeError(f"{name}: expected a list of strings, got {value!r}")
        if isinstance(value, Mapping) and not all(
            isinstance(item, str) for pair in value.items() for item in pair
        ):
            raise TypeError(f"{name}: expected a table of strings, got {value!r}")


def require_settings(name: str, given: object, cls: type) -> None:
    """Raise TypeError where what is given is no record of a settings class."""
    if not isinstance(given, cls):
        raise TypeError(f"{name}: expected a {cls.__name__}, got {described(given)}")


def check_ranges(settings: Any) -> None:
    """Check smallest numbers and members of all fields that declare them."""
    hints = get_type_hints(type(settings))
    for field, declared in declared_settings(type(settings)).items():
        value, least = getattr(settings, field.name), declared.minimum
        if least is not None and value is not None and value < least:
            wanted = f"at least {least}" + (
                " or nothing" if _is_optional(hints[field.name]) else ""
            )
            raise ValueError(f"{field.name}: expected {wanted}, got {value}")
        if declared.members is not None and value is not None:
            check_members(field.name, value, declared.members)


def check_members(name: str, values: Iterable[str], allowed: tuple[str, ...]) -> None:
    """Raise ValueError where one of a field's values is not allowed; the nearest is named."""
    for value in values:
        if value not in allowed:
            hint = did_you_mean(value, allowed)
            raise ValueError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}{hint}")


def did_you_mean(value: str, known: Iterable[str], otherwise: str = "") -> str:
    """Name what is spelt most like a value, for the end of a message.

    >>> did_you_mean("noums", ["nouns", "verbs"]), did_you_mean("x", ["nouns"])
    ("; did you mean 'nouns'?", '')
    """
    near = difflib.get_close_matches(value, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else otherwise


_IN_WORDS: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple: "a list",
    dict: "a table",
    type(None): "nothing",
}


def _is_optional(hint: Any) -> bool:
    return type(None) in get_args(hint)


# --- Reading and writing ---


def from_mapping(cls: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Make settings of fields by name, as read from TOML; lists become tuples."""
    known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            hint = did_you_mean(key, known, f"; there are {', '.join(sorted(known))}")
            raise ValueError(f"unknown setting {key!r}{hint}")
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def to_mapping(settings: Any, *, affects_output: bool = False) -> dict[str, Any]:
    """Map fields to values, unless `omit_if_default` and unset; or only what `affects_output`."""
    declared = declared_settings(type(settings))
    values = {
        field.name: getattr(settings, field.name)
        for field in sorted(declared, key=lambda field: not declared[field].written_first)
        if not affects_output or declared[field].affects_output
    }
    for field, each in declared.items():
        make = field.default_factory
        default = field.default if make is dataclasses.MISSING else make()
        if each.omit_if_default and field.name in values and values[field.name] == default:
            del values[field.name]
    return values


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Parse TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: expected TOML, could not read it: {error}") from error


# --- Values as a command line has them ---


def parse_names(text: str) -> tuple[str, ...]:
    """Split names at their commas, without the spaces around them."""
    return tuple(name.strip() for name in text.split(","))


def parse_pairs(pairs: Iterable[str], form: str) -> dict[str, str]:
    """Split pairs at their equals signs; `form` is how they should look, for a message."""
    split = [pair.partition("=") for pair in pairs]
    for key, equals, _ in split:
        if not equals:
            raise ValueError(f"expected {form}, got {key!r}")
    return {key.strip(): value.strip() for key, _, value in split}
