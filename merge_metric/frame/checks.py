"""Checks of predictions: conditions on rows in SQL; a wrong row is looked up only to name it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pyarrow as pa

from merge_dataset.engine import quoted
from merge_dataset.schema import LABELS
from merge_metric.frame.texts import PREFIX, TEXT_DIGEST
from merge_metric.seed_variant_accuracy.merging import Merging, merging_advice
from merge_metric.seed_variant_accuracy.options import NO_LABEL, SUM_TOLERANCE

IDS: Final = ("variant_id", "seed_id")
ANSWERS: Final = ("label", "prediction")
REQUIRED: Final = (*IDS, *ANSWERS)
OF_DATASET: Final = ("seed_id", "label")
"""Required columns that a dataset has, too, by `variant_id`."""
PROBABILITIES: Final = "probabilities"
COLUMNS: Final = (*REQUIRED, TEXT_DIGEST, PROBABILITIES)

ANSWER_TEXT: Final = "answer_text"
"""Column with answers in a model's own words; no figure depends on it."""
REPEATS: Final = "repeats"
"""Column with repeated answers to a seed, as positions of labels; null for variants."""
FURTHER: Final = (ANSWER_TEXT, REPEATS)
"""Optional columns on which no count per seed depends."""

ROW: Final = "file_row_number"
"""Column with the number of a row, from 0, which DuckDB gives to files."""

_MOST: Final = 1000
"""Number of different texts of a column of labels that are looked at."""

Place = Callable[[int], str]
"""Function from a row number, from 0, to a description of its place for users."""


def row_number(row: int) -> str:
    """Write a row number, from 0, as users count: "row 1" for the first."""
    return f"row {row + 1}"


@dataclass(frozen=True, slots=True)
class Condition:
    """Something wrong with a row: a condition in SQL on the rows of `Checked.given`."""

    column: str
    rule: str
    expected: str


@dataclass(frozen=True, slots=True)
class Checked:
    """Checked rows in SQL, and what is wrong with others."""

    rows: str
    """For `FROM`: `row`; ids; `label` and `prediction` as positions among the merged labels,
    `NO_LABEL` for none; `digest`; `p0`, `p1` … of the merged labels; `odd`, whether another label
    is more probable than the prediction; `wrong`, the first condition that holds."""
    given: str
    """The rows as given, for `FROM`: values are called `given_label`, for example."""
    conditions: tuple[Condition, ...]


def require_columns(where: object, names: Sequence[str], rows: int) -> None:
    """Raise ValueError unless there are all required columns and at least one row."""
    if lacking := [name for name in REQUIRED if name not in names]:
        raise ValueError(
            f"{where}: expected the columns {', '.join(REQUIRED)}, found no "
            f"{' and no '.join(lacking)}; `merge-nli predict` writes such a file"
        )
    if not rows:
        raise ValueError(f"{where}: expected at least one row, got none")


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of values, whatever the encoding of strings."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.string() if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) else kind


def require_type(name: str, kind: pa.DataType, labels: Sequence[str]) -> None:
    """Raise ValueError unless a column of `COLUMNS` or `FURTHER` has a type that can be read."""
    kind = value_type(kind)
    item = value_type(kind.value_type) if hasattr(kind, "value_type") else pa.null()
    if pa.types.is_null(kind):
        return
    if name == PROBABILITIES:
        good = pa.types.is_floating(item) or pa.types.is_integer(item)
        expected = f"a list of {len(labels)} numbers per row"
    elif name == REPEATS:
        good, expected = pa.types.is_integer(item), "lists of whole numbers; or rename the column"
    elif name in ANSWERS:
        good = kind == pa.string() or pa.types.is_integer(kind)
        expected = f"the names {', '.join(labels)} or their positions as integers"
    else:
        good = kind == pa.string()
        words = {TEXT_DIGEST: "a string", ANSWER_TEXT: "texts; or rename the column"}
        expected = words.get(name, "ids as strings")
    if not good:
        raise ValueError(f"{name}: expected {expected}, got the type {kind}")


