"""One frozen configuration: recipe, then ablation, then what the user says.

Recipes and ablations are small TOML files whose keys are the field names below.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal, Self, get_args, get_origin, get_type_hints

from merge_dataset.schema import LABELS, WORD_CLASSES, check_source

BUNDLED_MLM: Final = "bert-tiny-mlm"
"""Name of the masked LM that comes with this package."""

_OF_THE_MACHINE: Final = frozenset(
    {"data", "mlms", "device", "dtype", "batch_tokens", "workers", "tagger", "store", "run"}
)
"""Settings left out of `Config.what_is_made`: paths, and what the manifest records as it
came out (model revisions, device, dtype, tagger)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that determines a run; the defaults are those of recipe `paper-v2`.

    Build one with `Config.from_recipe`, or directly. Validated on creation.
    """

    recipe: str = "custom"
    """Where the settings come from; a name for the manifest, nothing more."""
    ablation: str | None = None
    """Name of the ablation applied (D13), for the manifest."""

    # Problems (D15)
    source: str = "snli"
    """`snli`, `mnli-m`, `mnli-mm`, `demo`, or a slug of your own."""
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
    """A data set's own label (as text) → one of the three labels, or "" for unlabelled."""
    limit: int | None = None
    """Only the first so many labelled problems."""

    # Suggestions (D3–D5, D12)
    mlms: tuple[str, ...] = ()
    """Hub ids, optionally `id@revision`, or directories of masked LMs."""
    suggestions_per_occurrence: int = 200
    masking: Literal["single", "joint"] = "single"

    # Filters (D5, D8, D11) and eq. 1
    word_classes: tuple[str, ...] = ("noun", "verb", "adjective")
    probability_filter: bool = True
    """Condition (i): more probable than the original."""
    class_filter: bool = True
    """Condition (iii): the original's word class."""
    tag_match: Literal["coarse", "fine"] = "coarse"
    combine: Literal["intersection", "union"] = "intersection"
    """How R(p, o) and R(h, o) meet in eq. 1."""
    scramble: bool = False
    """Shuffle the replacement's letters."""

    # Eligibility and sampling (D9, D10)
    min_replacements: int = 20
    min_replacements_scope: Literal["class", "problem", "word"] = "class"
    subsamples: int = 10
    variants_per_class: int = 20
    rng_seed: int = 0

    # Machine: none of these changes what is made
    device: str = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1`, `mps`."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    batch_tokens: int | None = None
    """Tokens per forward pass; by default what suits the device."""
    workers: int = 1
    """Processes that work at a time: on blocks of problems in `build`, in `suggest` on tasks."""
    tagger: str | None = None
    """A spaCy model; by default en_core_web_sm under either of its names."""
    store: str | None = None
    """Folder of the suggestion store; by default `suggestions/` in the run folder."""
    run: str = "runs/default"

    def __post_init__(self) -> None:
        """Check every value; raises ValueError or TypeError naming field and remedy."""
        hints = get_type_hints(type(self))
        for field in dataclasses.fields(self):
            _check_type(field.name, getattr(self, field.name), hints[field.name])
        check_source(self.source)
        _check_members("word_classes", self.word_classes, WORD_CLASSES)
        _check_members("label_map", [v for v in self.label_map.values() if v], LABELS)
        if not self.word_classes:
            raise ValueError(f"word_classes: expected at least one of {WORD_CLASSES}, got none")
        for name in ("suggestions_per_occurrence", "min_replacements", "subsamples",
                     "variants_per_class", "workers"):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")
        for name in ("limit", "batch_tokens"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name}: expected at least 1 or nothing, got {value}")

    @classmethod
    def from_recipe(cls, recipe: str, *, ablation: str | None = None, **settings: Any) -> Self:
        """Settings of a recipe, overlaid by an ablation, overlaid by `settings`.

        Args:
            recipe: Name of a bundled recipe, or path of a .toml file with the same keys.
            ablation: One of `ablation_names()` (D13).
            settings: Single fields; those that are None are left as the recipe has them.

        Raises:
            ValueError: unknown recipe, ablation or key (the nearest known one is named),
                or a value out of range.

        >>> Config.from_recipe("poster").min_replacements_scope
        'word'
        """
        base = cls.from_mapping({"recipe": Path(recipe).stem, **_read_recipe(recipe)})
        return base.overlaid(ablation, settings)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Fields by name, as read from TOML; lists become tuples.

        Raises:
            ValueError: a key is no field; the message names the nearest one.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        for key in values:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {sorted(known)}"
                raise ValueError(f"unknown setting {key!r}{hint}")
        fields: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
        }
        return cls(**fields)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a `config.toml` as `to_toml` wrote it."""
        return cls.from_mapping(_parse_toml(path.read_text(encoding="utf-8"), str(path)))

    def to_toml(self) -> str:
        """The settings as TOML in the order above; unset ones left out."""
        import tomli_w

        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["label_map"] = dict(sorted(self.label_map.items()))
        return tomli_w.dumps({k: v for k, v in values.items() if v not in (None, {})})

    def overlaid(self, ablation: str | None, settings: Mapping[str, Any]) -> Self:
        """These settings, overlaid by an ablation (D13), overlaid by single fields.

        Raises:
            ValueError: unknown ablation or key, or a value out of range.
        """
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if ablation is not None:
            values |= {"ablation": ablation, **_read_bundled("recipes/ablations", ablation)}
        return self.from_mapping(values | {k: v for k, v in settings.items() if v is not None})

    def located(self) -> Self:
        """The same with whole paths to models and store, for processes started elsewhere."""
        mlms = tuple(str(Path(m).resolve()) if Path(m).is_dir() else m for m in self.mlms)
        store = str(Path(self.store).resolve()) if self.store else None
        return dataclasses.replace(self, mlms=mlms, store=store)

    def what_is_made(self) -> dict[str, Any]:
        """The settings that decide what is made: neither the machine's nor the paths."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["label_map"] = dict(self.label_map)
        return {k: v for k, v in values.items() if k not in _OF_THE_MACHINE}


def recipe_names() -> list[str]:
    """The bundled recipes."""
    return _bundled_names("recipes")


def ablation_names() -> list[str]:
    """The bundled ablations (D13)."""
    return _bundled_names("recipes/ablations")


def bundled_path(name: str) -> Path:
    """A file or folder shipped beside this module, such as `demo/problems.jsonl`."""
    return Path(str(resources.files("generation").joinpath(name)))


def _bundled_names(folder: str) -> list[str]:
    return sorted(path.stem for path in bundled_path(folder).glob("*.toml"))


def _read_recipe(recipe: str) -> dict[str, Any]:
    if recipe.endswith(".toml"):
        path = Path(recipe)
        if not path.is_file():
            raise ValueError(f"expected a recipe file at {path}, found none")
        return _parse_toml(path.read_text(encoding="utf-8"), recipe)
    return _read_bundled("recipes", recipe)


def _read_bundled(folder: str, name: str) -> dict[str, Any]:
    kind = "ablation" if folder.endswith("ablations") else "recipe"
    names = _bundled_names(folder)
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        wanted = (
            f"an ablation of {names}"
            if kind == "ablation"
            else f"a recipe of {names} or a .toml file"
        )
        raise ValueError(f"expected {wanted}, got {name!r}{hint}")
    path = bundled_path(f"{folder}/{name}.toml")
    return _parse_toml(path.read_text(encoding="utf-8"), name)


def _parse_toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: expected TOML, got an error: {error}") from error


def _check_type(name: str, value: Any, hint: Any) -> None:
    options = get_args(hint) if get_origin(hint) is Literal else None
    if options:
        if value not in options:
            near = difflib.get_close_matches(str(value), options, n=1)
            suffix = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{name}: expected one of {list(options)}, got {value!r}{suffix}")
        return
    allowed: tuple[type, ...] = tuple(
        get_origin(h) or h for h in (get_args(hint) if type(None) in get_args(hint) else (hint,))
    )
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        expected = " or ".join(t.__name__ for t in allowed)
        raise TypeError(f"{name}: expected {expected}, got {value!r}")
    if isinstance(value, tuple) and not all(isinstance(item, str) for item in value):
        raise TypeError(f"{name}: expected a list of strings, got {value!r}")
    if isinstance(value, Mapping) and not all(
        isinstance(item, str) for pair in value.items() for item in pair
    ):
        raise TypeError(f"{name}: expected a table of strings, got {value!r}")


def _check_members(name: str, values: Any, allowed: tuple[str, ...]) -> None:
    for value in values:
        if value not in allowed:
            near = difflib.get_close_matches(value, allowed, n=1)
            suffix = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{name}: expected members of {list(allowed)}, got {value!r}{suffix}")
