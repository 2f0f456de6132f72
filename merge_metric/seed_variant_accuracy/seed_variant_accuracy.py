"""Seed-variant accuracy as a module of `evaluate`: check each batch, gather, forward to `score`.

`evaluate` finds this script's imports with a regular expression and copies the script and the
siblings that it names, but not what those import in turn. So every sibling is imported here,
used or not, and no import line carries a comment.
"""

import inspect
from collections.abc import Mapping
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any, Final

import datasets
import evaluate

from .counts import SeedCounts
from .figures import THRESHOLDS
from .inputs import check_columns, flat_subsamples
from .options import Merging, Settings, check_opposites, label_names
from .resampling import compare
from .scoring import score

__all__ = ["THRESHOLDS", "SeedCounts", "SeedVariantAccuracy", "compare"]

COLUMNS: Final = ("predictions", "references", "seed_ids", "seed_predictions")
"""Columns that evaluate gathers, with an entry per variant."""

CONFIGURATIONS: Final = {"default": COLUMNS, "subsamples": (*COLUMNS, "subsamples")}
"""Name → columns. evaluate knows no optional columns, hence two configurations."""

OPTIONS: Final = tuple(
    name for name in inspect.signature(score).parameters if name not in (*COLUMNS, "subsamples")
)
"""Keywords that `compute` forwards to `score` as they are."""

DESCRIPTION: Final = """\
Seed-variant (SV) accuracy: the share of seed problems of which at least a given percentage of the
variants is classified correctly. A variant is the seed with one word replaced, so that the label
stays. Beside it: accuracy on seeds and on single variants, the matching correctness threshold (at
which SV accuracy equals the accuracy on the seeds), fooling rates, the CORE index and agreement.
"""

CITATION: Final = r"""
@misc{zgreaban2025merge,
  title = {{MERGE}: Minimal Expression-Replacement {GEneralization} Test for Natural Language
           Inference},
  author = {Zgreab{\u{a}}n, M{\u{a}}d{\u{a}}lina and Deoskar, Tejaswini and Abzianidze, Lasha},
  year = {2025},
  eprint = {2510.24295},
  archivePrefix = {arXiv},
  url = {https://arxiv.org/abs/2510.24295}
}

@inproceedings{abzianidze-etal-2023-spacenli,
  title = {{SpaceNLI}: Evaluating the Consistency of Predicting Inferences In Space},
  author = {Abzianidze, Lasha and Zwarts, Joost and Winter, Yoad},
  booktitle = {Proceedings of the 4th Natural Logic Meets Machine Learning Workshop},
  year = {2023},
  pages = {12--24},
  url = {https://arxiv.org/abs/2307.02269}
}

@inproceedings{arakelyan-etal-2024-semantic,
  title = {Semantic Sensitivities and Inconsistent Predictions: Measuring the Fragility of {NLI}
           Models},
  author = {Arakelyan, Erik and Liu, Zhaoqi and Augenstein, Isabelle},
  booktitle = {Proceedings of the 18th Conference of the European Chapter of the Association for
               Computational Linguistics (Volume 1: Long Papers)},
  year = {2024},
  pages = {432--444},
  url = {https://arxiv.org/abs/2401.14440}
}
"""

INPUTS_DESCRIPTION: Final = f"""
{inspect.getdoc(score)}

Of these, `predictions`, `references`, `seed_ids` and `seed_predictions` are columns, which may be
added in batches, and in the configuration "subsamples", which needs it, `subsamples`. The others
are for `compute`; those with a value for each variant (`probabilities`, `seed_probabilities`,
`groups`, `variant_ids`, `clusters`) are not gathered from other processes and must be in the order
of the rows.

Examples:

    Both seeds are answered right; of the second one's variants, one is not.

    >>> import evaluate
    >>> metric = evaluate.load("seed_variant_accuracy")
    >>> result = metric.compute(
    ...     predictions=["entailment", "entailment", "entailment", "neutral"],
    ...     references=["entailment", "entailment", "entailment", "entailment"],
    ...     seed_ids=["seed 1", "seed 1", "seed 2", "seed 2"],
    ...     seed_predictions=["entailment", "entailment", "entailment", "entailment"],
    ... )
    >>> result["seed_accuracy"], result["variant_accuracy"], result["seed_variant_accuracy"]
    (1.0, 0.75, 0.5)

    In batches, with labels as ints and another threshold.

    >>> for seed, prediction in [(1, 0), (1, 0), (2, 0), (2, 1)]:
    ...     metric.add(prediction=prediction, reference=0, seed_ids=seed, seed_predictions=0)
    >>> metric.compute(correctness_threshold=50)["seed_variant_accuracy"]
    1.0

    With random subsamples of the variants: the mean over both, and the spread.

    >>> metric = evaluate.load("seed_variant_accuracy", "subsamples")
    >>> result = metric.compute(
    ...     predictions=[0, 0, 0, 1],
    ...     references=[0, 0, 0, 0],
    ...     seed_ids=[1, 1, 2, 2],
    ...     seed_predictions=[0, 0, 0, 0],
    ...     subsamples=[[0], [1], [0], [1]],
    ... )
    >>> result["seed_variant_accuracy"], round(result["seed_variant_accuracy_std"], 4)
    (0.75, 0.3536)
"""