def checked_rows(
    connection: duckdb.DuckDBPyConnection,
    source: str,
    schema: pa.Schema,
    names: Sequence[str],
    labels: Sequence[str],
    merging: Merging,
    codes: Sequence[int],
) -> Checked:
    """Write the rows of a source, for `FROM`, with the conditions on them.

    `labels` are those of the positions in the source; names may be any of `merging.known(labels)`,
    whose positions `codes` maps to merged ones; its last is for no label. Probabilities may be for
    the labels, for all of these names, or already summed.
    """
    known = merging.known(labels) if merging else tuple(labels)
    checked = [name for name in COLUMNS if name in names]
    given = [f"{ROW} AS row", *(f"{name} AS given_{name}" for name in checked)]
    shown = ["row", *(f"given_{name} AS {name}" for name in IDS if name in names)]
    conditions = [
        Condition(name, f"given_{name} IS NULL", "a value")
        for name in (*IDS, "label")
        if name in names
    ]
    for name in (name for name in ANSWERS if name in names):
        kind = value_type(schema.field(name).type)
        code, expected = _codes(connection, source, name, kind, labels, known)
        given.append(f"({code})::TINYINT AS code_{name}")
        conditions.append(Condition(name, f"code_{name} IS NULL", expected))
        code = _element(codes, f"code_{name}") if merging else f"code_{name}"
        shown.append(f"{code} AS {name}")
    if TEXT_DIGEST in names:
        given.append(f"{digest_in_hex(TEXT_DIGEST)} AS digest")
        shown.append("digest")
        rule = f"strlen(given_{TEXT_DIGEST}) <> {len(PREFIX) + 16} OR "
        rule += f"(digest IS NULL AND given_{TEXT_DIGEST} IS NOT NULL)"
        expected = f"{PREFIX} and 16 hexadecimal digits, as `merge-nli predict` writes them"
        conditions.append(Condition(TEXT_DIGEST, rule, expected))
    else:
        shown.append("NULL::UBIGINT AS digest")
    odd = "false"
    if PROBABILITIES in names:
        width, merged = len(labels), len(set(codes[:-1]))
        if merging:
            first = connection.execute(
                f"SELECT len({PROBABILITIES}) FROM {source} WHERE {ROW} = 0"
            ).fetchone()
            width = first[0] if first and first[0] in (width, len(known), merged) else width
        shares = [f"s{n}" for n in range(width)]
        given += [f"{PROBABILITIES}[{n + 1}]::DOUBLE AS s{n}" for n in range(width)]
        conditions += [
            Condition(
                PROBABILITIES,
                f"len(given_{PROBABILITIES}) IS DISTINCT FROM {width}",
                f"{width} per row, in the order {', '.join(known[:width])}",
            ),
            Condition(
                PROBABILITIES,
                f"NOT coalesce({' AND '.join(f'{share} >= 0' for share in shares)} AND "
                f"abs({' + '.join(shares)} - 1) <= {SUM_TOLERANCE}, false)",
                "numbers from 0 to 1 with the sum 1",
            ),
        ]
        ours = range(width) if width == merged != len(labels) else codes
        for label in range(merged):
            parts = [share for n, share in enumerate(shares) if ours[n] == label]
            shown.append(f"{' + '.join(parts) or '0::DOUBLE'} AS p{label}")
        own = " ".join(f"WHEN {n} THEN {share}" for n, share in enumerate(shares))
        odd = f"CASE code_prediction {own} END < greatest({', '.join(shares)}) - {SUM_TOLERANCE}"
    cases = [f"WHEN {condition.rule} THEN {number}" for number, condition in enumerate(conditions)]
    shown += [f"coalesce({odd}, false) AS odd", f"CASE {' '.join(cases)} END AS wrong"]
    rows = f"(SELECT {', '.join(given)} FROM {source})"
    return Checked(f"(SELECT {', '.join(shown)} FROM {rows})", rows, tuple(conditions))


def _codes(
    connection: duckdb.DuckDBPyConnection,
    source: str,
    name: str,
    kind: pa.DataType,
    labels: Sequence[str],
    known: Sequence[str],
) -> tuple[str, str]:
    """Write the position of a label in SQL, null if it is none, and say what is expected."""
    by_number = f"one of 0 to {len(labels) - 1} ({', '.join(labels)})"
    if pa.types.is_null(kind):
        code, empty, expected = "NULL", "false", "a value"
    elif kind == pa.string():
        texts = connection.execute(
            f"SELECT DISTINCT {name}::VARCHAR FROM {source} WHERE {name} IS NOT NULL LIMIT {_MOST}"
        ).fetchall()
        positions = {text: _position(text, known, len(labels)) for (text,) in texts}
        cases = [
            f"WHEN {quoted(text)} THEN {position}"
            for text, position in positions.items()
            if position is not None
        ]
        code = f"CASE {name}::VARCHAR {' '.join(cases)} END" if cases else "NULL"
        empty = f"trim({name}::VARCHAR) IN ('', '{NO_LABEL}')"
        are_numbers = all(text.strip().removeprefix("-").isdecimal() for text in positions)
        expected = by_number if are_numbers else f"one of {', '.join(known)}"
    else:
        code = f"CASE WHEN {name} BETWEEN 0 AND {len(labels) - 1} THEN {name} END"
        empty, expected = f"{name} = {NO_LABEL}", by_number
    if name == "prediction":
        code = f"CASE WHEN {name} IS NULL OR {empty} THEN {NO_LABEL} ELSE {code} END"
    return code, expected


