"""One frozen configuration: recipe, then ablation, then what the user says.

Recipes and ablations are small TOML files whose keys are the field names below.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal, Self

from generation.settings import (
    ProblemSettings,
    check_counts,
    check_members,
    check_settings,
    first_field,
    from_mapping,
    later_field,
    parse_toml,
    to_toml,
    values_of,
)
from merge_dataset.schema import WORD_CLASSES

BUNDLED_MLM: Final = "bert-tiny-mlm"
"""Name of the masked LM that comes with this package."""

_OF_THE_MACHINE: Final = frozenset(
    {"data", "mlms", "device", "dtype", "batch_tokens", "workers", "tagger", "store", "run"}
)
"""Settings left out of `Config.what_is_made`: paths, and what the manifest records as it
came out (model revisions, device, dtype, tagger)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ProblemSettings):
    """Everything that determines a run; the defaults are those of recipe `paper-v2`.

    Build one with `Config.from_recipe`, or directly. Validated on creation.
    """

    recipe: str = first_field("custom")
    """Where the settings come from; a name for the manifest, nothing more."""
    ablation: str | None = first_field(None)
    """Name of the ablation applied (D13), for the manifest."""

    # Suggestions (D3–D5, D12)
    mlms: tuple[str, ...] = ()
    """Hub ids, optionally `id@revision`, or directories of masked LMs."""
    without_mlms: tuple[str, ...] = later_field(())
    """Masked LMs whose answers a build leaves alone, by their names in the provenance columns."""
    suggestions_per_occurrence: int = 200
    masking: Literal["single", "joint"] = "single"
    max_pieces: int = later_field(1)
    """Most word pieces of an original and of a suggestion."""

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

    # Beyond the paper's limits (beyond.md)
    families: Literal["ignore", "reject", "inflect"] = later_field("ignore")
    """What becomes of a word of which another form stands in the problem."""
    words_at_once: int = later_field(1)
    """How many shared words of a class a variant replaces."""
    repair_articles: bool = later_field(False)
    """Let "a" and "an" before a word that changes fit what stands there afterwards."""

    # Filters by signals (README, Signals), before eligibility
    min_log_odds: float | None = later_field(None)
    """In nats, the smallest over models and occurrences."""
    min_mlms: int | None = later_field(None)
    """Masked LMs that validated the replacement."""
    min_zipf_frequency: float | None = later_field(None)
    min_pll_change: float | None = later_field(None)
    """Of every text, in nats; wants `merge-nli signals` first."""
    same_number: bool = later_field(False)
    """Singular nouns stay singular, plural ones plural."""
    same_tense: bool = later_field(False)
    """Verbs keep their form."""
    fitting_article: bool = later_field(False)
    """No "a" before a word that wants "an", nor the other way round."""

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
        check_settings(self)
        check_members("word_classes", self.word_classes, WORD_CLASSES)
        if not self.word_classes:
            raise ValueError(f"word_classes: expected at least one of {WORD_CLASSES}, got none")
        counts = ("suggestions_per_occurrence", "min_replacements", "subsamples",
                  "variants_per_class", "workers", "max_pieces", "words_at_once")  # fmt: skip
        check_counts(self, *counts, optional=("batch_tokens", "min_mlms"))
        if self.max_pieces > 1 and not self.probability_filter:
            raise ValueError(
                "max_pieces: words of several pieces are looked for among those that are more "
                "probable than the original: expected 1 with probability_filter = false, got "
                f"{self.max_pieces}"
            )
        if (self.same_number or self.same_tense) and not self.class_filter:
            raise ValueError(
                "same_number, same_tense: expected class_filter with them, as without it "
                "replacements are not tagged; set them to false"
            )

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
        return from_mapping(cls, values)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a `config.toml` as `to_toml` wrote it."""
        return cls.from_mapping(parse_toml(path.read_text(encoding="utf-8"), str(path)))

    def to_toml(self) -> str:
        """The settings as TOML in the order above; unset ones left out."""
        return to_toml(self)

    def overlaid(self, ablation: str | None, settings: Mapping[str, Any]) -> Self:
        """These settings, overlaid by an ablation (D13), overlaid by single fields.

        Raises:
            ValueError: unknown ablation or key, or a value out of range.
        """
        values = values_of(self)
        if ablation is not None:
            values |= {"ablation": ablation, **_read_bundled("recipes/ablations", ablation)}
        return self.from_mapping(values | {k: v for k, v in settings.items() if v is not None})

    @property
    def changes_more(self) -> bool:
        """Whether variants may change more than the occurrences of one word."""
        return self.families != "ignore" or self.words_at_once > 1 or self.repair_articles

    def located(self) -> Self:
        """The same with whole paths to models and store, for processes started elsewhere."""
        mlms = tuple(str(Path(m).resolve()) if Path(m).is_dir() else m for m in self.mlms)
        store = str(Path(self.store).resolve()) if self.store else None
        return dataclasses.replace(self, mlms=mlms, store=store)

    def what_is_made(self) -> dict[str, Any]:
        """The settings that decide what is made: neither the machine's nor the paths."""
        values = values_of(self)
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
        return parse_toml(path.read_text(encoding="utf-8"), recipe)
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
    return parse_toml(path.read_text(encoding="utf-8"), name)
