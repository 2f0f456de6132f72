"""Conditions on rows of predictions in SQL; a wrong row is looked up only to name it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset.data_files import read_file
from merge_dataset.engine import quoted
from merge_dataset.schema import LABELS
from merge_metric.frame.relations import Engine
from merge_metric.frame.texts import PREFIX, TEXT_DIGEST, digest_in_hex
from merge_metric.seed_variant_accuracy.options import (
    NO_LABEL,
    SUM_TOLERANCE,
    Merging,
    merging_advice,
)

LABELS_KEY: Final = b"labels"
"""Key of a table's metadata under which `labelled` stores labels."""

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


class Condition(NamedTuple):
    """Something wrong with a row."""

    column: str
    holds: str
    """SQL on the rows as given."""
    expected: str
    """Words for what the column should have instead."""


class Checked(NamedTuple):
    """Rows of predictions for `FROM`, and what may be wrong with them; see `checked`."""

    rows: str
    given: str
    """The rows as they are in the file."""
    conditions: list[Condition]


@dataclass(slots=True, eq=False, weakref_slot=True)
class PredictionsFile:
    """An opened predictions file, or a table of Arrow, whose rows the engine reads."""

    path: Path
    """The file as named in messages."""
    schema: pa.Schema
    rows: int
    names: list[str]
    """Columns of `COLUMNS` and `FURTHER` in the file; optional ones if not empty."""
    source: str
    """The rows, with their numbers, for `FROM`."""
    engine: Engine = field(default_factory=Engine)
    labels: tuple[str, ...] = LABELS
    """Labels of the problems, merged, to which checked codes refer."""
    written: tuple[str, ...] = LABELS
    """Labels to which positions and probabilities in the file refer."""
    merging: Merging = field(default_factory=Merging)
    description: Mapping[str, Any] = field(default_factory=dict)
    """Description of how it was made; empty if it has none."""

    def place(self, row: int) -> str:
        """Name a row, from 0, by its line of text or its row of Parquet, from 1."""
        if self.path.suffix in ("", ".parquet", ".eval", ".json"):
            return f"row {row + 1}"
        return f"line {next(islice(read_file(self.path), row, None)).line}"  # not by blank lines

    @property
    def known(self) -> tuple[str, ...]:
        """Names of labels that the file may have: those of its positions come first."""
        return self.merging.known(self.written)

    @property
    def codes(self) -> list[int]:
        """Map positions in `known` to positions in `labels`; the last is for no label."""
        places = [*map(self.labels.index, self.merging.of(self.known)), NO_LABEL]
        return [places[code] for code in self.merging.codes(self.known).tolist()]

    def has_values(self, name: str) -> bool:
        """Return whether a column has a value in any row."""
        some = f"SELECT 1 FROM {self.source} WHERE {name} IS NOT NULL LIMIT 1"
        return len(self.engine.fetch(some)) > 0

    def texts_in(self, name: str) -> list[str]:
        """List the different texts of a column of labels, at most `_MOST`."""
        rows = self.engine.fetch(
            f"SELECT DISTINCT {name}::VARCHAR AS text FROM {self.source} "
            f"WHERE {name} IS NOT NULL LIMIT {_MOST}"
        )
        return list(rows["text"].to_pylist())

    def further(self, name: str) -> Iterator[tuple[str, Any]]:
        """Yield ids of problems and `ANSWER_TEXT` or `REPEATS`, for rows that have a value."""
        if name in self.names:
            rows = self.engine.fetch(
                f"SELECT variant_id, {name} FROM {self.source} WHERE {name} IS NOT NULL "
                f"ORDER BY {ROW}"
            )
            for batch in rows.to_batches(max_chunksize=10_000):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def checked(self) -> Checked:
        """Write the checked rows, and list what may be wrong.

        Checked rows have: `row`; ids; `label` and `prediction` as positions in `labels`, `NO_LABEL`
        for none; `digest`; `p0`, `p1` … of the labels; `odd`, whether another label is more
        probable than the prediction; `wrong`, the first condition that holds. Probabilities may be
        for `written`, for all `known` names, or already summed.
        """
        known, codes = self.known, self.codes
        names = [name for name in COLUMNS if name in self.names]
        given = [f"{ROW} AS row", *(f"{name} AS given_{name}" for name in names)]
        shown = ["row", *(f"given_{name} AS {name}" for name in IDS if name in names)]
        conditions = [
            Condition(name, f"given_{name} IS NULL", "a value")
            for name in (*IDS, "label")
            if name in names
        ]
        for name in (name for name in ANSWERS if name in names):
            code, expected = self._code(name)
            given.append(f"({code})::TINYINT AS code_{name}")
            conditions.append(Condition(name, f"code_{name} IS NULL", expected))
            code = f"code_{name}"
            if self.merging:
                cases = " ".join(f"WHEN {n} THEN {c}" for n, c in enumerate(codes[:-1]))
                code = f"(CASE {code} {cases} WHEN {NO_LABEL} THEN {codes[-1]} END)::TINYINT"
            shown.append(f"{code} AS {name}")
        digest, odd = "NULL::UBIGINT AS digest", "false"
        if TEXT_DIGEST in names:
            digest = "digest"
            given.append(f"{digest_in_hex(TEXT_DIGEST)} AS digest")
            rule = f"strlen(given_{TEXT_DIGEST}) <> {len(PREFIX) + 16} OR "
            rule += f"(digest IS NULL AND given_{TEXT_DIGEST} IS NOT NULL)"
            expected = f"{PREFIX} and 16 hexadecimal digits, as `merge-nli predict` writes them"
            conditions.append(Condition(TEXT_DIGEST, rule, expected))
        shown.append(digest)
        if PROBABILITIES in names:
            width, merged = len(self.written), len(set(codes[:-1]))
            if self.merging:
                first = self.engine.fetch(
                    f"SELECT len({PROBABILITIES}) AS n FROM {self.source} WHERE {ROW} = 0"
                )["n"][0].as_py()
                width = first if first in (width, len(known), merged) else width
            shares = [f"s{n}" for n in range(width)]
            given += [f"{PROBABILITIES}[{n + 1}]::DOUBLE AS s{n}" for n in range(width)]
            least = " AND ".join(f"{share} >= 0" for share in shares)
            total = f"abs({' + '.join(shares)} - 1) <= {SUM_TOLERANCE}"
            expected = f"{width} per row, in the order {', '.join(known[:width])}"
            for rule, wanted in (
                (f"len(given_{PROBABILITIES}) IS DISTINCT FROM {width}", expected),
                (f"NOT coalesce({least} AND {total}, false)", "numbers from 0 to 1 with the sum 1"),
            ):
                conditions.append(Condition(PROBABILITIES, rule, wanted))
            ours = range(width) if width == merged != len(self.written) else codes
            for label in range(merged):
                parts = [share for n, share in enumerate(shares) if ours[n] == label]
                shown.append(f"{' + '.join(parts) or '0::DOUBLE'} AS p{label}")
            own = " ".join(f"WHEN {n} THEN {share}" for n, share in enumerate(shares))
            most = f"greatest({', '.join(shares)}) - {SUM_TOLERANCE}"
            odd = f"coalesce(CASE code_prediction {own} END < {most}, false)"
        cases = " ".join(f"WHEN {of.holds} THEN {n}" for n, of in enumerate(conditions))
        shown += [f"{odd} AS odd", f"CASE {cases} END AS wrong"]
        rows = f"(SELECT {', '.join(given)} FROM {self.source})"
        return Checked(f"(SELECT {', '.join(shown)} FROM {rows})", rows, conditions)

    def table(self) -> pa.Table:
        """Read and check all rows; see `predictions.read_predictions`."""
        checked = self.checked()
        names = [name for name in COLUMNS if name in self.names]
        shares = [f"p{n}" for n in range(len(self.labels))] if PROBABILITIES in names else []
        plain = [name for name in names if name != PROBABILITIES]
        further = f" JOIN (SELECT {ROW} AS row, {TEXT_DIGEST} FROM {self.source}) USING (row)"
        rows = self.engine.fetch(
            f"SELECT {', '.join([*plain, *shares, 'wrong'])} FROM {checked.rows}"
            f"{further if TEXT_DIGEST in names else ''} ORDER BY row"
        )
        if (first := pc.min(rows["wrong"]).as_py()) is not None:
            self.explain(checked.conditions[first])
        self.require_distinct()
        columns: dict[str, Any] = {name: rows[name] for name in plain}
        columns |= {name: rows[name].cast(pa.int64()) for name in ANSWERS if name in plain}
        if shares:
            values = np.stack([rows[name].to_numpy() for name in shares], axis=1)
            columns[PROBABILITIES] = pa.FixedSizeListArray.from_arrays(values.ravel(), len(shares))
        return labelled(pa.table(columns), self.labels)

    def _code(self, name: str) -> tuple[str, str]:
        """Write the position of a label in SQL, null if it is none, and say what is expected."""
        kind, known, numbers = value_type(self.schema.field(name).type), self.known, self.written
        by_number = f"one of 0 to {len(numbers) - 1} ({', '.join(numbers)})"
        if pa.types.is_null(kind):
            code, empty, expected = "NULL", "false", "a value"
        elif kind == pa.string():
            texts = self.texts_in(name)
            positions = {text: _position(text, known, len(numbers)) for text in texts}
            cases = [
                f"WHEN {quoted(text)} THEN {position}"
                for text, position in positions.items()
                if position is not None
            ]
            code = f"CASE {name}::VARCHAR {' '.join(cases)} END" if cases else "NULL"
            empty = f"trim({name}::VARCHAR) IN ('', '{NO_LABEL}')"
            are_numbers = all(text.strip().removeprefix("-").isdecimal() for text in texts)
            expected = by_number if are_numbers else f"one of {', '.join(known)}"
        else:
            code = f"CASE WHEN {name} BETWEEN 0 AND {len(numbers) - 1} THEN {name} END"
            empty, expected = f"{name} = {NO_LABEL}", by_number
        if name == "prediction":
            code = f"CASE WHEN {name} IS NULL OR {empty} THEN {NO_LABEL} ELSE {code} END"
        return code, expected

    def explain(self, condition: Condition) -> None:
        """Raise the error that names the first row on which a condition holds."""
        name, rule, expected = condition
        if name not in REQUIRED:
            self.require_distinct()
        (row,) = self.engine.fetch(
            f"SELECT row, given_{name} AS value, count(*) OVER () AS n FROM {self.checked().given} "
            f"WHERE {rule} ORDER BY row LIMIT 1"
        ).to_pylist()
        value, advice = row["value"], ""
        shown = "none" if value is None else repr(value)
        if isinstance(value, str) and "one of 0 to" in expected:
            shown = value.strip()
        if name == PROBABILITIES:
            shown = shown if value is None else json.dumps(list(value))
            advice = "; give them for all rows or for none, of logits take the softmax, and see "
            advice += "whether the model overflows"
        elif name in ANSWERS and value is not None:
            advice = f"; {self._advice(name)}"
        raise ValueError(
            f"{self.path}: {self.place(row['row'])}: {name}: expected {expected}, got {shown} "
            f"({row['n']:,} such row{'s'[: row['n'] > 1]}){advice}"
        )

    def _advice(self, name: str) -> str:
        labels, values = self.known, {*self.texts_in(name)}
        if values == {*map(str, range(1, len(labels) + 1))}:
            return "are they counted from 1? count from 0"
        odd = values - {*labels}
        of_two = labels != LABELS and odd <= {*LABELS}
        if of_two or (len(odd) == 1 and min(odd).startswith("no")):
            gold = labels if of_two else (LABELS[0], *odd)
            if proposed := merging_advice(LABELS, gold):
                return f"where contradiction and neutral count as one: `merge_labels` {proposed}"
        if name == "label":
            return "write gold labels so, and leave out problems without one"
        return "give each row the label that the model chose, or null where it named none"

    def require_distinct(self) -> None:
        """Raise ValueError if an id comes twice; the message names the rows."""
        for row in self.engine.fetch(
            f"SELECT variant_id, min({ROW}, 2) AS places, count(*) OVER () AS n FROM {self.source} "
            "GROUP BY variant_id HAVING count(*) > 1 ORDER BY places[2] LIMIT 1"
        ).to_pylist():
            first, again = map(self.place, row["places"])
            raise ValueError(
                f"{self.path}: {again}: variant_id: expected each id once, got "
                f"{row['variant_id']!r} as in {first} ({row['n']:,} such id{'s'[: row['n'] > 1]}); "
                "drop the repeated rows"
            )