def digest_in_hex(column: str) -> str:
    """Write the number of a digest in a file as an expression of DuckDB; null if it is none."""
    # Reversed, the digits are those of the number, but for the two of each byte.
    digits = f"TRY_CAST('0x' || reverse(substr({column}::VARCHAR, {len(PREFIX) + 1})) AS UBIGINT)"
    low = int.from_bytes(b"\x0f" * 8)
    return f"(({digits} & {low}::UBIGINT) * 16 + (({digits} >> 4) & {low}::UBIGINT))"


def explain(
    connection: duckdb.DuckDBPyConnection,
    rows: str,
    condition: Condition,
    place: Place,
    labels: Sequence[str],
) -> ValueError:
    """Make the error that names the first row, of `Checked.given`, on which a condition holds."""
    name, expected = condition.column, condition.expected
    row, value, count = connection.execute(
        f"SELECT row, given_{name}, count(*) OVER () FROM {rows} WHERE {condition.rule} "
        "ORDER BY row LIMIT 1"
    ).fetchone() or (0, None, 0)
    shown, advice = repr(value), ""
    counted = f" ({_counted(count, 'such row')})"
    if isinstance(value, str) and "one of 0 to" in expected:
        shown = value.strip()
    if value is None:
        shown = "none"
    if name in ANSWERS and value is not None:
        advice = _advice(connection, rows, name, labels)
    elif name == PROBABILITIES:
        shown = "none" if value is None else json.dumps(list(value))
        advice = "give them for all rows or for none"
        if "sum" not in expected:
            counted = ""
        elif value is not None:
            finite = [share for share in value if share is None or abs(share) < float("inf")]
            advice = "of logits take the softmax"
            if len(finite) < len(value):
                advice = "the model overflows, as in half precision, or is damaged"
    return ValueError(
        f"{place(row)}: {name}: expected {expected}, got {shown}{counted}{advice and f'; {advice}'}"
    )


def _advice(
    connection: duckdb.DuckDBPyConnection, rows: str, name: str, labels: Sequence[str]
) -> str:
    query = f"SELECT DISTINCT given_{name} FROM {rows} LIMIT {_MOST}"
    values = {value for (value,) in connection.execute(query).fetchall()} - {None}
    if values in ({*range(1, len(labels) + 1)}, {*map(str, range(1, len(labels) + 1))}):
        return "are they counted from 1? count from 0"
    odd = {*map(str, values)} - {*labels}
    of_two = tuple(labels) != LABELS and odd <= {*LABELS}
    if of_two or (len(odd) == 1 and str(*odd).startswith("no")):
        gold = labels if of_two else (LABELS[0], *odd)
        if proposed := merging_advice(LABELS, gold):
            return f"where contradiction and neutral count as one: `merge_labels` {proposed}"
    if name == "label":
        return "write gold labels so, and leave out problems without one"
    return "give each row the label that the model chose, or null where it named none"


def require_distinct(ids: Any, place: Place, where: str = "") -> None:
    """Raise ValueError if an id of a variant occurs twice; the message names the rows."""
    first: dict[str, int] = {}
    again: dict[str, int] = {}
    for row, name in enumerate(ids.to_pylist()):
        if first.setdefault(name, row) != row:
            again.setdefault(name, row)
    for name, row in again.items():
        raise ValueError(
            f"{where}{place(row)}: variant_id: expected each id once, got {name!r} as in "
            f"{place(first[name])} ({_counted(len(again), 'such id')}); drop the repeated rows"
        )


def _position(text: str, labels: Sequence[str], numbered: int) -> int | None:
    if text in labels:
        return labels.index(text)
    folded = {label.casefold(): position for position, label in enumerate(labels)}
    if len(folded) < len(labels):
        return None
    places = {str(position): position for position in range(numbered)} | folded
    return places.get(text.strip().casefold())


def _element(values: Sequence[int], position: str) -> str:
    cases = [f"WHEN {n} THEN {value}" for n, value in enumerate(values[:-1])]
    return f"(CASE {position} {' '.join(cases)} WHEN {NO_LABEL} THEN {values[-1]} END)::TINYINT"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
