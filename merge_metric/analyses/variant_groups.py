"""Groups of variants that may be harder, as contrasts on the same seeds (`curves`).

Word classes are in section 5.2 and figures 6 and 12 to 14 of the paper, masked LMs in section 5.3
and figures 7 and 15.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from merge_dataset.schema import WORD_CLASSES
from merge_metric.analyses.curves import (
    FIXED_DRAWS,
    contrast_table,
    on_fixed_seeds,
    on_shared_seeds,
    plot_contrasts,
    rows_of_counts,
)
from merge_metric.analyses.measures import Bools, identity
from merge_metric.frame.joined import Frame
from merge_metric.seed_variant_accuracy.counts import count
from merge_metric.seed_variant_accuracy.options import USUAL, Settings
from merge_metric.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)


# --- Word classes ---


def word_classes(frames: Iterable[Frame], settings: Settings = USUAL) -> Table:
    """Make two rows per model, configuration and pair of classes: variants of each of the two."""
    rows = []
    for frame in frames:
        of_row = np.asarray(frame.values.get("word_class", ()), dtype=object)
        classes = [name for name in WORD_CLASSES if (of_row == name).any()]
        if len(classes) < 2:
            raise ValueError(
                f"{frame.model}: expected a configuration of several word classes, such as 'snli', "
                f"got {frame.config!r}"
            )
        for pair in combinations(classes, 2):
            contrast = " & ".join(pair)
            counts = on_shared_seeds(frame.rows, {name: of_row == name for name in pair})
            contrasted = rows_of_counts(identity(frame) | {"contrast": contrast}, counts, settings)
            if not contrasted:
                log.warning("%s: no seed has variants of %s", frame.config, contrast)
            rows += contrasted
    if not rows:
        raise ValueError("expected seeds with variants of two word classes, got none")
    return contrast_table(
        "classes",
        "Word classes on the same seeds: variants by the class of the replaced word",
        rows,
        settings.correctness_threshold,
        group="replaced",
    )


# --- Masked LMs ---

ORIGINS: Final = ("equiv", "size", "multi", "one")
"""Suggested by the model's own MLM, its kind in another size, several, or one other MLM."""

PAPER: Final = Path(__file__).with_name("paper_mlms.toml")

_KEYS: Final = ("names", "equivalent", "size")

Counterparts = Mapping[str, str]
"""MLM of the model's architecture → "equiv" if it also has the model's size, else "size"."""