class SeedVariantAccuracy(evaluate.Metric):  # type: ignore[misc]  # evaluate is untyped
    """Seed-variant accuracy; `evaluate` appends how to use it to the methods' docstrings.

    What `add` and `add_batch` are given is checked before `evaluate` encodes it, which would
    turn 0.9 into 0. Rows that are refused leave those added before as they were; when `compute`
    fails on what was gathered, all of it is forgotten.
    """

    def _info(self) -> evaluate.MetricInfo:
        if self.config_name not in CONFIGURATIONS:
            raise ValueError(
                f"expected the configuration {' or '.join(map(repr, CONFIGURATIONS))}, "
                f"got {self.config_name!r}"
            )
        text, number = datasets.Value("string"), datasets.Value("int64")
        # Labels and seed ids are ints or strings each. evaluate takes the first that fits; an int
        # feature would take "1" too, so it comes last.
        forms = []
        for label, seed_id in product((text, number), repeat=2):
            kinds = {"seed_ids": seed_id, "subsamples": datasets.Sequence(number)}
            names = CONFIGURATIONS[self.config_name]
            forms.append(datasets.Features({name: kinds.get(name, label) for name in names}))
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation=CITATION,
            inputs_description=INPUTS_DESCRIPTION,
            features=forms,
            license="Apache-2.0",
            reference_urls=[
                "https://arxiv.org/abs/2510.24295",
                "https://arxiv.org/abs/2307.02269",
                "https://arxiv.org/abs/2401.14440",
            ],
        )

    def add(self, *, prediction: Any = None, reference: Any = None, **columns: Any) -> None:
        """Add one variant; what was added before stays if an entry is unusable."""
        row = {"predictions": prediction, "references": reference, **columns}
        checked = self._checked({name: [value] for name, value in row.items()})
        super().add(**{name: column[0] for name, column in checked.items()})

    def add_batch(self, *, predictions: Any = None, references: Any = None, **columns: Any) -> None:
        """Add some variants, as columns; what was added before stays if a column is unusable."""
        checked = self._checked({"predictions": predictions, "references": references, **columns})
        if checked["predictions"]:
            super().add_batch(**checked)

    def compute(
        self, *, predictions: Any = None, references: Any = None, **more: Any
    ) -> dict[str, Any] | None:
        """Score the variants given here and those added before.

        Returns:
            The figures; None in a process other than the first of a distributed evaluation.

        Raises:
            ValueError: an input is unusable, or nothing was given. Columns and options are
                refused before anything is touched; inputs that contradict each other only
                show when all are there, and then all are forgotten.
        """
        names = CONFIGURATIONS[self.config_name]
        given = {"predictions": predictions, "references": references, **more}
        options = {name: given[name] for name in given if name not in names}
        # What `score` would refuse is refused before rows are lost to it.
        inspect.signature(score).bind_partial(**options)
        Settings(**{of.name: options[of.name] for of in fields(Settings) if of.name in options})
        labels, merging = label_names(options.get("labels")), options.get("merge_labels", ())
        merged = Merging.parse(merging).require(labels)
        if options.get("opposites") is not None:
            options["opposites"] = check_opposites(options["opposites"], merged)
        if any(given.get(name) is not None for name in names):
            self.add_batch(**{name: given[name] for name in names if name in given})
        if self.writer is None:
            raise ValueError(
                "expected at least one variant, got none: give columns to compute, or call add "
                "or add_batch before it"
            )
        self.filelocks = self.file_paths = None  # evaluate keeps those of the time before
        try:
            result: dict[str, Any] | None = super().compute(**options)
        except BaseException:
            _forget(self)
            raise
        return result

    def _compute(self, **arguments: Any) -> dict[str, Any]:
        return score(**arguments)

    def _checked(self, columns: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Check columns, and make lists of plain ints or strings of them."""
        needed: dict[str, Any] = dict.fromkeys(CONFIGURATIONS[self.config_name])
        needed |= columns
        labels = {name: needed[name] for name in COLUMNS if name != "seed_ids"}
        checked = check_columns(labels, {"seed_ids": needed["seed_ids"]})
        lists = needed | {name: checked[name].tolist() for name in COLUMNS}
        if "subsamples" in needed:  # evaluate would turn 0.9 into 0 here, too
            flat_subsamples(needed["subsamples"], len(lists["predictions"]))
            lists["subsamples"] = [list(map(int, numbers)) for numbers in needed["subsamples"]]
        return lists


def _forget(metric: Any) -> None:
    """Drop rows, files and locks, as `evaluate` does where nothing goes wrong."""
    metric.writer = metric.buf_writer = metric.data = None
    own = [(metric.filelock, metric.cache_file_name)] if metric.filelock else []
    gathered = zip(metric.filelocks or (), metric.file_paths or (), strict=True)
    for lock, path in [*own, *gathered]:
        if metric.process_id == 0:
            Path(path).unlink(missing_ok=True)
        lock.release()
    metric.filelock = metric.cache_file_name = metric.filelocks = metric.file_paths = None
    metric.selected_feature_format = None
