"""Every analysis of `merge-nli analyse`: summary, options, needs, and how it is drawn."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from merge_dataset.schema import PARAPHRASE, parse_config_name
from merge_metric.analyses.registry import (
    Made,
    RandomSeed,
    Replicates,
    Request,
    Threshold,
    analysis,
    option,
)

if TYPE_CHECKING:
    from merge_metric.analyses import accuracy as of_tests
    from merge_metric.seed_variant_accuracy.options import Settings
    from merge_metric.tables import Table

_BOOTSTRAP: Final = ("n_bootstrap", "rng_seed")
_ALL_SETTINGS: Final = ("correctness_threshold", *_BOOTSTRAP)

Texts = tuple[str, ...]

# --- Options of single analyses ---

Tests = Annotated[Texts, option("predictions for all test problems; may be repeated.", "--test")]
Groups = Annotated[
    Texts,
    option(
        "what a model was trained on, such as bert=S; may be repeated. Predictions of a preset "
        "say it.",
        "--group",
        metavar="NAME=GROUP",
    ),
]
BestAndWorst = Annotated[
    bool,
    option(
        "only the two best models and the worst of each group, by S on all test problems "
        "(figures 3 to 5).",
        "--best-and-worst",
    ),
]
MlmMap = Annotated[Path | None, option("a TOML file of models and MLMs; else the paper's.")]
InDomain = Annotated[
    Texts,
    option(
        "a source that the models were trained on; may be repeated. Averages are also made "
        "without them.",
        metavar="SOURCE",
    ),
]
Sizes = Annotated[
    Texts,
    option(
        "parameters of a model, such as bert=110M; may be repeated.",
        "--size",
        metavar="NAME=NUMBER",
    ),
]
Encoder = Annotated[
    str | None, option("a sentence encoder, folder or Hub id, for distances.", metavar="MODEL")
]
Annotations = Annotated[
    Texts,
    option(
        "a session of merge-nli annotate, or answers as .csv or .json; may be repeated.",
        metavar="PATH",
    ),
]
Bins = Annotated[int, option("bins of a signal; else 5.", minimum=2)]
RUN: Final = option("a run folder of merge-nli generate.")
Draws = Annotated[int, option("draws of seeds; else 100.", minimum=2)]

# --- The paper ---


@analysis(
    "S on all test problems (with --test), on seeds, on variants; how often random test problems "
    "are easier than the seeds (figures 3, 16)",
    names_datasets=True,
)
def accuracy(
    request: Request,
    *,
    tests: Tests = (),
    groups: Groups = (),
    best_and_worst: BestAndWorst = False,
    rng_seed: RandomSeed = 0,
) -> Made:
    """Accuracy on test problems, given as FILE or NAME=FILE, on seeds and on variants."""
    from merge_metric.analyses.accuracy import accuracy, plot_accuracy

    answers, marked = _choice(request, tests, groups, best_and_worst)
    frames = request.frames(with_rows=False)
    return marked(accuracy(frames, answers, rng_seed=rng_seed)), plot_accuracy


@analysis(
    "SV accuracy by correctness threshold, of models and averaged over them; with --n-bootstrap a "
    "band (figures 4, 18)",
    of_seeds=True,
)
def curves(
    request: Request,
    *,
    tests: Tests = (),
    groups: Groups = (),
    best_and_worst: BestAndWorst = False,
    n_bootstrap: Replicates = 0,
    rng_seed: RandomSeed = 0,
) -> Made:
    """SV curves of models."""
    from merge_metric.analyses.curves import curves, plot_curves
    from merge_metric.seed_variant_accuracy.options import Settings

    _, marked = _choice(request, tests, groups, best_and_worst)
    settings = Settings(n_bootstrap=n_bootstrap, rng_seed=rng_seed)
    return marked(curves(request.frames(with_rows=False), settings)), plot_curves


@analysis("MC of models on sources, a heat map (figures 5, 17)", of_seeds=True)
def matching(
    request: Request,
    *,
    tests: Tests = (),
    groups: Groups = (),
    best_and_worst: BestAndWorst = False,
) -> Made:
    """Thresholds at which SV accuracy matches S."""
    from merge_metric.analyses.curves import matching, plot_matching

    _, marked = _choice(request, tests, groups, best_and_worst)
    return marked(matching(request.frames(with_rows=False))), plot_matching


def _choice(
    request: Request, tests: Sequence[str], groups: Sequence[str], best_and_worst: bool
) -> "tuple[of_tests.Tests, Callable[[Table], Table]]":
    """Read test predictions and, for a function that marks models, their training groups."""
    from merge_metric.analyses.accuracy import check_choice, mark_best, read_groups, read_tests

    names = [source.model for source in request.sources]
    answers = read_tests(tests, names, request.merge_labels)
    known = read_groups(request.sources, groups)
    if best_and_worst:
        check_choice(known, answers)
    return answers, partial(mark_best, groups=known, tests=answers, only_chosen=best_and_worst)


@analysis(
    "nouns, verbs, adjectives, adverbs in pairs, on seeds with both (figures 6, 12-14)",
    settings=_ALL_SETTINGS,
)
def classes(request: Request, *, settings: "Settings") -> Made:
    """Word classes on the same seeds."""
    from merge_metric.analyses.curves import plot_contrasts
    from merge_metric.analyses.variant_groups import word_classes

    return word_classes(request.frames(), settings), plot_contrasts


@analysis(
    "replacements of the model's own MLM, of one in another size, of several, of one of another "
    "kind, on seeds with all, equally many of each and all (figures 7, 15)",
    settings=_ALL_SETTINGS,
)
def mlms(request: Request, *, settings: "Settings", mlm_map: MlmMap = None) -> Made:
    """Masked LMs on the same seeds; `mlm_map` maps models to them, by default the paper's do."""
    from merge_metric.analyses import variant_groups as groups

    counterparts = groups.read_counterparts(mlm_map or groups.PAPER)
    table = groups.source_mlms(request.frames(by=("mlms",)), counterparts, settings)
    return table, groups.plot_source_mlms


