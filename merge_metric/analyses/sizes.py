"""Do larger models of a kind have lower fooling rates? (Arakelyan et al. 2024, figure 2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from merge_metric.analyses.measures import FOOLING, fooling
from merge_metric.runs.predictions import read_metadata
from merge_metric.runs.run import Run, Source
from merge_metric.tables import Column, Table
from merge_metric.tables.plots import PALETTE, distinct, legend_below, panels, percent_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PARAMETERS: Final = "parameters"
"""In the metadata of a predictions file: how many parameters its model has."""

_UNKNOWN: Final = "other"
"""Family of models whose predictions do not say what they are."""

_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)([KMB]?)", re.IGNORECASE)

_TASK: Final = re.compile(r"(For[A-Z]\w+|LMHeadModel|Model)$")
"""What ends the name of an architecture in transformers."""


@dataclass(frozen=True, slots=True)
class Size:
    """A model's number of parameters, and the models that it is on a line with."""

    parameters: int
    family: str


def parse_sizes(texts: Sequence[str]) -> dict[str, int]:
    """Model → number of parameters, from `NAME=86M` and the like.

    Raises:
        ValueError: a text is not of this form, or a model comes twice.

    >>> parse_sizes(["base=110M", "xl=1.5b", "tiny=4386178"])
    {'base': 110000000, 'xl': 1500000000, 'tiny': 4386178}
    """
    sizes: dict[str, int] = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        found = _SIZE.fullmatch(size)
        parameters = round(float(found[1]) * _UNITS[found[2].upper()]) if found else 0
        if not name or not parameters:
            raise ValueError(
                f"expected the size of a model as NAME=NUMBER, with K, M or B for thousands, "
                f"millions or billions of parameters, such as bert=110M, got {text!r}"
            )
        if name in sizes:
            raise ValueError(f"expected one size per model, got two for {name!r}")
        sizes[name] = parameters
    return sizes


def read_sizes(sources: Sequence[Source], given: Mapping[str, int]) -> dict[str, Size]:
    """Sizes and families of models.

    Args:
        sources: Predictions files. Those of `merge-nli predict` say how many parameters their
            model has, and its architecture, which is its family.
        given: Model → number of parameters, which comes before what the files say.

    Raises:
        ValueError: a model's size is nowhere to be found or contradictory, or a size is given
            for a model that has no predictions.
    """
    models = dict.fromkeys(source.model for source in sources)
    if unknown := [name for name in given if name not in models]:
        raise ValueError(
            f"expected sizes of models with predictions, {', '.join(models)}, got one of "
            f"{', '.join(map(repr, unknown))}"
        )
    metadata = {
        model: [read_metadata(source.path) for source in sources if source.model == model]
        for model in models
    }
    found = {
        model: Size(given.get(model) or _stated(model, facts), _family(facts))
        for model, facts in metadata.items()
    }
    if missing := [model for model, size in found.items() if not size.parameters]:
        raise ValueError(
            f"expected the number of parameters of every model, got none of "
            f"{', '.join(missing)}, as the predictions do not say it; add "
            f"{' '.join(f'--size {model}=NUMBER' for model in missing)}, such as 86M"
        )
    return found


def _stated(model: str, metadata: Sequence[Mapping[str, Any]]) -> int:
    """What the files say; 0 where they do not."""
    stated = {int(facts[PARAMETERS]) for facts in metadata if facts.get(PARAMETERS)}
    if len(stated) > 1:
        raise ValueError(
            f"expected one model of the name {model!r}, got predictions of models with "
            f"{' and '.join(f'{n:,}' for n in sorted(stated))} parameters; name them apart: "
            "NAME=FILE"
        )
    return max(stated, default=0)


def _family(metadata: Sequence[Mapping[str, Any]]) -> str:
    """The architecture without its task: `Deberta` of `DebertaForSequenceClassification`."""
    names = [str(facts["architecture"]) for facts in metadata if facts.get("architecture")]
    return _TASK.sub("", names[0]) if names else _UNKNOWN


