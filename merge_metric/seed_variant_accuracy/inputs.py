"""Rows of variants, and columns of them, as users give them → coded arrays, or a clear error."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .options import NO_LABEL, SUM_TOLERANCE, Merging, label_names

Ints = NDArray[np.int64]
Column = NDArray[Any]
"""A checked column: an array of ints, or of strings as objects."""

GOLD: Final = ("references", "label")
"""Columns of gold labels; other labels are answers, which may name none: None, -1 or ""."""


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
    """Labels that count as one, as `options.Merging` writes them."""


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
    given = {"predictions": predictions, "references": references}
    given |= {"seed_predictions": seed_predictions}
    columns = check_columns(given, {"seed_ids": seed_ids})
    ids, seed = factorize(columns.pop("seed_ids"))
    if not len(seed):
        raise ValueError("expected at least one variant, got empty columns")
    codes = {name: _label_codes(name, columns[name], names, merging) for name in columns}
    if variant_ids is not None:
        names_of, variant = factorize(check_column("variant_ids", variant_ids))
        _require_same_length({"variant_ids": variant, "seed_ids": seed})
        pairs, times = np.unique(variant * len(ids) + seed, return_counts=True)
        if len(more := pairs[times > 1].tolist()):
            twice = [(ids[pair % len(ids)], names_of[pair // len(ids)]) for pair in more]
            raise ValueError(
                "expected each variant once per seed, got duplicate (seed, variant): "
                f"{preview(twice)}; drop the repeated rows"
            )
    drawn: tuple[Ints, Ints, int | None] = np.arange(len(seed)), np.zeros(len(seed), np.int64), None
    if subsamples is not None:
        drawn = _draws(subsamples, seed, ids)
    names = merging.of(names)
    gold, own = (
        _one_per_seed(codes[name], seed, ids, f"{name}: expected one {what}", names)
        for name, what in (("references", "gold label"), ("seed_predictions", "own prediction"))
    )
    return Rows(
        labels=names,
        seed_ids=tuple(ids),
        gold=gold,
        own=own,
        seed=seed,
        prediction=codes["predictions"],
        draw_row=drawn[0],
        draw_subsample=drawn[1],
        n_subsamples=drawn[2],
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
    columns = check_columns(
        {"label": label, "prediction": prediction}, {"variant_id": variant_id, "seed_id": seed_id}
    )
    variants, seeds = columns["variant_id"], columns["seed_id"]
    names, codes = factorize(np.concatenate([variants, seeds]))
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
    for lacking, what in (
        (np.unique(seed[rows[own < 0]]), "a row of its own (variant_id equal to seed_id)"),
        (np.setdiff1d(seed[is_seed], seed[rows]), "variants"),
    ):
        if len(lacking):
            raise ValueError(
                f"expected every seed to have {what}, got a seed with no such rows: "
                f"{preview([names[code] for code in lacking.tolist()])}; complete the predictions "
                "or leave the seed out"
            )
    gold, predicted = columns["label"], columns["prediction"]
    if (differs := gold[rows] != gold[own]).any():
        wrong = [names[code] for code in variant[rows[differs]].tolist()]
        raise ValueError(
            f"label: expected the gold label of its seed for every variant, got another for "
            f"{preview(wrong)}"
        )
    result: dict[str, Any] = {"predictions": predicted[rows], "references": gold[rows]}
    result |= {"seed_ids": seeds[rows], "seed_predictions": predicted[own]}
    result |= {"variant_ids": variants[rows]}
    if probabilities is not None:
        table = check_table("probabilities", probabilities, len(variant))
        result |= {"probabilities": table[rows], "seed_probabilities": table[own]}
    return result


def _label_codes(name: str, column: Column, labels: tuple[str, ...], merging: Merging) -> Ints:
    every = merging.known(labels)
    if _has_ints(column):
        codes, outside = column, (column < 0) | (column >= len(labels))
        known = f"the ints 0 to {len(labels) - 1} ({', '.join(labels)})"
    else:
        position = {name: code for code, name in enumerate(every)} | {"": NO_LABEL}
        codes = np.fromiter((position.get(name, -2) for name in column), np.int64, len(column))
        outside, known = codes < 0, ", ".join(every)
    if name not in GOLD:
        outside &= codes != NO_LABEL
    if outside.any():
        rows = np.flatnonzero(outside)
        others = sorted(set(column[rows[:10_000]].tolist()))
        raise ValueError(
            f"{name}: expected labels out of {known}, got {preview(others)} in {len(rows):,} of "
            f"{len(codes):,} rows; other names go into labels=…, rows without a gold label must be "
            "left out"
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
    column = check_column(what, values)
    _require_same_length({what: column, "seed_ids": seed})
    # Numbers stay as they are, so that they mean the same in parts of the data.
    code = column if _has_ints(column) else factorize(column)[1]
    expected = f"{what}: expected one value for all variants of a seed"
    return Clusters(str(name), _one_per_seed(code, seed, ids, expected))


def flat_subsamples(subsamples: Sequence[Sequence[int]], n_rows: int) -> tuple[Ints, Ints]:
    """Check lists of subsamples, one for each row; return their lengths, and all their numbers."""
    try:
        rows = [list(row) for row in subsamples]
    except TypeError as error:
        raise ValueError(
            f"subsamples: expected a list of ints per variant, such as [0, 3]; {error}"
        ) from error
    _require_same_length({"subsamples": rows, "predictions": range(n_rows)})
    sizes, flat = list(map(len, rows)), list(chain.from_iterable(rows))
    if flat and not (_are_ints(flat) and 0 <= min(flat) <= max(flat) < 2**63):
        got = next(
            f"{number!r} in row {row}"
            for row, numbers in enumerate(rows)
            for number in numbers
            if not (_are_ints([number]) and 0 <= number < 2**63)
        )
        raise ValueError(f"subsamples: expected lists of ints of 0 or more, got {got}")
    return np.array(sizes, np.int64), np.array(flat, np.int64)


def _draws(
    subsamples: Sequence[Sequence[int]], seed: Ints, ids: Sequence[Any]
) -> tuple[Ints, Ints, int]:
    sizes, flat = flat_subsamples(subsamples, len(seed))
    rows, (numbers, codes) = np.repeat(np.arange(len(seed)), sizes), factorize(flat)
    n_draws = np.bincount(seed[rows], minlength=len(ids))
    lacks = np.asarray(n_draws < max(1, len(numbers)))
    if not lacks.any():  # else there may be too many subsamples for a table
        drawn = np.zeros((len(ids), len(numbers)), bool)
        drawn[seed[rows], codes] = True
        lacks = np.asarray(~drawn.all(axis=1))
    if lacks.any():
        first = int(lacks.argmax())
        own = set(codes[seed[rows] == first].tolist())
        missing = next((number for n, number in enumerate(numbers) if n not in own), None)
        raise ValueError(
            f"expected every seed to have variants in every subsample, got a seed with no "
            f"variants: {ids[first]!r} has none in {f'subsample {missing}' if own else 'any'} "
            f"({lacks.sum():,} such seeds); complete them or leave them out"
        )
    is_in = np.zeros((len(seed), len(numbers)), bool)
    is_in[rows, codes] = True
    if is_in.sum() < len(rows):
        raise ValueError("subsamples: expected each subsample once per variant, got one twice")
    return rows, codes, len(numbers)


# --- Columns ---


def check_columns(labels: Mapping[str, Any], ids: Mapping[str, Any]) -> dict[str, Column]:
    """Check columns of labels, and of ids: all ints or all strings, and as long as each other."""
    gold = {name: check_column(name, labels[name]) for name in GOLD if name in labels}
    none = NO_LABEL if all(map(_has_ints, gold.values())) else ""
    columns = {
        name: gold[name] if name in gold else check_column(name, values, none=none)
        for name, values in labels.items()
    }
    columns |= {name: check_column(name, values) for name, values in ids.items()}
    _require_same_length(columns)
    for what, names in (("labels", labels), ("ids", ids)):
        kinds = {name: "ints" if _has_ints(columns[name]) else "strings" for name in names}
        if len(set(kinds.values())) > 1:
            shown = ", ".join(f"{name} are {kind}" for name, kind in kinds.items())
            raise ValueError(
                f"expected {what} that are all ints or all strings, got strings mixed with ints "
                f"({shown}): convert one of them"
            )
    return columns


def check_column(name: str, values: Any, *, none: int | str | None = None) -> Column:
    """Check a list, tuple, array, tensor or Series of ints or of strings; `none` replaces None."""
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
    if none is not None:
        values = [none if value is None else value for value in values]
    if _are_ints(values) and len(values):
        try:
            return np.fromiter(values, np.int64, count=len(values))
        except OverflowError as error:
            raise ValueError(f"{name}: expected ints of at most 64 bits: {error}") from error
    if all(issubclass(kind, str) for kind in set(map(type, values))):
        # Plain strings, also of NumPy's or of an enumeration.
        return np.fromiter(map(str.__str__, values), object, count=len(values))
    odd = [(n, x) for n, x in enumerate(values) if not (isinstance(x, str) or _are_ints([x]))]
    if not odd:
        are_strings = [isinstance(value, str) for value in values]
        row = are_strings.index(not are_strings[0])
        raise ValueError(
            f"{name}: expected ints or strings, got strings mixed with ints: {values[0]!r} in row "
            f"0, {values[row]!r} in row {row}; convert one of them"
        )
    row, value = min(odd, key=lambda entry: not _is_gap(entry[1]))  # the first gap, if any
    shown, advice = repr(value), ""
    if _is_gap(value):
        shown, advice = "None" if value is None else "NaN", ": leave such rows out or fill them"
    elif isinstance(value, float | np.floating | list | tuple | np.ndarray):
        shown = f"the float {value!r}" if isinstance(value, float | np.floating) else shown
        advice = "; for logits or probabilities take argmax(axis=-1) first"
    raise ValueError(f"{name}: expected ints or strings, got {shown} in row {row}{advice}")


def _has_ints(column: Column) -> bool:
    return column.dtype.kind == "i"


def _are_ints(values: Sequence[Any]) -> bool:
    kinds = set(map(type, values))
    return all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds)


def _is_gap(value: Any) -> bool:
    return value is None or (isinstance(value, float | np.floating) and math.isnan(value))


def factorize(column: Column) -> tuple[list[Any], Ints]:
    """Find the distinct values, sorted, and the position in them of each entry.

    >>> ids, codes = factorize(np.array(["b", "a", "b"], object))
    >>> ids, codes.tolist()
    (['a', 'b'], [1, 0, 1])
    """
    if _has_ints(column):
        distinct, codes = np.unique(column, return_inverse=True)
        return distinct.tolist(), codes
    ids = sorted(set(column))
    position = {value: index for index, value in enumerate(ids)}
    return ids, np.fromiter(map(position.__getitem__, column), np.int64, count=len(column))


def preview(values: Sequence[Any]) -> str:
    """Show the first few values, and how many more there are."""
    shown = ", ".join(map(repr, values[:3]))
    return f"{shown} and {len(values) - 3:,} more" if len(values) > 3 else shown


def _require_same_length(columns: Mapping[str, Any]) -> None:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise ValueError(f"expected columns of the same length, one entry per variant, got {shown}")


# --- Probabilities ---


def check_table(
    name: str, values: Any, n_rows: int, n_labels: int | None = None
) -> NDArray[np.float64]:
    """Check a table of numbers, (n_rows, n_labels)."""
    try:
        table = np.asarray(values, np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        table, got = np.empty(0), str(error)
    else:
        got = f"an array of shape {table.shape}"
    if table.ndim != 2 or len(table) != n_rows or n_labels not in (None, table.shape[1]):
        wanted = f"{n_labels} probabilities" if n_labels else "a list of probabilities"
        raise ValueError(f"{name}: expected {wanted} for each of {n_rows:,} variants, got {got}")
    return table


def check_probabilities(name: str, values: Any, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Check label probabilities, one row per variant, and scale them to sum to exactly 1."""
    table = check_table(name, values, *shape)
    sums = table.sum(axis=1)
    wrong = ~np.isfinite(table).all(axis=1)
    wrong |= (table < 0).any(axis=1) | (np.abs(sums - 1) > SUM_TOLERANCE)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"{name}: expected probabilities that sum to 1 (softmax of the logits), got "
            f"{table[row].tolist()} in row {row}"
        )
    scaled: NDArray[np.float64] = table / sums[:, None]
    return scaled