def read_counterparts(path: Path) -> dict[str, Counterparts]:
    """Read a TOML file with the counterparts of models among MLMs; return model → counterparts.

    Each model has a table: `equivalent` and `size` list MLMs, `names` further names of the model.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected TOML, could not read it: {error}") from error
    counterparts: dict[str, Counterparts] = {}
    for model, table in tables.items():
        if not (
            isinstance(table, dict)
            and table.keys() <= set(_KEYS)
            and table.keys() & {"equivalent", "size"}
            and all(isinstance(names, list) for names in table.values())
            and all(isinstance(name, str) for names in table.values() for name in names)
        ):
            raise ValueError(
                f"{path}: expected for each model a table of lists of names, {', '.join(_KEYS)}, "
                f"with one or both of the last two, got for {model!r}: {table!r}"
            )
        equivalent, size = (table.get(key, ()) for key in ("equivalent", "size"))
        if twice := set(equivalent) & set(size):
            raise ValueError(
                f"{path}: expected an MLM to be of equivalent or of another size, got both for "
                f"{model!r}: {', '.join(sorted(twice))}"
            )
        for name in (model, *table.get("names", ())):
            if name in counterparts:
                raise ValueError(f"{path}: expected each model once, got {name!r} twice")
            counterparts[name] = dict.fromkeys(equivalent, "equiv") | dict.fromkeys(size, "size")
    return counterparts


def origin(mlms: Sequence[str], counterparts: Counterparts) -> str | None:
    """Return the group of a variant, one of `ORIGINS`, by its MLMs; None without MLMs."""
    if not mlms:
        return None
    return "multi" if len(set(mlms)) > 1 else counterparts.get(mlms[0], "one")


def source_mlms(
    frames: Iterable[Frame], counterparts: Mapping[str, Counterparts], settings: Settings = USUAL
) -> Table:
    """Make rows per model, configuration and group, on seeds that have all groups.

    The first rows take equal numbers of variants of each group, as SV accuracy at high thresholds
    falls with their number; the next take all variants.
    """
    rows: list[dict[str, Any]] = []
    unknown: dict[str, None] = {}
    for frame in frames:
        if frame.model not in counterparts:
            unknown[frame.model] = None
            continue
        origins = [origin(mlms, counterparts[frame.model]) for mlms in frame.values["mlms"]]
        of_row, where = np.asarray(origins, dtype=object), f"{frame.model}, {frame.config}"
        groups = {name: of_row == name for name in ORIGINS if (of_row == name).any()}
        if empty := [name for name in ORIGINS if name not in groups]:
            log.warning("%s: left out, as there are no variants of it: %s", where, ", ".join(empty))
        if len(groups) < 2:
            names = sorted({mlm for mlms in frame.values["mlms"] for mlm in mlms})
            raise ValueError(
                f"{where}: expected variants of two groups or more, got only "
                f"{', '.join(groups) or 'none'}; the MLMs of the dataset are {', '.join(names)}"
            )
        rows += _fixed_rows(frame, groups, settings)
    if unknown and rows:
        log.warning("left out, as not in the mapping to MLMs: %s", ", ".join(unknown))
    if not rows:
        raise ValueError(
            "expected a model in the mapping to MLMs, and seeds with variants of every group, got "
            + (
                f"none of {', '.join(unknown)} among {', '.join(list(counterparts)[:3])}, …; name "
                "a model as in the mapping with NAME=FILE, or give a mapping: --mlm-map FILE"
                if unknown
                else "no seed with variants of every group"
            )
        )
    return contrast_table(
        "mlms",
        "Variants by the masked LMs that suggested the replacement, on the same seeds",
        rows,
        settings.correctness_threshold,
        group="origin",
        fixed=True,
        notes=(
            "equiv: suggested only by the MLM of the model's kind and size; size: only by one of "
            "its kind in another size; multi: by several MLMs; one: only by one of another kind.",
            _DRAWN,
        ),
    )


_DRAWN: Final = (
    f"Equally many: of each seed as many distinct variants of each group as the smallest has, in "
    f"{FIXED_DRAWS} draws; all: every distinct variant once."
)


def _fixed_rows(
    frame: Frame, groups: Mapping[str, Bools], settings: Settings
) -> list[dict[str, Any]]:
    rows = []
    for matched, chosen in ((True, "equally many"), (False, "all")):
        counts = on_fixed_seeds(frame.rows, groups, matched=matched, rng_seed=settings.rng_seed)
        rows += rows_of_counts(identity(frame) | {"contrast": chosen}, counts, settings)
    return rows


def plot_source_mlms(table: Table) -> Figure:
    """Draw a panel per model (row), and per configuration and choice of variants (column)."""
    rows = [
        {**row, "config": f"{row['config']}, {row['contrast']}", "contrast": ""}
        for row in table.rows
    ]
    return plot_contrasts(replace(table, rows=tuple(rows)))


# --- One masked LM, or several (the poster) ---

SEVERAL: Final = "several"


def sole_mlms(frames: Iterable[Frame], settings: Settings = USUAL) -> Table:
    """Make rows by the only MLM that validated, or `SEVERAL`: on own seeds, then on shared ones."""
    rows: list[dict[str, Any]] = []
    for frame in frames:
        of_row = np.asarray(
            [
                (*set(mlms), "")[0] if len(set(mlms)) < 2 else SEVERAL
                for mlms in frame.values["mlms"]
            ],
            dtype=object,
        )
        names = [*sorted({name for name in of_row if name not in ("", SEVERAL)}), SEVERAL]
        groups = {name: of_row == name for name in names if (of_row == name).any()}
        if len(groups) < 2:
            raise ValueError(
                f"{frame.model}, {frame.config}: expected variants of two masked LMs or more, got "
                f"only those of {', '.join(groups) or 'none'}"
            )
        for name, mask in groups.items():
            counts = count(frame.rows, draws=np.flatnonzero(mask[frame.rows.draw_row]))
            rows += rows_of_counts(
                identity(frame) | {"contrast": OWN_SEEDS}, {name: counts}, settings
            )
        rows += _fixed_rows(frame, groups, settings)
    return contrast_table(
        "origins",
        "Variants by the masked LM that alone validated the replacement, or several",
        rows,
        settings.correctness_threshold,
        group="validated by",
        fixed=True,
        notes=(
            f"{OWN_SEEDS}: each group on the seeds that it has, averaged over the dataset's "
            f"subsamples, as on the poster; different groups are on different seeds then, and have "
            f"no difference. {_DRAWN}",
        ),
    )


OWN_SEEDS: Final = "own seeds"