def require_columns(
    where: object, names: Sequence[str], rows: int, elsewhere: Sequence[str] = ()
) -> None:
    """Raise ValueError unless there are all columns that are not elsewhere, and rows."""
    lacking = [name for name in REQUIRED if name not in (*names, *elsewhere)]
    if lacking or not rows:
        got = f"no {' and no '.join(lacking)} among {', '.join(names) or 'none'}"
        raise ValueError(
            f"{where}: expected rows with {', '.join(REQUIRED)}, got {got if lacking else 'none'}; "
            f"`merge-nli predict` writes them; a dataset has {' and '.join(OF_DATASET)}: give it"
        )


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of values, whatever the encoding of strings."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.string() if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) else kind


def require_types(file: PredictionsFile) -> None:
    """Raise ValueError unless the columns have types that can be read."""
    is_text = file.path.suffix not in ("", ".parquet")
    for name in (name for name in file.names if name in COLUMNS or not is_text):
        kind = value_type(file.schema.field(name).type)
        item = value_type(kind.value_type) if hasattr(kind, "value_type") else pa.null()
        if name == PROBABILITIES:
            good = pa.types.is_floating(item) or pa.types.is_integer(item)
            expected = f"a list of {len(file.written)} numbers per row"
        elif name == REPEATS:
            good = pa.types.is_integer(item)
            expected = "lists of whole numbers; or rename the column"
        elif name in ANSWERS:
            good = kind == pa.string() or pa.types.is_integer(kind)
            expected = f"the names {', '.join(file.written)} or their positions as integers"
        else:
            words = {TEXT_DIGEST: "a string", ANSWER_TEXT: "texts; or rename the column"}
            good, expected = kind == pa.string(), words.get(name, "ids as strings")
        if not good and not pa.types.is_null(kind):
            raise ValueError(f"{file.path}: {name}: expected {expected}, got the type {kind}")


def _position(text: str, labels: Sequence[str], numbered: int) -> int | None:
    if text in labels:
        return labels.index(text)
    folded = {label.casefold(): position for position, label in enumerate(labels)}
    if len(folded) < len(labels):
        return None
    places = {str(position): position for position in range(numbered)} | folded
    return places.get(text.strip().casefold())


# --- Labels and names ---


def labels_of(schema: pa.Schema) -> tuple[str, ...]:
    """Read from the schema of a table or file the labels that its codes refer to."""
    recorded = (schema.metadata or {}).get(LABELS_KEY)
    return LABELS if recorded is None else tuple(json.loads(recorded))


def labelled(table: pa.Table, labels: Sequence[str]) -> pa.Table:
    """Store a table's labels in its metadata for `labels_of`, unless they are of NLI."""
    if tuple(labels) == LABELS:
        return table
    noted = {LABELS_KEY: json.dumps(list(labels))}
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **noted})