@analysis(
    "replacements that only one masked LM validated, each of them, and several (poster)",
    settings=_ALL_SETTINGS,
)
def origins(request: Request, *, settings: "Settings") -> Made:
    """Masked LMs alone and together, whatever the model's own is."""
    from merge_metric.analyses.variant_groups import plot_source_mlms, sole_mlms

    return sole_mlms(request.frames(by=("mlms",)), settings), plot_source_mlms


@analysis(
    "data sets made with other filters, given as FILE@DATASET, averaged over models (figure 8)",
    names_datasets=True,
)
def ablations(request: Request) -> Made:
    """SV curves on data sets made with other filters."""
    from merge_metric.analyses.curves import ablations, plot_curves

    return ablations(request.frames(repeated=True, with_rows=False)), plot_curves


@analysis(
    "seeds that every model answers wrong, or the --top hardest, or those --below a share, with "
    "votes, labels that annotators --corrected, and texts (table 11)"
)
def hardest(
    request: Request,
    *,
    top: Annotated[int | None, option("number of seeds.", minimum=1)] = None,
    below: Annotated[
        float | None,
        option(
            "seeds with a smaller share of variants right; the paper looks at 5.", metavar="PERCENT"
        ),
    ] = None,
    corrected: Annotated[
        Texts,
        option(
            "a table of labels that annotators think are right: that of --format csv, with "
            "corrected_label filled in; may be repeated.",
            metavar="FILE",
        ),
    ] = (),
) -> Made:
    """Seeds that models fail on; `below` is in percent."""
    from merge_metric.analyses import hardest as failures

    if top is not None and below is not None:
        raise ValueError("expected `top` or `below`, got both")
    if below is not None and not 0 < below <= 100:
        raise ValueError(f"below: expected a percent above 0 and at most 100, got {below:g}")
    corrections = failures.read_corrections(map(Path, corrected))
    frames = list(request.frames(with_rows=False))
    seeds = failures.read_seed_texts(request.dataset, [frame.config for frame in frames])
    share = None if below is None else below / 100
    table = failures.hardest(frames, seeds, top=top, below=share, corrections=corrections)
    return table, failures.plot_hardest


@analysis("variants of seeds answered right and of seeds answered wrong (section 5.4)")
def first_answers(request: Request) -> Made:
    """Variants by whether their seed is answered right."""
    from merge_metric.analyses.accuracy import first_answers, plot_first_answers

    return first_answers(request.frames(with_rows=False)), plot_first_answers


# --- Sensitivity: Arakelyan, Liu and Augenstein (2024) ---


@analysis(
    "strict and relaxed fooling rates, r_s and r_r, overall and per gold label (sensitivity, "
    "tables 2, 3)",
    names_datasets=True,
    of_seeds=True,
    settings=_BOOTSTRAP,
)
def fooling(request: Request, *, settings: "Settings", in_domain: InDomain = ()) -> Made:
    """Fooling rates; `in_domain` are the sources that models were trained on."""
    from merge_metric.analyses.sensitivity import fooling_rates, plot_fooling

    frames = request.frames(with_rows=False)
    return fooling_rates(frames, in_domain=in_domain, settings=settings), plot_fooling


