"""Rows of variants, and columns of them, as users give them → coded arrays, or a clear error."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .merging import Merging
from .options import NO_LABEL, label_names

Ints = NDArray[np.int64]
ColumnValues = Ints | list[str]
"""A checked column: an array of ints or a list of strings."""

ANSWERS: Final = ("predictions", "seed_predictions", "prediction")
"""Columns of answers, which may name no label: None, `NO_LABEL` or an empty string."""


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Seeds that are alike, such as those of one premise, and are resampled together."""

    name: str
    """Column that they share a value of."""
    code: Ints
    """(S,) the same number for seeds of one cluster."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Variants and their seeds, checked and coded.

    S seeds, n rows, m draws: one draw per row, or one per row and subsample it is in.
    """

    labels: tuple[str, ...]
    seed_ids: tuple[str, ...] | tuple[int, ...]
    """(S,) distinct ids, sorted; `seed` holds positions in it."""
    gold: Ints
    """(S,) position in `labels`."""
    own: Ints
    """(S,) the seed's own prediction; `NO_LABEL` where it names none, as in `prediction`."""
    seed: Ints
    """(n,)"""
    prediction: Ints
    """(n,)"""
    draw_row: Ints
    """(m,) the row drawn, ascending."""
    draw_subsample: Ints
    """(m,) the subsample that drew it, from 0 to n_subsamples − 1."""
    n_subsamples: int | None
    """None where rows came without subsamples; they then count as a single one."""
    clusters: Clusters | None = None
    """None where each seed is a cluster of its own."""
    merged: str = ""
    """Labels that count as one, as `merging.Merging` writes them."""


def read_rows(
    *,
    predictions: Sequence[Any],
    references: Sequence[Any],
    seed_ids: Sequence[Any],
    seed_predictions: Sequence[Any],
    subsamples: Sequence[Sequence[int]] | None = None,
    labels: Sequence[str] | None = None,
    variant_ids: Sequence[Any] | None = None,
    clusters: Mapping[str, Sequence[Any]] | None = None,
    merge_labels: str | Sequence[str] = (),
) -> Rows:
    """Check and code the columns of the metric, one entry per variant; see `scoring.score`.

    Raises:
        ValueError: a column is unusable, or they contradict each other; the message says
            what was expected, what came and what to do.
    """
    names, merging = label_names(labels), Merging.parse(merge_labels)
    merging.require(names)
    columns = check_columns(
        {
            "predictions": predictions,
            "references": references,
            "seed_ids": seed_ids,
            "seed_predictions": seed_predictions,
        }
    )
    n = len(columns["predictions"])
    if n == 0:
        raise ValueError("expected at least one variant, got empty columns")
    ids, seed = factorize(columns["seed_ids"])
    _require_unique_variants(variant_ids, seed, ids)
    prediction, reference, own = (
        _label_codes(name, columns[name], names, merging)
        for name in ("predictions", "references", "seed_predictions")
    )
    names = merging.of(names)
    if subsamples is None:
        draw_row, draw_subsample, n_subsamples = np.arange(n), np.zeros(n, np.int64), None
    else:
        draw_row, draw_subsample, n_subsamples = _draws(subsamples, seed, ids)
    return Rows(
        labels=names,
        seed_ids=tuple(ids),
        gold=_one_per_seed(reference, seed, ids, "references: expected one gold label", names),
        own=_one_per_seed(own, seed, ids, "seed_predictions: expected one own prediction", names),
        seed=seed,
        prediction=prediction,
        draw_row=draw_row,
        draw_subsample=draw_subsample,
        n_subsamples=n_subsamples,
        clusters=None if clusters is None else _clusters(clusters, seed, ids),
        merged=str(merging),
    )


