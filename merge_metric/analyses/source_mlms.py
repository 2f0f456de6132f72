"""Does a model know its own MLM's replacements better? (paper, section 5.3, figure 7)."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from merge_metric.analyses.contrasts import contrast_rows, contrast_table
from merge_metric.runs.run import Run
from merge_metric.tables import Table

log = logging.getLogger(__name__)

GROUPS: Final = ("equiv", "size", "multi", "one")
"""Suggested by the MLM of the model's kind and size; by one of its kind in another size; by
several MLMs, its own or not; by a single one of another kind."""

PAPER: Final = Path(__file__).with_name("paper_mlms.toml")
"""The mapping of the paper's models."""

_KEYS: Final = ("names", "equivalent", "size")


@dataclass(frozen=True, slots=True)
class Counterparts:
    """The MLMs of a model's kind."""

    equivalent: frozenset[str]
    size: frozenset[str]
    """Of another size."""


def read_counterparts(path: Path) -> dict[str, Counterparts]:
    """Read a mapping of models to MLMs.

    A TOML table per model: `equivalent` and `size` list MLMs as the dataset's column `mlms`
    names them; `names`, optional, lists further names of the model.

    Returns:
        Name of a model → its MLMs.

    Raises:
        ValueError: the file is not of this form.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected TOML, got an error: {error}") from error
    found: dict[str, Counterparts] = {}
    for model, table in tables.items():
        if not _is_entry(table):
            raise ValueError(
                f"{path}: expected for each model a table of lists of names, {', '.join(_KEYS)}, "
                f"with one or both of the last two, got for {model!r}: {table!r}"
            )
        mlms = Counterparts(*(frozenset(table.get(key, ())) for key in ("equivalent", "size")))
        if twice := mlms.equivalent & mlms.size:
            raise ValueError(
                f"{path}: expected an MLM to be of equivalent or of another size, got both for "
                f"{model!r}: {', '.join(sorted(twice))}"
            )
        for name in (model, *table.get("names", ())):
            if name in found:
                raise ValueError(f"{path}: expected each model once, got {name!r} twice")
            found[name] = mlms
    return found


def _is_entry(table: Any) -> bool:
    return (
        isinstance(table, dict)
        and table.keys() <= set(_KEYS)
        and bool(table.keys() & {"equivalent", "size"})
        and all(
            isinstance(names, list) and all(isinstance(name, str) for name in names)
            for names in table.values()
        )
    )


def origin(mlms: Sequence[str], counterparts: Counterparts) -> str | None:
    """The group of a variant, from the MLMs that suggested it; None where none is known.

    >>> bert = Counterparts(frozenset({"bert-base"}), frozenset({"bert-large"}))
    >>> [origin(mlms, bert) for mlms in (["bert-base"], ["bert-large"], ["albert"])]
    ['equiv', 'size', 'one']
    >>> origin(["bert-base", "albert"], bert)
    'multi'
    """
    if not mlms:
        return None
    if len(set(mlms)) > 1:
        return "multi"
    if mlms[0] in counterparts.equivalent:
        return "equiv"
    return "size" if mlms[0] in counterparts.size else "one"


def source_mlms(
    runs: Iterable[Run],
    counterparts: Mapping[str, Counterparts],
    *,
    matched: bool = False,
    correctness_threshold: int = 90,
    n_bootstrap: int = 1000,
    rng_seed: int = 0,
) -> Table:
    """A row per model, configuration and group, on the seeds that have all groups.

    Groups without any variant in a configuration are left out, with a warning, and so
    are models that are not in the mapping.

    Args:
        runs: Models on configurations, with the group `mlms`.
        counterparts: Name of a model → its MLMs.
        matched: Take equally many variants of each group (see `contrasts.on_shared_seeds`).
        correctness_threshold: CT of the differences.
        n_bootstrap: Replicates for their intervals; 0 for none.
        rng_seed: Of the bootstrap, and of the choice of matched variants.

    Raises:
        ValueError: no model is in the mapping, or nothing can be contrasted.
    """
    rows: list[dict[str, Any]] = []
    unknown: dict[str, None] = {}
    for run in runs:
        if run.model not in counterparts:
            unknown[run.model] = None
            continue
        rows += contrast_rows(
            {"config": run.config, "model": run.model, "contrast": "all groups"},
            run.rows,
            _groups(run, counterparts[run.model]),
            matched=matched,
            correctness_threshold=correctness_threshold,
            n_bootstrap=n_bootstrap,
            rng_seed=rng_seed,
        )
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
        group="origin",
        matched=matched,
        correctness_threshold=correctness_threshold,
        notes=(
            "equiv: suggested only by the MLM of the model's kind and size; size: only by one of "
            "its kind in another size; multi: by several MLMs; one: only by one of another kind.",
        ),
    )


def _groups(run: Run, counterparts: Counterparts) -> dict[str, Any]:
    """Group → mask of its rows, of those groups that have any."""
    origins = [origin(mlms, counterparts) for mlms in run.groups["mlms"]]
    of_row = np.asarray(origins, dtype=object)
    groups = {name: of_row == name for name in GROUPS if (of_row == name).any()}
    if empty := [name for name in GROUPS if name not in groups]:
        log.warning(
            "%s, %s: left out, as there are no variants of it: %s",
            run.model,
            run.config,
            ", ".join(empty),
        )
    if len(groups) < 2:
        found = sorted({mlm for mlms in run.groups["mlms"] for mlm in mlms})
        raise ValueError(
            f"{run.model}, {run.config}: expected variants of two groups or more, got only "
            f"{', '.join(groups) or 'none'}; the MLMs of the dataset are {', '.join(found)}"
        )
    return groups