@analysis(
    "fooling rates by the number of parameters, from the predictions' metadata or from --size "
    "(sensitivity, figure 2)",
    names_datasets=True,
    of_seeds=True,
    settings=_BOOTSTRAP,
)
def sizes(request: Request, *, settings: "Settings", sizes: Sizes = ()) -> Made:
    """Fooling rates by numbers of parameters; `sizes` are given as NAME=86M."""
    from merge_metric.analyses import sensitivity

    size_of = sensitivity.read_sizes(request.sources, sizes)
    frames = request.frames(with_rows=False)
    return sensitivity.fooling_by_size(frames, size_of, settings), sensitivity.plot_sizes


@analysis(
    "how far label probabilities move where predictions change and where not (sensitivity, "
    "figure 3)",
    names_datasets=True,
)
def shift(request: Request) -> Made:
    """Divergences of label probabilities."""
    from merge_metric.analyses.sensitivity import plot_shift, shift

    return shift(request.frames(with_rows=False)), plot_shift


@analysis(
    "how sure models are of seeds, and of variants that do and do not change predictions "
    "(sensitivity, figure 4)",
    names_datasets=True,
)
def confidence(request: Request) -> Made:
    """Standard deviations of label probabilities."""
    from merge_metric.analyses.sensitivity import confidence, plot_confidence

    return confidence(request.frames(with_rows=False)), plot_confidence


@analysis(
    "tokens that the hypotheses of variants and seeds have in common; with --encoder, distances "
    "of embeddings; without predictions too (sensitivity, table 4)",
    names_datasets=True,
    predictions="optional",
    extra="overlap",
)
def overlap(request: Request, *, encoder: Encoder = None) -> Made:
    """Overlap of hypotheses; `encoder` is a directory or Hub id of a sentence encoder."""
    from merge_metric.analyses.overlap import hypotheses, load_encoder, overlap, plot_overlap

    pairs = request.variants(hypotheses, of_seeds=("hypothesis",))
    return overlap(pairs, encode=load_encoder(encoder) if encoder else None), plot_overlap


# --- Ours ---


@analysis(
    "automatic signals of variants (frequency, likelihood, agreement, …) beside model accuracy "
    "and, with --annotations, human judgements",
    names_datasets=True,
    predictions="optional",
    extra="signals",
    settings=_BOOTSTRAP,
)
def signals(
    request: Request, *, settings: "Settings", annotations: Annotations = (), bins: Bins = 5
) -> Made:
    """Signals of variants; `annotations` are sessions, .jsonl or .csv files."""
    from merge_metric.analyses.signals import plot_signals, signal_columns, signals

    if not request.sources and not annotations:
        raise ValueError(
            f"{request.name}: expected predictions files or --annotations, got neither"
        )
    texts = (request.cluster,) if request.cluster else ()
    variants = request.variants(signal_columns, texts, annotations=annotations)
    return signals(variants, cluster=request.cluster, bins=bins, settings=settings), plot_signals


@analysis(
    "changed predictions on variants judged good and judged bad (--annotations), and the rate that "
    "all good variants have",
    settings=_BOOTSTRAP,
)
def validity(request: Request, *, settings: "Settings", annotations: Annotations = ()) -> Made:
    """Changes by whether variants are good; `annotations` are sessions, .jsonl or .csv files."""
    from merge_metric.analyses.validity import COLUMNS, plot_validity, validity, validity_row

    if not annotations:
        raise ValueError(f"{request.name}: expected --annotations, got none")
    cluster = request.cluster
    texts = (cluster,) if cluster else ()
    variants = request.variants(lambda *_: COLUMNS, texts, annotations=annotations)
    rows = (validity_row(of_run, cluster=cluster, settings=settings) for of_run in variants)
    return validity(rows, cluster), plot_validity


@analysis(
    "seeds with a quantifier, a negation or an expression of time: models' figures and, with "
    "--annotations, how many variants are good; without predictions too",
    names_datasets=True,
    predictions="optional",
    of_seeds=True,
    settings=_ALL_SETTINGS,
)
def phenomena(request: Request, *, settings: "Settings", annotations: Annotations = ()) -> Made:
    """Semantic phenomena; `annotations` are sessions, .jsonl or .csv files."""
    from merge_metric.analyses.phenomena import TEXTS, phenomena, plot_phenomena

    variants = request.variants(lambda *_: (), of_seeds=TEXTS, annotations=annotations)
    return phenomena(variants, settings), plot_phenomena