def split_predictions(
    variant_id: Sequence[Any],
    seed_id: Sequence[Any],
    label: Sequence[Any],
    prediction: Sequence[Any],
    probabilities: Any = None,
) -> dict[str, Any]:
    """Make keyword arguments of `scoring.score` from the columns of a predictions file.

    Args:
        variant_id: The variant's id; the row of a seed has the seed's id here.
        seed_id: The id of the seed.
        label: Gold labels.
        prediction: The model's labels.
        probabilities: Label probabilities, (n, n_labels); optional.

    Raises:
        ValueError: an id that came twice, a seed without variants, variants without the
            row of their seed, or a variant whose gold label is not its seed's.
    """
    labels = check_columns({"label": label, "prediction": prediction})
    given = {"variant_id": variant_id, "seed_id": seed_id}
    ids = {name: check_column(name, values) for name, values in given.items()}
    _require_same_length(ids | labels)
    _require_one_kind(ids, "ids")
    variants, seeds = ids["variant_id"], ids["seed_id"]
    if isinstance(variants, np.ndarray) and isinstance(seeds, np.ndarray):
        names, codes = factorize(np.concatenate([variants, seeds]))
    else:
        names, codes = factorize([*variants, *seeds])
    variant, seed = codes[: len(variants)], codes[len(variants) :]
    distinct, times = np.unique(variant, return_counts=True)
    if len(distinct) < len(variant):
        twice = [names[code] for code in distinct[times > 1].tolist()]
        raise ValueError(
            f"variant_id: expected one row per id, got duplicates of {preview(twice)}: "
            "drop the repeated rows"
        )
    is_seed = variant == seed
    row_of_seed = np.full(len(names), -1)
    row_of_seed[seed[is_seed]] = np.flatnonzero(is_seed)
    rows = np.flatnonzero(~is_seed)
    own = row_of_seed[seed[rows]]
    without_row = np.unique(seed[rows[own < 0]])
    without_variants = np.setdiff1d(seed[is_seed], seed[rows])
    for lacking, what in (
        (without_row, "a row of its own (variant_id equal to seed_id)"),
        (without_variants, "variants"),
    ):
        if len(lacking):
            some = preview([names[code] for code in lacking.tolist()])
            raise ValueError(
                f"expected every seed to have {what}, got a seed with no such rows: {some}; "
                "complete the predictions or leave the seed out"
            )
    gold = np.asarray(labels["label"])
    if (differs := gold[rows] != gold[own]).any():
        wrong = [names[code] for code in variant[rows[differs]].tolist()]
        raise ValueError(
            f"label: expected the gold label of its seed for every variant, got another for "
            f"{preview(wrong)}"
        )
    table = None if probabilities is None else _table(probabilities, len(variant))
    return {
        "predictions": _pick(labels["prediction"], rows),
        "references": _pick(labels["label"], rows),
        "seed_ids": _pick(ids["seed_id"], rows),
        "seed_predictions": _pick(labels["prediction"], own),
        "variant_ids": _pick(ids["variant_id"], rows),
    } | ({} if table is None else {"probabilities": table[rows], "seed_probabilities": table[own]})


def _label_codes(
    name: str, column: ColumnValues, labels: tuple[str, ...], merging: Merging
) -> Ints:
    every = merging.known(labels)
    if isinstance(column, np.ndarray):
        codes, outside = column, (column < 0) | (column >= len(labels))
        known = f"the ints 0 to {len(labels) - 1} ({', '.join(labels)})"
    else:
        position = {name: code for code, name in enumerate(every)} | {"": NO_LABEL}
        codes = np.fromiter((position.get(name, -2) for name in column), np.int64, len(column))
        outside = codes < 0
        known = f"{', '.join(every)}"
    if name in ANSWERS:
        outside &= codes != NO_LABEL
    if outside.any():
        rows = np.flatnonzero(outside)
        others = sorted({column[row] for row in rows[:10_000].tolist()})
        others = [value if isinstance(value, str) else int(value) for value in others]
        raise ValueError(
            f"{name}: expected labels out of {known}, got {preview(others)} "
            f"in {len(rows):,} of {len(codes):,} rows; other names go into labels=…, "
            "rows without a gold label must be left out"
        )
    return merging.codes(every)[codes] if merging else codes


def _one_per_seed(
    codes: Ints, seed: Ints, ids: Sequence[Any], expected: str, labels: tuple[str, ...] = ()
) -> Ints:
    """Find the code that all rows of a seed share: (S,). Codes of labels are named in the error."""
    first = np.empty(len(ids), np.int64)
    first[seed] = codes
    differs = first[seed] != codes
    if differs.any():
        row = int(differs.argmax())
        got, advice = "several", ""
        if labels:
            of_seed = {(*labels, "no label")[code] for code in codes[seed == seed[row]]}
            expected, got = f"{expected} per seed", " and ".join(sorted(of_seed))
            advice = ": are the columns in the same order, and seed ids distinct?"
        raise ValueError(
            f"{expected}, got {got} for the seed {ids[seed[row]]!r} "
            f"({len(np.unique(seed[differs])):,} such seeds){advice}"
        )
    return first


def _clusters(clusters: Mapping[str, Sequence[Any]], seed: Ints, ids: Sequence[Any]) -> Clusters:
    if not isinstance(clusters, Mapping) or len(clusters) != 1:
        raise ValueError(
            f"clusters: expected a name and a column, such as {{'premise': […]}}, got {clusters!r}"
        )
    ((name, values),) = clusters.items()
    what = f"clusters[{name!r}]"
    try:
        column = check_column(what, values)
    except ValueError as error:
        raise ValueError(f"{error}; seeds are clustered by one value each") from error
    if len(column) != len(seed):
        raise ValueError(
            f"{what}: expected one value for each of {len(seed):,} variants, got {len(column):,}"
        )
    # Numbers stay as they are, so that they mean the same in parts of the data.
    code = column if isinstance(column, np.ndarray) else factorize(column)[1]
    expected = f"{what}: expected one value for all variants of a seed"
    return Clusters(str(name), _one_per_seed(code, seed, ids, expected))


