"""Every analysis of `merge-nli analyse`: its name, module, question, options and needs."""

from pathlib import Path
from typing import Final

from merge_metric.analyses.registry import RANDOM_SEED, REPLICATES, THRESHOLD, analysis, option

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
    ".accuracy",
    "S on all test problems (with --test), on seeds, on variants; how often random test problems "
    "are easier than the seeds (figures 3, 16)",
    options=_OF_MODELS | {"rng_seed": RANDOM_SEED},
    names_datasets=True,
)
analysis(
    "curves",
    ".curves",
    "SV accuracy by correctness threshold, of models and averaged over them; with --n-bootstrap a "
    "band (figures 4, 18)",
    options=_OF_MODELS | {"n_bootstrap": REPLICATES, "rng_seed": RANDOM_SEED},
    of_seeds=True,
)
analysis(
    "matching",
    ".curves",
    "MC of models on sources, a heat map (figures 5, 17)",
    options=_OF_MODELS,
    of_seeds=True,
)
analysis(
    "classes",
    ".variant_groups",
    "nouns, verbs, adjectives, adverbs in pairs, on seeds with both (figures 6, 12-14)",
    settings=_ALL_SETTINGS,
)
analysis(
    "mlms",
    ".variant_groups",
    "replacements of the model's own MLM, of one in another size, of several, of one of another "
    "kind, on seeds with all, equally many of each and all (figures 7, 15)",
    options={"mlm_map": option(Path, "a TOML file of models and MLMs; else the paper's.")},
    settings=_ALL_SETTINGS,
)
analysis(
    "origins",
    ".variant_groups",
    "replacements that only one masked LM validated, each of them, and several (poster)",
    settings=_ALL_SETTINGS,
)
analysis(
    "ablations",
    ".curves",
    "data sets made with other filters, given as FILE@DATASET, averaged over models (figure 8)",
    names_datasets=True,
)
analysis(
    "hardest",
    ".hardest",
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
    ".accuracy",
    "variants of seeds answered right and of seeds answered wrong (section 5.4)",
)

# --- Sensitivity: Arakelyan, Liu and Augenstein (2024) ---

analysis(
    "fooling",
    ".sensitivity",
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
    ".sensitivity",
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
    ".sensitivity",
    "how far label probabilities move where predictions change and where not (sensitivity, "
    "figure 3)",
    names_datasets=True,
)
analysis(
    "confidence",
    ".sensitivity",
    "how sure models are of seeds, and of variants that do and do not change predictions "
    "(sensitivity, figure 4)",
    names_datasets=True,
)
analysis(
    "overlap",
    ".overlap",
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
    ".signals",
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
    ".validity",
    "changed predictions on variants judged good and judged bad (--annotations), and the rate that "
    "all good variants have",
    options=_ANNOTATIONS,
    settings=_BOOTSTRAP,
)
analysis(
    "phenomena",
    ".phenomena",
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
    ".run_folders",
    "seeds, labels and variants by word class: of a dataset or, before sampling too, of a run "
    "folder (table 2, poster)",
    options=_RUN,
    predictions="none",
)
analysis(
    "provenance",
    ".validators",
    "replacements by the masked LMs that validated them, what these share, and what fewer of them "
    "would find; of a dataset, or before sampling with --run (table 10, figure 11)",
    options=_RUN,
    predictions="none",
)
analysis(
    "seeds",
    ".run_folders",
    "problems that share a word, by its class, their labels, and how many have a word that stands "
    "twice or in another form; of --run, which may take longer than a build (table 3)",
    options=_RUN,
    predictions="run",
)
analysis(
    "filters",
    ".run_folders",
    "suggestions of the word's class, and more probable ones, each filter by itself; of --run, "
    "which may take longer than a build (table 5)",
    options=_RUN,
    predictions="run",
)
analysis(
    "stability",
    ".seeds_needed",
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
    ".seeds_needed",
    "the smallest difference between two models that a dataset shows, and how many seeds, with how "
    "many variants, show one of --difference points",
    options={
        "difference": option(float, "difference to be shown; else 2.", metavar="POINTS"),
        "correctness_threshold": THRESHOLD,
        "rng_seed": RANDOM_SEED,
    },
    clusters=True,
)