def sizes(
    runs: Iterable[Run],
    size_of: Mapping[str, Size],
    *,
    n_bootstrap: int = 1000,
    rng_seed: int = 0,
) -> Table:
    """A row per model and configuration: by configuration, family, and size.

    Args:
        runs: Models on configurations.
        size_of: Model → its size.
        n_bootstrap: Replicates for 95 % intervals; 0 for none.
        rng_seed: Of the bootstrap.
    """
    rows = [
        {
            "config": run.config,
            "model": run.model,
            "family": size_of[run.model].family,
            "parameters": size_of[run.model].parameters,
        }
        | fooling(run.counts, n_bootstrap=n_bootstrap, rng_seed=rng_seed)
        for run in runs
    ]
    orders = {key: distinct(rows, key) for key in ("config", "family")}
    rows.sort(key=lambda row: (*(o.index(row[k]) for k, o in orders.items()), row["parameters"]))
    return Table(
        name="sizes",
        title="Fooling rates of models by their number of parameters",
        columns=(
            Column("config", "source"),
            Column("family", "family"),
            Column("model", "model"),
            Column("parameters", "parameters", "count"),
            Column("n_right", "right", "count"),
            *(
                Column(key, heading, "share", interval=f"{key}_ci")
                for key, heading in zip(FOOLING, ("r_s", "r_r"), strict=True)
            ),
        ),
        rows=tuple(rows),
        notes=(
            "r_s, r_r: the share of seeds answered right (right: how many) of which at least one "
            "variant changes the prediction to the opposite label (r_s), to any other (r_r), in "
            "percent.",
        ),
    )


def plot_sizes(table: Table) -> Figure:
    """A panel per configuration; per family a line of r_r, and a dashed one of r_s."""
    configs, families = distinct(table.rows, "config"), distinct(table.rows, "family")
    figure, (row_of_axes,) = panels(1, len(configs))
    for axes, config in zip(row_of_axes, configs, strict=True):
        axes.set_title(config, fontsize="medium")
        axes.set_xscale("log")
        axes.grid(color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_xlabel("parameters")
        for number, family in enumerate(families):
            rows = [r for r in table.rows if (r["config"], r["family"]) == (config, family)]
            if rows:
                _draw(axes, rows, family, PALETTE[number % len(PALETTE)])
    row_of_axes[0].set_ylabel("fooled seeds, %")
    highest = max(row[key] or 0.0 for row in table.rows for key in FOOLING)
    percent_axis(row_of_axes[0], highest + 0.08)  # room for a name
    _size_axis(row_of_axes[0], [row["parameters"] for row in table.rows])
    legend_below(figure, row_of_axes)
    return figure


def _draw(axes: Axes, rows: Sequence[Mapping[str, Any]], family: str, colour: str) -> None:
    """Both lines of a family, and at the upper one its models' names."""
    x = [row["parameters"] for row in rows]
    for key, name, style in (
        (FOOLING[1], "r_r", {"linestyle": "-", "marker": "o"}),
        (FOOLING[0], "r_s", {"linestyle": (0, (5, 1.5)), "marker": "s", "fillstyle": "none"}),
    ):
        y = [np.nan if row[key] is None else row[key] for row in rows]
        axes.plot(x, y, label=f"{family}, {name}", color=colour, linewidth=1.6, **style)
    for row in rows:
        if row[FOOLING[1]] is not None:
            axes.annotate(
                row["model"],
                (row["parameters"], row[FOOLING[1]]),
                xytext=(2, 4),
                textcoords="offset points",
                rotation=25,
                color=colour,
                fontsize="xx-small",
            )


def _size_axis(axes: Axes, parameters: Sequence[int]) -> None:
    """A logarithmic scale, shared by the panels, with room at both ends and readable numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xlim(min(parameters) / 1.8, max(parameters) * 1.8)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def short(number: float) -> str:
    """A number of parameters in few characters.

    >>> [short(n) for n in (950, 4.4e6, 184e6, 999.9e6, 1.5e9)]
    ['950', '4.4M', '184M', '1B', '1.5B']
    """
    # Whatever would be rounded to a thousand of a unit is one of the next.
    unit = max((u for u, n in _UNITS.items() if number >= 0.9995 * n), key=_UNITS.__getitem__)
    return f"{number / _UNITS[unit]:.3g}{unit}"