# --- Of the dataset itself ---


@analysis(
    "seeds, labels and variants by word class: of a dataset or, before sampling too, of a run "
    "folder (table 2, poster)",
    predictions="none",
)
def composition(request: Request, *, run: Annotated[Path | None, RUN] = None) -> Made:
    """Numbers of seeds and of variants, by word class and label."""
    from merge_metric.analyses.run_folders import composition, of_dataset, of_run, plot_composition

    if run is not None:
        return composition([of_run(run)]), plot_composition
    counted = [of_dataset(request.dataset, config) for config in request.chosen_configs()]
    return composition(counted), plot_composition


@analysis(
    "replacements by the masked LMs that validated them, what these share, and what fewer of them "
    "would find; of a dataset, or before sampling with --run (table 10, figure 11)",
    predictions="none",
)
def provenance(request: Request, *, run: Annotated[Path | None, RUN] = None) -> Made:
    """Masked LMs of a dataset's variants, or of all replacements of a run folder."""
    from merge_metric.analyses.validators import of_dataset, of_run, plot_provenance, provenance

    if run is not None:
        return provenance([of_run(run)]), plot_provenance
    chosen = request.chosen_configs()
    if not request.configs:
        chosen = [c for c in chosen if parse_config_name(c)[1] != PARAPHRASE] or chosen
    return provenance([of_dataset(request.dataset, config) for config in chosen]), plot_provenance


@analysis(
    "problems that share a word, by its class, their labels, and how many have a word that stands "
    "twice or in another form; of --run, which may take longer than a build (table 3)",
    predictions="run",
)
def seeds(request: Request, *, run: Annotated[Path, RUN]) -> Made:
    """Problems of a run folder that share words, and the seeds among them."""
    from merge_metric.analyses.run_folders import plot_potential_seeds, potential_seeds

    return potential_seeds(run), plot_potential_seeds


@analysis(
    "suggestions of the word's class, and more probable ones, each filter by itself; of --run, "
    "which may take longer than a build (table 5)",
    predictions="run",
)
def filters(request: Request, *, run: Annotated[Path, RUN]) -> Made:
    """Suggestions of a run folder that each filter lets pass."""
    from merge_metric.analyses.run_folders import filters, plot_filters, read_counts

    record = read_counts(run)
    rows = [{"source": record["source"], **row} for row in record["filters"]]
    return filters(rows), plot_filters


@analysis(
    "how far S, SV accuracy and shares of labels move on random draws of seeds, and how many seeds "
    "an interval of --width takes; labels without predictions too (appendix A.4.1)",
    predictions="optional",
)
def stability(
    request: Request,
    *,
    draws: Draws = 100,
    seeds: Annotated[int, option("seeds of a draw; else 500.", minimum=1)] = 500,
    width: Annotated[float, option("wanted width of an interval; else 5.", metavar="POINTS")] = 5.0,
    correctness_threshold: Threshold = 90,
    rng_seed: RandomSeed = 0,
) -> Made:
    """Figures on random draws of seeds."""
    from merge_metric.analyses import seeds_needed as needed

    how = needed.Draws(draws, seeds, int(correctness_threshold), width, rng_seed=rng_seed)
    if request.sources:
        everything = [needed.seeds_of(frame) for frame in request.frames(with_rows=False)]
    else:
        configs = request.chosen_configs()
        everything = [needed.read_seeds(request.dataset, config) for config in configs]
    return needed.stability(everything, how), needed.plot_stability


@analysis(
    "the smallest difference between two models that a dataset shows, and how many seeds, with how "
    "many variants, show one of --difference points",
    clusters=True,
)
def power(
    request: Request,
    *,
    difference: Annotated[float, option("difference to be shown; else 2.", metavar="POINTS")] = 2.0,
    correctness_threshold: Threshold = 90,
    rng_seed: RandomSeed = 0,
) -> Made:
    """Power of comparisons, by the answers of pairs of models; clustered by `request.cluster`."""
    from merge_metric.analyses import seeds_needed as needed

    threshold = int(correctness_threshold)
    how = needed.Draws(correctness_threshold=threshold, difference=difference, rng_seed=rng_seed)
    return needed.power(request.frames(), how, request.cluster), needed.plot_power
