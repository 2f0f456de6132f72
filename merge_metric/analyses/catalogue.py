"""How an analysis is made: the check of what it is asked with, and its table."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from merge_dataset.settings import as_texts, did_you_mean
from merge_metric.analyses.registry import ANALYSES, Analysis, Request, takers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from merge_metric.frame.answer_table import Predictions
    from merge_metric.tables import Table


def analyse(
    name: str,
    predictions: Predictions | Iterable[Predictions],
    dataset: str | Path | None = None,
    configs: str | Sequence[str] = (),
    *,
    allow_missing: bool = False,
    cluster: str = "",
    merge_labels: str | Sequence[str] = (),
    **options: Any,
) -> tuple[Table, Callable[[Table], Figure]]:
    """Make an analysis of predictions files.

    Args:
        name: Name of a registered analysis.
        predictions: One or several files as `FILE`, `NAME=FILE` and, where the analysis
            `names_datasets`, `FILE@DATASET`, or evaluations; none for analyses that do without.
        dataset: Dataset folder of the files that name none.
        configs: Configurations; by default what each file is for.
        allow_missing: Leave out seeds of which a prediction is missing.
        cluster: Text of the problems, such as `premise`: the bootstrap draws seeds that share it
            together.
        merge_labels: Labels that count as one, such as contradiction,neutral=not_entailment.
        options: Further options of the analysis, called as in the help.

    Returns:
        The table, and the function that draws it.

    Raises:
        FileNotFoundError, NotADirectoryError: no such file or folder.
        TypeError: a path is none, or predictions are nothing of the kind.
        ValueError: an unknown analysis, an option it does not have, or files that cannot
            be used.
    """
    from merge_dataset.layout import as_dataset
    from merge_metric.analyses.curves import read_choice
    from merge_metric.frame.answer_table import as_sources

    if name not in ANALYSES:
        some = ", ".join(list(ANALYSES)[:4])
        listed = f": {some}, …; `merge-nli analyse --help` lists all {len(ANALYSES)}"
        hint = did_you_mean(name, ANALYSES, listed)
        raise ValueError(f"expected the name of an analysis, got {name!r}{hint}")
    chosen = ANALYSES[name]
    sources = tuple(as_sources(predictions))
    folder = None if dataset is None else as_dataset(dataset)
    request = Request(
        name=name,
        sources=sources,
        dataset=folder or next((source.dataset for source in sources if source.dataset), Path()),
        configs=as_texts(configs),
        allow_missing=allow_missing,
        cluster=cluster,
        merge_labels=merge_labels,
        mixtures={} if chosen.of_seeds else None,
    )
    make, plot = functions_of(chosen)
    parameters = inspect.signature(make).parameters
    require_fitting(chosen, request, folder, options, parameters)
    if options.get("run") is not None:
        options["run"] = Path(options["run"])
    mark = None
    if "groups" in chosen.options:
        of_choice = options.keys() & {"tests", "groups", "best_and_worst"}
        tests, mark = read_choice(request, **{key: options.pop(key) for key in of_choice})
        options |= {"tests": tests} if "tests" in parameters else {}
    if "settings" in parameters:
        given = {key: options.pop(key) for key in options.keys() - parameters.keys()}
        options["settings"] = replace(parameters["settings"].default, **given)
    table = make(request, **options)
    if chosen.needs and not table.rows:
        raise ValueError(f"{name}: expected {chosen.needs}, got none")
    table = mark(table) if mark else table
    mixtures = ((config, text) for (_, config), text in (request.mixtures or {}).items() if text)
    notes = [f"{config}: {text[0].lower()}{text[1:]}" for config, text in mixtures]
    if cluster and "n_bootstrap" in chosen.options:
        notes.append(f"Intervals: the bootstrap draws seeds with the same {cluster} together.")
    return replace(table, notes=(*table.notes, *notes)), plot


def functions_of(chosen: Analysis) -> tuple[Callable[..., Table], Callable[[Table], Figure]]:
    """Return the functions that make and draw an analysis; the help does without their modules."""
    from merge_metric.analyses import (  # noqa: F401
        curves,
        hardest,
        overlap,
        run_folders,
        seeds_needed,
        sensitivity,
        signals,
        validity,
        variant_groups,
    )

    module, function = sys.modules[f"{__package__}.{chosen.module}"], chosen.name.replace("-", "_")
    return getattr(module, function), getattr(module, f"plot_{function}")


def require_fitting(
    chosen: Analysis,
    request: Request,
    folder: Path | None,
    options: Mapping[str, Any],
    parameters: Mapping[str, inspect.Parameter],
) -> None:
    """Raise ValueError unless an analysis can be made of what is asked; `folder` is a dataset."""
    name, sources = chosen.name, request.sources
    run, has = options.get("run"), ", ".join(f"`{key}`" for key in sorted(chosen.options))
    of_run = run is not None or chosen.predictions == "run"
    own = [source.dataset for source in sources if source.dataset]
    other = min(options.keys() - chosen.options.keys(), default="")
    too = {"--dataset": folder, "--config": request.configs, "predictions files": sources}
    others = [option for option, value in too.items() if of_run and value]
    able = {
        flag: ", ".join(known.name for known in ANALYSES.values() if getattr(known, flag))
        for flag in ("clusters", "names_datasets")
    }
    needed = {"needed": bool(sources), "none": not sources}
    required = (key for key, of in list(parameters.items())[1:] if of.default is of.empty)
    lacking = next((key for key in required if not options.get(key)), "")
    paths = ", ".join(str(source.path) for source in sources) or "none"
    for right, message in (
        (
            not other,
            f"`{other}`: expected with {takers(other) or 'no analysis'}, got it with {name}, "
            f"which takes {has or 'none'} of the options of single analyses",
        ),
        (
            not request.cluster or chosen.clusters,
            f"cluster: expected with {able['clusters']}, which say how seeds vary, got "
            f"{request.cluster!r} with {name}",
        ),
        (not lacking, f"{name}: expected --{lacking}, got none"),
        (not others, f"{name}: expected --run alone, got {' and '.join(others)} too"),
        (
            not own or chosen.names_datasets,
            f"expected FILE@DATASET only for {able['names_datasets']}, got it for {name}",
        ),
        (
            needed.get(chosen.predictions, True),
            f"{name}: expected {'no ' * bool(sources)}predictions files, got {paths}",
        ),
        (
            of_run or folder is not None or len(own) >= max(1, len(sources)),
            f"{name}: expected a dataset folder, got none; add --dataset FOLDER"
            + " or name it for every file: FILE@FOLDER" * chosen.names_datasets
            + ", or a run folder: --run FOLDER" * ("run" in chosen.options),
        ),
        (
            not request.merge_labels or sources,
            f"merge_labels: expected predictions with it, got none for {name}",
        ),
    ):
        if not right:
            raise ValueError(message)
