"""The two best models and the worst of each training group (paper, figures 3 to 5).

The paper chooses them by S on all test problems, averaged over sources. Its figure 16 marks them
among all models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from merge_dataset.schema import parse_config_name
from merge_metric.runs.model import PredictionsSource
from merge_metric.runs.predictions import read_metadata
from merge_metric.tables import Column, Table

BEST: Final = "best"
WORST: Final = "worst"

_N_BEST: Final = 2

GROUP: Final = "group"
"""Key of a model's training group, in rows and in the metadata of predictions files."""


def read_groups(sources: Sequence[PredictionsSource], given: Sequence[str]) -> dict[str, str]:
    """Find the training groups of models.

    Args:
        sources: Predictions files. Those of `merge-nli predict --preset` say the group.
        given: `NAME=GROUP`, which comes before what the files say.

    Returns:
        Model → group, of the models whose group is known.

    Raises:
        ValueError: a text is not of this form, or names no model.
    """
    models = dict.fromkeys(source.model for source in sources)
    stated = {
        source.model: str(group)
        for source in reversed(sources)
        if (group := read_metadata(source.path).get(GROUP))
    }
    named: dict[str, str] = {}
    for text in given:
        model, _, group = text.rpartition("=")
        if not model or not group:
            raise ValueError(
                f"groups: expected the training group of a model as NAME=GROUP, such as bert=S, "
                f"got {text!r}"
            )
        if model not in models:
            raise ValueError(
                f"groups: expected those of models with predictions, {', '.join(models)}, got one "
                f"of {model!r}"
            )
        if named.setdefault(model, group) != group:
            raise ValueError(f"groups: expected one per model, got two for {model!r}")
    known = stated | named
    return {model: known[model] for model in models if model in known}


def accuracy_on(test: Mapping[str, bool], config: str) -> float | None:
    """Compute S on all test problems of a configuration's source; None where there are none.

    >>> accuracy_on({"snli:1": True, "snli:2": False, "mnli-m:1": True}, "snli_nouns")
    0.5
    """
    source, _ = parse_config_name(config)
    right = [answer for name, answer in test.items() if name.startswith(f"{source}:")]
    return sum(right) / len(right) if right else None


@dataclass(frozen=True, slots=True)
class Choice:
    """Training groups of models, and by what the best and the worst are told."""

    groups: Mapping[str, str]
    """Model → group, of all models whose group is known."""
    tests: Mapping[str, Mapping[str, bool]]
    """Model → id of a test problem → whether it is answered right."""
    only_chosen: bool = False
    """Whether all others are left out of tables."""

    def __post_init__(self) -> None:
        """Raise where models are to be chosen and cannot be."""
        if not self.only_chosen:
            return
        if not self.groups:
            raise ValueError(
                "--best-and-worst: expected the training groups of models, as predictions of "
                "merge-nli predict --preset say them, got none; add --group NAME=GROUP"
            )
        if without := [model for model in self.groups if not self.tests.get(model)]:
            raise ValueError(
                f"--best-and-worst: expected every model's predictions for all test problems, got "
                f"none of {', '.join(without)}; add --test {without[0]}=FILE"
            )

    def of(self, table: Table) -> Table:
        """Add groups to a table with a row per model, and who is the best and the worst of each.

        Where nothing is known of groups, the table stays as it is.
        """
        if not self.groups:
            return table
        return with_places(table, self.groups, self._places(table), only_chosen=self.only_chosen)

    def _places(self, table: Table) -> dict[str, str]:
        configs = [row["config"] for row in table.rows if "config" in row]
        configs = configs or [each.key for each in table.columns if each.kind == "threshold"]
        here = {row["model"] for row in table.rows}
        groups = {model: group for model, group in self.groups.items() if model in here}
        if not self.only_chosen and not all(model in self.tests for model in groups):
            return {}
        return places(self.tests, groups, configs)


def places(
    tests: Mapping[str, Mapping[str, bool]], groups: Mapping[str, str], configs: Sequence[str]
) -> dict[str, str]:
    """Find the two best models and the worst of each group.

    Args:
        tests: Model → id of a test problem → whether it is answered right.
        groups: Model → its training group.
        configs: Those whose sources S on test problems is averaged over.

    Returns:
        Model → `BEST` or `WORST`. Of one or two models none is the worst; of equal ones the
        first is the better one.

    Raises:
        ValueError: a model's answers to the test problems of a source are not there.

    >>> right = {"a": 1, "b": 3, "c": 2, "d": 0}
    >>> tests = {name: {f"s:{i}": i < n for i in range(4)} for name, n in right.items()}
    >>> places(tests, dict.fromkeys("abcd", "S"), ["s"])
    {'b': 'best', 'c': 'best', 'd': 'worst'}
    """
    scores: dict[str, float] = {}
    sources = list(dict.fromkeys(parse_config_name(config)[0] for config in configs))
    for model in groups:
        found = {name: accuracy_on(tests.get(model, {}), name) for name in sources}
        known = [score for score in found.values() if score is not None]
        if len(known) < len(found):
            without = ", ".join(name for name, score in found.items() if score is None)
            raise ValueError(
                f"expected the answers of every model to all test problems of "
                f"{', '.join(sources)}, to tell the best, got none of {model} to those of "
                f"{without}; add --test {model}=FILE"
            )
        scores[model] = sum(known) / len(known)
    found_places: dict[str, str] = {}
    for group in dict.fromkeys(groups.values()):
        ranked = sorted((m for m in groups if groups[m] == group), key=lambda m: -scores[m])
        found_places |= dict.fromkeys(ranked[:_N_BEST], BEST)
        if len(ranked) > _N_BEST:
            found_places[ranked[-1]] = WORST
    return found_places


def with_places(
    table: Table,
    groups: Mapping[str, str],
    found: Mapping[str, str],
    *,
    only_chosen: bool = False,
) -> Table:
    """Add training groups, and which models are the best and the worst of theirs.

    Args:
        table: Rows with `model`.
        groups: Model → group.
        found: See `places`; empty where that is not known.
        only_chosen: Leave out all other models.

    """
    rows = [
        {**row, GROUP: groups.get(row["model"]), "place": found.get(row["model"])}
        for row in table.rows
        if not only_chosen or row["model"] in found
    ]
    after = 1 + next(n for n, column in enumerate(table.columns) if column.key == "model")
    columns = [Column(GROUP, "trained on")]
    notes = list(table.notes)
    if found:
        columns.append(Column("place", "of these"))
        notes.append(
            "Best, worst: the two best models and the worst of those trained on the same data, by "
            "S on all test problems, averaged over sources"
            + ("; others are left out." if only_chosen else ".")
        )
    order = list(dict.fromkeys(groups.values()))
    rank = {BEST: 0, None: 1, WORST: 2}
    if only_chosen:  # group by group, as figures 3 and 5 have them
        rows.sort(key=lambda row: (order.index(row[GROUP]), rank[row["place"]]))
    return replace(
        table,
        columns=(*table.columns[:after], *columns, *table.columns[after:]),
        rows=tuple(rows),
        notes=tuple(notes),
    )
