"""Rows of variants, and columns of them, as users give them → coded arrays, or a clear error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Seeds:
    """Seeds, S of them, and a model's answers to themselves, checked and coded."""

    labels: tuple[str, ...]
    seed_ids: tuple[str, ...] | tuple[int, ...]
    """(S,) distinct ids, sorted."""
    gold: Ints
    """(S,) gold label, as position in `labels`."""
    own: Ints
    """(S,) the model's prediction for the seed itself; `NO_LABEL` where it names none."""
    n_subsamples: int | None = None
    """None where variants came without subsamples; they then count as a single one."""
    clusters: Clusters | None = None
    """Seeds that are resampled together; None where each is by itself."""
    merged: str = ""
    """Labels that count as one, as `options.Merging` writes them."""

    @property
    def has_subsamples(self) -> bool:
        """Whether variants came with subsamples."""
        return self.n_subsamples is not None

    @property
    def as_known(self) -> dict[str, Any]:
        """The fields above, to make another record of the same seeds."""
        return {of.name: getattr(self, of.name) for of in fields(Seeds)}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Rows(Seeds):
    """Variants: n rows, m draws: one draw per row, or one per row and subsample it is in."""

    seed: Ints
    """(n,) position in `seed_ids`."""
    prediction: Ints
    """(n,) `NO_LABEL` where it names none."""
    draw_row: Ints
    """(m,) the row drawn, ascending."""
    draw_subsample: Ints
    """(m,) the subsample that drew it, from 0 to n_subsamples − 1."""


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
        require_same_length({"variant_ids": variant, "seed_ids": seed})
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
    together = None
    if clusters is not None:
        ((name, values),) = clusters.items()
        what = f"clusters[{name!r}]"
        column = check_column(what, values)
        require_same_length({what: column, "seed_ids": seed})
        # Numbers stay as they are, so that they mean the same in parts of the data.
        code = column if _has_ints(column) else factorize(column)[1]
        expected = f"{what}: expected one value for all variants of a seed"
        together = Clusters(str(name), _one_per_seed(code, seed, ids, expected))
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
        clusters=together,
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
    is_seed = variant == seed
    row_of_seed = np.full(len(names), -1)
    row_of_seed[seed[is_seed]] = np.flatnonzero(is_seed)
    rows = np.flatnonzero(~is_seed)
    own = row_of_seed[seed[rows]]
    gold, predicted = columns["label"], columns["prediction"]
    for wrong, expected in (
        (np.flatnonzero(np.bincount(variant) > 1), "variant_id: expected one row per id, got more"),
        (seed[rows[own < 0]], "expected a row of every seed (variant_id is seed_id), got none"),
        (np.setdiff1d(seed[is_seed], seed[rows]), "expected every seed to have variants, got none"),
        (variant[rows[gold[rows] != gold[own]]], "label: expected that of the seed, got another"),
    ):
        if len(wrong):
            shown = preview([names[code] for code in np.unique(wrong).tolist()])
            raise ValueError(f"{expected} for {shown}; mend these rows or leave them out")
    result: dict[str, Any] = {"predictions": predicted[rows], "references": gold[rows]}
    result |= {"seed_ids": seeds[rows], "seed_predictions": predicted[own]}
    result |= {"variant_ids": variants[rows]}
    if probabilities is not None:
        table = np.asarray(probabilities, np.float64)
        require_same_length({"probabilities": table, "variant_id": variants})
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


def flat_subsamples(subsamples: Sequence[Sequence[int]], n_rows: int) -> tuple[Ints, Ints]:
    """Check lists of subsamples, one for each row; return their lengths, and all their numbers."""
    rows = list(map(list, subsamples))
    require_same_length({"subsamples": rows, "predictions": range(n_rows)})
    flat = np.array([0, *chain.from_iterable(rows)])[1:]  # ints also where all lists are empty
    if flat.ndim != 1 or flat.dtype.kind not in "iu":
        odd = next((number for number in chain.from_iterable(rows) if not _are_ints([number])), "")
        raise ValueError(f"subsamples: expected lists of ints, such as [0, 3], got {odd!r} in one")
    return np.fromiter(map(len, rows), np.int64, len(rows)), flat.astype(np.int64)


def _draws(
    subsamples: Sequence[Sequence[int]], seed: Ints, ids: Sequence[Any]
) -> tuple[Ints, Ints, int]:
    sizes, flat = flat_subsamples(subsamples, len(seed))
    rows, (numbers, codes) = np.repeat(np.arange(len(seed)), sizes), factorize(flat)
    width = max(1, len(numbers))
    of_seeds = np.unique(seed[rows] * width + codes) // width
    odd = np.bincount(of_seeds, minlength=len(ids)) < width
    draws, times = np.unique(rows * width + codes, return_counts=True)
    odd[seed[draws[times > 1] // width]] = True
    if odd.any():
        wrong = [ids[row] for row in np.flatnonzero(odd).tolist()]
        raise ValueError(
            "subsamples: expected every seed to have variants in every subsample, and a variant "
            f"to be in it once, got others of {preview(wrong)}: complete these seeds or leave them "
            "out"
        )
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
    require_same_length(columns)
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
    if not isinstance(values, list | tuple):
        array = np.asarray(values)
        if array.ndim != 1:
            raise ValueError(
                f"{name}: expected one entry per variant, got {values!r:.80}; of logits or "
                "probabilities take argmax(axis=-1)"
            )
        if array.dtype.kind in "iu":
            return array.astype(np.int64)
        values = array.tolist()
    if none is not None:
        values = [none if value is None else value for value in values]
    if _are_ints(values) and len(values):
        return np.fromiter(values, np.int64, count=len(values))
    if all(issubclass(kind, str) for kind in set(map(type, values))):
        # Plain strings, also of NumPy's or of an enumeration.
        return np.fromiter(map(str.__str__, values), object, count=len(values))
    kinds = ["strings" if isinstance(x, str) else "ints" * _are_ints([x]) for x in values]
    row = next(row for row, kind in enumerate(kinds) if not kind or kind != kinds[0])
    after = f" after {values[0]!r}" * (row > 0)
    raise ValueError(
        f"{name}: expected ints in all rows, or strings, got {values[row]!r} in row {row}{after}: "
        "convert one of them, leave rows without a value out, and of logits or probabilities take "
        "argmax(axis=-1)"
    )


def _has_ints(column: Column) -> bool:
    return column.dtype.kind == "i"


def _are_ints(values: Sequence[Any]) -> bool:
    kinds = set(map(type, values))
    return all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds)


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


def require_same_length(columns: Mapping[str, Any]) -> None:
    """Raise ValueError unless all columns have equally many rows."""
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise ValueError(f"expected columns of the same length, one entry per variant, got {shown}")


def check_probabilities(name: str, values: Any, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Check label probabilities, one row per variant, and scale them to sum to exactly 1."""
    table = np.asarray(values, np.float64)
    got = f"an array of shape {table.shape}"
    if table.shape == shape:
        sums = table.sum(axis=1)
        wrong = ~((table >= 0).all(axis=1) & (np.abs(sums - 1) <= SUM_TOLERANCE))  # NaN is neither
        if not wrong.any():
            return np.asarray(table / sums[:, None])
        got = f"{table[row := int(wrong.argmax())].tolist()} in row {row}"
    raise ValueError(
        f"{name}: expected {shape[1]} probabilities that sum to 1, of logits take the softmax, for "
        f"each of {shape[0]:,} texts, got {got}; in 16-bit formats models may overflow"
    )