def _draws(
    subsamples: Sequence[Sequence[int]], seed: Ints, ids: Sequence[Any]
) -> tuple[Ints, Ints, int]:
    if len(subsamples) != len(seed):
        raise ValueError(
            f"subsamples: expected a list of ints for each of {len(seed):,} variants, "
            f"got {len(subsamples):,}"
        )
    try:
        sizes = np.fromiter(map(len, subsamples), np.int64, count=len(seed))
    except TypeError as error:
        raise ValueError(
            f"subsamples: expected a list of ints per variant, such as [0, 3]; {error}"
        ) from error
    rows, flat = np.repeat(np.arange(len(seed)), sizes), list(chain.from_iterable(subsamples))
    try:
        column = check_column("subsamples", flat) if flat else np.zeros(0, np.int64)
    except ValueError:
        column = []
    if not isinstance(column, np.ndarray) or (column < 0).any():
        for row, number in zip(rows, flat, strict=True):
            is_int = isinstance(number, int | np.integer) and not isinstance(number, bool)
            if not is_int or not 0 <= number < 2**63:
                raise ValueError(
                    f"subsamples: expected ints of 0 or more, got {number!r} in row {row}"
                )
    numbers, codes = factorize(column)
    n_draws = np.bincount(seed[rows], minlength=len(ids))
    lacks = np.asarray(n_draws < max(1, len(numbers)))
    if not lacks.any():  # else there may be too many subsamples for a table
        drawn = np.zeros((len(ids), len(numbers)), bool)
        drawn[seed[rows], codes] = True
        lacks = np.asarray(~drawn.all(axis=1))
    if lacks.any():
        first = int(lacks.argmax())
        subsamples_of = set(codes[seed[rows] == first].tolist())
        missing = next((n for at, n in enumerate(numbers) if at not in subsamples_of), None)
        where = f"subsample {missing}" if subsamples_of else "any subsample"
        raise ValueError(
            f"expected every seed to have variants in every subsample, got a seed with no "
            f"variants: {ids[first]!r} has none in {where} ({lacks.sum():,} such seeds); "
            "complete them or leave them out"
        )
    is_in = np.zeros((len(seed), len(numbers)), bool)
    is_in[rows, codes] = True
    if is_in.sum() < len(rows):
        raise ValueError("subsamples: expected each subsample once per variant, got one twice")
    return rows, codes, len(numbers)


