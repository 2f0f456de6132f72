"""Settings, declared by `setting` as fields of dataclasses and keys in TOML; other arguments."""

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

Settings = TypeVar("Settings")
Value = TypeVar("Value")

REQUIRED: Final[Any] = dataclasses.MISSING
"""Value in place of a default: the setting is required."""

INPUT, OUTPUT, STATISTICS, RUNNING = "Input", "Output", "Statistics", "Running"
"""Headings of the help of most commands."""

_KEY: Final = "setting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Declaration of a field, in addition to its name, type and default."""

    help: str
    commands: str = ""
    """Names of the commands that have an option for it, separated by spaces."""
    option: str | None = None
    """Name of the option, or `--yes/--no`; by default derived from the field's name.

    A field that is False by default has a flag, and one that is True both of them.
    """
    panel: str | None = None
    """Heading in the help."""
    rare: bool = False
    """Whether `--help-all` shows its option, but `--help` does not."""
    metavar: str | None = None
    """Placeholder of the value in the help; by default its type."""
    minimum: float | None = None
    members: tuple[str, ...] | None = None
    """Strings that a tuple may hold."""
    parse: Callable[[Any], Any] | None = None
    """Function from the command line's text to the value; raises ValueError with "expected …"."""
    repeated: bool = False
    """Whether the option may be repeated, so that `parse` takes a list."""
    affects_output: bool = True
    """Whether it changes results; paths and settings of the machine do not."""
    omit_if_default: bool = False
    """Whether it is written only if used: the files of other runs do not name it."""
    written_first: bool = False
    """Whether it is written before the fields of the base class."""


def setting(default: Value, help: str, **declared: Any) -> Value:
    """Declare a field of a settings class; its annotation gives the type; a dict is copied."""
    return field_of(Setting(help=help, **declared), default)


def field_of(setting: Setting, default: Value) -> Value:
    """Make the field of a declared setting; for type checkers it is the default."""
    more: Any = {"default": default}
    if isinstance(default, dict):
        more = {"default_factory": default.copy}
    return dataclasses.field(metadata={_KEY: setting}, **more)  # type: ignore[no-any-return]


def setting_of(cls: type, name: str, **changes: Any) -> Any:
    """Declare a field like a field of another settings class, with the same default."""
    field, declared = next((f, s) for f, s in declared_settings(cls).items() if f.name == name)
    return field_of(dataclasses.replace(declared, **changes), default_of(field))


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return a field's default; `REQUIRED` without one."""
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


def declared_settings(cls: type) -> dict[dataclasses.Field[Any], Setting]:
    """Map the fields of a settings class, in order, to their declarations."""
    return {f: f.metadata[_KEY] for f in dataclasses.fields(cls) if _KEY in f.metadata}


# --- Checks ---


def check_settings(settings: Any) -> None:
    """Check a settings object; convert lists, single texts and paths to the fields' types.

    Raises:
        ValueError: a value has another type than its field, is below the field's minimum, or none
            of its choices or members; the message names the field.
    """
    hints, declared = get_type_hints(type(settings)), declared_settings(type(settings))
    for field in dataclasses.fields(settings):
        name, hint = field.name, hints[field.name]
        value: Any = getattr(settings, name)
        setting = declared.get(field) or Setting(help="")
        union = get_args(hint) if type(None) in get_args(hint) else (hint,)
        kinds: tuple[type, ...] = tuple(get_origin(kind) or kind for kind in union)
        if isinstance(value, os.PathLike) and str in {*kinds, *get_args(hint)}:
            value = str(value)
        if tuple in kinds and isinstance(value, list | str):
            items = [value] if isinstance(value, str) else value
            value = tuple(str(item) if isinstance(item, os.PathLike) else item for item in items)
        object.__setattr__(settings, name, value)
        if value is None and type(None) in kinds:
            continue
        if choices := next((get_args(kind) for kind in union if get_origin(kind) is Literal), None):
            check_members(name, [value], choices)
            continue
        # As in type checkers, an int is a float; but a bool is not an int here.
        taken: Any = (*kinds, int) if float in kinds else kinds
        texts: Any = value if isinstance(value, tuple) else ()
        texts = [*value, *value.values()] if isinstance(value, Mapping) else texts
        expected = " or ".join(_IN_WORDS.get(kind, kind.__name__) for kind in kinds)
        if not isinstance(value, taken) or (isinstance(value, bool) and bool not in kinds):
            pass
        elif not all(isinstance(text, str) for text in texts):
            expected += " of strings"
        elif setting.minimum is not None and value < setting.minimum:
            nothing = " or nothing" if type(None) in kinds else ""
            expected = f"at least {setting.minimum}{nothing}"
        else:
            check_members(name, value if setting.members else (), setting.members or ())
            continue
        raise ValueError(f"{name}: expected {expected}, got {value!r}")


def check_members(name: str, values: Iterable[str], allowed: Collection[str]) -> None:
    """Raise ValueError if an option has a value that is not allowed; suggest the most similar."""
    for value in values:
        if value not in allowed:
            known, hint = ", ".join(text or '""' for text in allowed), did_you_mean(value, allowed)
            raise ValueError(f"{name}: expected one of {known}, got {value!r}{hint}")


def did_you_mean(value: object, known: Iterable[str], otherwise: str = "") -> str:
    """Suggest the known value with the most similar spelling, for the end of a message.

    >>> did_you_mean("noums", ["nouns", "verbs"]), did_you_mean("x", ["nouns"])
    ("; did you mean 'nouns'?", '')
    """
    near = difflib.get_close_matches(str(value), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else otherwise


_IN_WORDS: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple: "a list",
    Mapping: "a table",
    type(None): "nothing",
}


# --- Reading and writing ---


def from_mapping(cls: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Make settings from values by field name, as read from TOML; lists become tuples."""
    known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    check_members("settings", values, sorted(known))
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def to_mapping(settings: Any, *, affects_output: bool = False) -> dict[str, Any]:
    """Map fields to values, without unset `omit_if_default` ones; or only if `affects_output`."""
    declared = declared_settings(type(settings))
    values = {
        field.name: getattr(settings, field.name)
        for field in sorted(declared, key=lambda field: not declared[field].written_first)
        if not affects_output or declared[field].affects_output
    }
    for field, setting in declared.items():
        if setting.omit_if_default and values.get(field.name, REQUIRED) == default_of(field):
            del values[field.name]
    return values


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Parse TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: expected TOML, could not read it: {error}") from error


# --- Values from a command line ---


def parse_names(text: str) -> tuple[str, ...]:
    """Split names at commas, and strip spaces."""
    return tuple(name.strip() for name in text.split(","))


def parse_pairs(pairs: Iterable[str], form: str) -> dict[str, str]:
    """Split pairs at equals signs; `form` shows the expected form in a message."""
    split = [pair.partition("=") for pair in pairs]
    for key, equals, _ in split:
        if not equals:
            raise ValueError(f"expected {form}, got {key!r}")
    return {key.strip(): value.strip() for key, _, value in split}


# --- Arguments of functions ---


def as_list(given: Any, *kinds: Any) -> list[Any]:
    """Turn a value of some kinds, or several values, into a list."""
    return [given] if isinstance(given, kinds) else list(given)


def as_texts(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """Turn one or several texts into a tuple; None is none.

    >>> as_texts("snli"), as_texts(None)
    (('snli',), ())
    """
    return () if given is None else tuple(as_list(given, str))


def as_paths(given: Any) -> list[Path]:
    """Turn one or several texts or paths into paths."""
    return list(map(Path, as_list(given, str, os.PathLike)))
