"""Every analysis of `merge-nli analyse`: its name, module, question, options and needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from merge_dataset.settings import as_path, as_texts, did_you_mean
from merge_metric.analyses.registry import (
    ANALYSES,
    RANDOM_SEED,
    REPLICATES,
    THRESHOLD,
    Analysis,
    Request,
    analysis,
    option,
    takers,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from merge_metric.frame.answer_table import Predictions, PredictionsSource
    from merge_metric.tables import Table


def modules() -> Mapping[str, ModuleType]:
    """Import the modules of all analyses, which takes too long for the help."""
    from merge_metric.analyses import (
        accuracy,
        curves,
        hardest,
        overlap,
        phenomena,
        run_folders,
        seeds_needed,
        sensitivity,
        signals,
        validators,
        validity,
        variant_groups,
    )

    every = [accuracy, curves, hardest, overlap, phenomena, run_folders, seeds_needed, sensitivity]
    every += [signals, validators, validity, variant_groups]
    return {module.__name__.rpartition(".")[2]: module for module in every}


_BOOTSTRAP: Final = ("n_bootstrap", "rng_seed")
_ALL_SETTINGS: Final = ("correctness_threshold", *_BOOTSTRAP)

Texts = tuple[str, ...]

_OF_MODELS: Final = {
    "tests": option(Texts, "predictions for all test problems; may be repeated.", "--test"),
    "groups": option(
        Texts,
        "what a model was trained on, such as bert=S; may be repeated. Predictions of a preset "
        "say it.",
        "--group",
        metavar="NAME=GROUP",
    ),
    "best_and_worst": option(
        bool,
        "only the two best models and the worst of each group, by S on all test problems "
        "(figures 3 to 5).",
        "--best-and-worst",
    ),
}
_ANNOTATIONS: Final = {
    "annotations": option(
        Texts,
        "a session of merge-nli annotate, or answers as .csv or .json; may be repeated.",
        metavar="PATH",
    )
}
_RUN: Final = {"run": option(Path, "a run folder of merge-nli generate.")}

# --- The paper ---

analysis(
    "accuracy",
    "accuracy",
    "S on all test problems (with --test), on seeds, on variants; how often random test problems "
    "are easier than the seeds (figures 3, 16)",
    options=_OF_MODELS | {"rng_seed": RANDOM_SEED},
    names_datasets=True,
)
analysis(
    "curves",
    "curves",
    "SV accuracy by correctness threshold, of models and averaged over them; with --n-bootstrap a "
    "band (figures 4, 18)",
    options=_OF_MODELS | {"n_bootstrap": REPLICATES, "rng_seed": RANDOM_SEED},
    of_seeds=True,
)
analysis(
    "matching",
    "curves",
    "MC of models on sources, a heat map (figures 5, 17)",
    options=_OF_MODELS,
    of_seeds=True,
)
analysis(
    "classes",
    "variant_groups",
    "nouns, verbs, adjectives, adverbs in pairs, on seeds with both (figures 6, 12-14)",
    settings=_ALL_SETTINGS,
)
analysis(
    "mlms",
    "variant_groups",
    "replacements of the model's own MLM, of one in another size, of several, of one of another "
    "kind, on seeds with all, equally many of each and all (figures 7, 15)",
    options={"mlm_map": option(Path, "a TOML file of models and MLMs; else the paper's.")},
    settings=_ALL_SETTINGS,
)
analysis(
    "origins",
    "variant_groups",
    "replacements that only one masked LM validated, each of them, and several (poster)",
    settings=_ALL_SETTINGS,
)
analysis(
    "ablations",
    "curves",
    "data sets made with other filters, given as FILE@DATASET, averaged over models (figure 8)",
    names_datasets=True,
)
analysis(
    "hardest",
    "hardest",
    "seeds that every model answers wrong, or the --top hardest, or those --below a share, with "
    "votes, labels that annotators --corrected, and texts (table 11)",
    options={
        "top": option(int, "number of seeds.", minimum=1),
        "below": option(
            float,
            "seeds with a smaller share of variants right; the paper looks at 5.",
            metavar="PERCENT",
        ),
        "corrected": option(
            Texts,
            "a table of labels that annotators think are right: that of --format csv, with "
            "corrected_label filled in; may be repeated.",
            metavar="FILE",
        ),
    },
)
analysis(
    "first-answers",
    "accuracy",
    "variants of seeds answered right and of seeds answered wrong (section 5.4)",
)

# --- Sensitivity: Arakelyan, Liu and Augenstein (2024) ---

analysis(
    "fooling",
    "sensitivity",
    "strict and relaxed fooling rates, r_s and r_r, overall and per gold label (sensitivity, "
    "tables 2, 3)",
    options={
        "in_domain": option(
            Texts,
            "a source that the models were trained on; may be repeated. Averages are also made "
            "without them.",
            metavar="SOURCE",
        )
    },
    names_datasets=True,
    of_seeds=True,
    settings=_BOOTSTRAP,
)
analysis(
    "sizes",
    "sensitivity",
    "fooling rates by the number of parameters, from the predictions' metadata or from --size "
    "(sensitivity, figure 2)",
    options={
        "sizes": option(
            Texts,
            "parameters of a model, such as bert=110M; may be repeated.",
            "--size",
            metavar="NAME=NUMBER",
        )
    },
    names_datasets=True,
    of_seeds=True,
    settings=_BOOTSTRAP,
)
analysis(
    "shift",
    "sensitivity",
    "how far label probabilities move where predictions change and where not (sensitivity, "
    "figure 3)",
    names_datasets=True,
)
analysis(
    "confidence",
    "sensitivity",
    "how sure models are of seeds, and of variants that do and do not change predictions "
    "(sensitivity, figure 4)",
    names_datasets=True,
)
analysis(
    "overlap",
    "overlap",
    "tokens that the hypotheses of variants and seeds have in common; with --encoder, distances "
    "of embeddings; without predictions too (sensitivity, table 4)",
    options={
        "encoder": option(
            str, "a sentence encoder, folder or Hub id, for distances.", metavar="MODEL"
        )
    },
    names_datasets=True,
    predictions="optional",
    extra="overlap",
)

# --- Ours ---

analysis(
    "signals",
    "signals",
    "automatic signals of variants (frequency, likelihood, agreement, …) beside model accuracy "
    "and, with --annotations, human judgements",
    options=_ANNOTATIONS | {"bins": option(int, "bins of a signal; else 5.", minimum=2)},
    names_datasets=True,
    predictions="optional",
    extra="signals",
    settings=_BOOTSTRAP,
)
analysis(
    "validity",
    "validity",
    "changed predictions on variants judged good and judged bad (--annotations), and the rate that "
    "all good variants have",
    options=_ANNOTATIONS,
    settings=_BOOTSTRAP,
)
analysis(
    "phenomena",
    "phenomena",
    "seeds with a quantifier, a negation or an expression of time: models' figures and, with "
    "--annotations, how many variants are good; without predictions too",
    options=_ANNOTATIONS,
    names_datasets=True,
    predictions="optional",
    of_seeds=True,
    settings=_ALL_SETTINGS,
)

# --- Of the dataset itself ---

analysis(
    "composition",
    "run_folders",
    "seeds, labels and variants by word class: of a dataset or, before sampling too, of a run "
    "folder (table 2, poster)",
    options=_RUN,
    predictions="none",
)
analysis(
    "provenance",
    "validators",
    "replacements by the masked LMs that validated them, what these share, and what fewer of them "
    "would find; of a dataset, or before sampling with --run (table 10, figure 11)",
    options=_RUN,
    predictions="none",
)
analysis(
    "seeds",
    "run_folders",
    "problems that share a word, by its class, their labels, and how many have a word that stands "
    "twice or in another form; of --run, which may take longer than a build (table 3)",
    options=_RUN,
    predictions="run",
)
analysis(
    "filters",
    "run_folders",
    "suggestions of the word's class, and more probable ones, each filter by itself; of --run, "
    "which may take longer than a build (table 5)",
    options=_RUN,
    predictions="run",
)
analysis(
    "stability",
    "seeds_needed",
    "how far S, SV accuracy and shares of labels move on random draws of seeds, and how many seeds "
    "an interval of --width takes; labels without predictions too (appendix A.4.1)",
    options={
        "draws": option(int, "draws of seeds; else 100.", minimum=2),
        "seeds": option(int, "seeds of a draw; else 500.", minimum=1),
        "width": option(float, "wanted width of an interval; else 5.", metavar="POINTS"),
        "correctness_threshold": THRESHOLD,
        "rng_seed": RANDOM_SEED,
    },
    predictions="optional",
)
analysis(
    "power",
    "seeds_needed",
    "the smallest difference between two models that a dataset shows, and how many seeds, with how "
    "many variants, show one of --difference points",
    options={
        "difference": option(float, "difference to be shown; else 2.", metavar="POINTS"),
        "correctness_threshold": THRESHOLD,
        "rng_seed": RANDOM_SEED,
    },
    clusters=True,
)


# --- How one is made ---


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
    from merge_metric.frame.answer_table import as_sources
    from merge_metric.score import Watch
    from merge_metric.seed_variant_accuracy.options import (
        USUAL,
        Settings,
        check_cluster,
        check_threshold,
    )

    if name not in ANALYSES:
        some = ", ".join(list(ANALYSES)[:4])
        listed = f": {some}, …; `merge-nli analyse --help` lists all {len(ANALYSES)}"
        hint = did_you_mean(name, ANALYSES, listed)
        raise ValueError(f"expected the name of an analysis, got {name!r}{hint}")
    chosen = ANALYSES[name]
    if other := sorted(options.keys() - chosen.options.keys()):
        has = ", ".join(f"`{key}`" for key in sorted(chosen.options)) or "none"
        raise ValueError(
            f"`{other[0]}`: expected with {takers(other[0]) or 'no analysis'}, got it with "
            f"{name}, which takes {has} of the options of single analyses"
        )
    if cluster and not chosen.clusters:
        able = ", ".join(known.name for known in ANALYSES.values() if known.clusters)
        raise ValueError(
            f"cluster: expected with {able}, which say how seeds vary, got {cluster!r} with {name}"
        )
    module, function = modules()[chosen.module], name.replace("-", "_")
    make, plot = getattr(module, function), getattr(module, f"plot_{function}")
    if "correctness_threshold" in options:
        check_threshold(options["correctness_threshold"])
    if "n_bootstrap" in chosen.options:
        own = inspect.signature(make).parameters.get("n_bootstrap")
        usual = own.default if own else USUAL.n_bootstrap
        check_cluster(cluster, options.get("n_bootstrap", usual))
    sources = tuple(as_sources("predictions", predictions))
    place = None if dataset is None else as_dataset("dataset", dataset)
    wanted = as_texts("configs", configs)
    if "run" in options or chosen.predictions == "run":
        if options.get("run") is None:
            raise ValueError(f"{name}: expected a run folder, got none; add --run FOLDER")
        options["run"] = folder = as_path("run", options["run"])
        too = {"--dataset": place, "--config": wanted, "predictions files": sources}
        if others := [option for option, value in too.items() if value]:
            raise ValueError(f"{name}: expected --run alone, got {' and '.join(others)} too")
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder}: expected a run folder, found none")
        return make(Request(name), **options), plot
    folder = _dataset_folder(chosen, sources, place)
    if merge_labels and not sources:
        raise ValueError(f"merge_labels: expected predictions with it, got none for {name}")
    if chosen.settings:
        given = {key: options.pop(key) for key in chosen.settings if key in options}
        options["settings"] = Settings(**given)
    watch = Watch() if chosen.of_seeds else None
    request = Request(name, sources, folder, wanted, allow_missing, cluster, merge_labels, watch)
    table = make(request, **options)
    notes = [*(watch.notes if watch else ())]
    if cluster and "n_bootstrap" in chosen.options:
        notes.append(f"Intervals: the bootstrap draws seeds with the same {cluster} together.")
    return replace(table, notes=(*table.notes, *notes)), plot


def _dataset_folder(
    chosen: Analysis, sources: Sequence[PredictionsSource], dataset: Path | None
) -> Path:
    name = chosen.name
    own = [source.dataset for source in sources if source.dataset]
    if own and not chosen.names_datasets:
        able = ", ".join(known.name for known in ANALYSES.values() if known.names_datasets)
        raise ValueError(f"expected FILE@DATASET only for {able}, got it for {name}")
    if not sources and chosen.predictions == "needed":
        raise ValueError(f"{name}: expected predictions files, got none")
    if sources and chosen.predictions == "none":
        raise ValueError(f"{name}: expected no predictions files, got {sources[0].path}")
    if dataset is None and len(own) < max(1, len(sources)):
        raise ValueError(
            f"{name}: expected a dataset folder, got none; add --dataset FOLDER"
            + (" or name it for every file: FILE@FOLDER" if chosen.names_datasets else "")
            + (", or a run folder: --run FOLDER" if "run" in chosen.options else "")
        )
    return dataset or own[0]