def _require_unique_variants(
    variant_ids: Sequence[Any] | None, seed: Ints, ids: Sequence[Any]
) -> None:
    if variant_ids is None:
        return
    column = check_column("variant_ids", variant_ids)
    _require_same_length({"variant_ids": column, "seed_ids": seed})
    if len(set(column)) == len(column):
        return
    names, variant = factorize(column)
    distinct, times = np.unique(variant * len(ids) + seed, return_counts=True)
    more = distinct[times > 1].tolist()
    if twice := [(ids[pair % len(ids)], names[pair // len(ids)]) for pair in more]:
        raise ValueError(
            "expected each variant once per seed, got duplicate (seed, variant): "
            f"{preview(twice)}; drop the repeated rows"
        )


def _table(probabilities: Any, n_rows: int) -> NDArray[np.float64]:
    try:
        table = np.asarray(probabilities, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"probabilities: expected as many numbers in each of {n_rows:,} rows; {error}"
        ) from error
    if table.ndim != 2 or len(table) != n_rows:
        raise ValueError(
            f"probabilities: expected a list of numbers for each of {n_rows:,} rows, got an "
            f"array of shape {table.shape}"
        )
    return table


def _pick(column: ColumnValues, rows: Ints) -> ColumnValues:
    return column[rows] if isinstance(column, np.ndarray) else [column[n] for n in rows.tolist()]


# --- Columns ---


def check_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Check columns: arrays of ints or lists of strings (subsamples: lists of ints).

    Raises:
        ValueError: a column holds something else, or they differ in length, or label
            columns mix ints and strings.
    """
    checked = {
        name: values if name == "subsamples" else check_column(name, values)
        for name, values in columns.items()
        if name not in ANSWERS
    }
    are_names = any(isinstance(checked.get(name), list) for name in ("references", "label"))
    for name in columns:
        if name in ANSWERS:
            none = "" if are_names else NO_LABEL
            checked[name] = check_column(name, _without_none(columns[name], none))
    checked = {name: checked[name] for name in columns}
    _require_same_length(checked)
    _require_one_kind(
        {name: checked[name] for name in checked if name not in ("seed_ids", "subsamples")},
        "labels",
    )
    return checked


def check_column(name: str, values: Any) -> ColumnValues:
    """Check one column: an array of ints or a list of strings.

    Args:
        name: How messages call it.
        values: A list, tuple, array, tensor or Series of ints or of strings.

    Raises:
        ValueError: it is none of that.
    """
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise ValueError(f"{name}: expected one entry per variant, got {values!r}")
    if not isinstance(values, list | tuple):
        values = np.asarray(values)
        if values.ndim != 1:
            raise ValueError(
                f"{name}: expected one entry per variant, got an array of shape "
                f"{values.shape}; for logits or probabilities take argmax(axis=-1) first"
            )
        if values.dtype.kind in "iu":
            ints: Ints = values.astype(np.int64)
            return ints
        values = values.tolist()
    kinds = set(map(type, values))
    if kinds <= {str}:
        return list(values)
    if all(issubclass(kind, str) for kind in kinds):  # of NumPy, or members of an enumeration
        return [str.__str__(value) for value in values]
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        try:
            return np.fromiter(values, np.int64, count=len(values))
        except OverflowError as error:
            raise ValueError(f"{name}: expected ints of at most 64 bits: {error}") from error
    raise ValueError(f"{name}: {_what_is_wrong(values)}")


def _without_none(values: Any, none: int | str) -> Any:
    if isinstance(getattr(values, "dtype", None), np.dtype) and values.dtype.kind != "O":
        return values
    if isinstance(values, str) or not hasattr(values, "__len__"):
        return values
    given = values if isinstance(values, list | tuple) else np.asarray(values).tolist()
    if isinstance(given, list | tuple) and any(value is None for value in given):
        return [none if value is None else value for value in given]
    return values


def factorize(column: ColumnValues) -> tuple[list[Any], Ints]:
    """Find the distinct values, sorted, and the position in them of each entry.

    >>> ids, codes = factorize(["b", "a", "b"])
    >>> ids, codes.tolist()
    (['a', 'b'], [1, 0, 1])
    """
    if isinstance(column, np.ndarray):
        distinct, codes = np.unique(column, return_inverse=True)
        return distinct.tolist(), codes
    ids = sorted(set(column))
    position = {value: index for index, value in enumerate(ids)}
    return ids, np.fromiter(map(position.__getitem__, column), np.int64, count=len(column))


def preview(values: Sequence[Any]) -> str:
    """Show the first few values, and how many more there are."""
    shown = ", ".join(map(repr, values[:3]))
    return f"{shown} and {len(values) - 3:,} more" if len(values) > 3 else shown


def _what_is_wrong(values: Sequence[Any]) -> str:
    expected = "expected ints or strings"
    for row, value in enumerate(values):
        is_nan = isinstance(value, float | np.floating) and math.isnan(value)
        if value is None or is_nan:
            shown = "NaN" if is_nan else "None"
            return f"{expected}, got {shown} in row {row}: leave such rows out or fill them"
    for row, value in enumerate(values):
        if isinstance(value, float | np.floating):
            return (
                f"{expected}, got the float {value!r} in row {row}; for logits or "
                "probabilities take argmax first, whole numbers convert with int()"
            )
        if isinstance(value, list | tuple | np.ndarray):
            return (
                f"{expected}, got {value!r} in row {row}; for logits or probabilities take "
                "argmax(axis=-1) first"
            )
        if not isinstance(value, int | str | np.integer) or isinstance(value, bool | np.bool_):
            return f"{expected}, got {value!r} in row {row}"
    ints = next(row for row, value in enumerate(values) if not isinstance(value, str))
    strings = next(row for row, value in enumerate(values) if isinstance(value, str))
    return (
        f"{expected}, got strings mixed with ints: {values[strings]!r} in row {strings}, "
        f"{values[ints]!r} in row {ints}; convert one of them"
    )


def _require_same_length(columns: Mapping[str, Any]) -> None:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise ValueError(f"expected columns of the same length, one entry per variant, got {shown}")


def _require_one_kind(columns: Mapping[str, ColumnValues], what: str) -> None:
    kinds = {
        name: "ints" if isinstance(values, np.ndarray) else "strings"
        for name, values in columns.items()
    }
    if len(set(kinds.values())) > 1:
        shown = ", ".join(f"{name} are {kind}" for name, kind in kinds.items())
        raise ValueError(
            f"expected {what} that are all ints or all strings, got strings mixed with ints "
            f"({shown}): convert one of them"
        )
