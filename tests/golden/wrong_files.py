from collections.abc import Iterator, Sequence
from typing import Any

Row = dict[str, Any]


def wrong_files(good: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield each fault, as a file's name, and the file's rows."""
    for name, changes in _CHANGED.items():
        yield name, [*good[:5], good[5] | changes, *good[6:]]
    for name, change in _WHOLE.items():
        yield name, change([dict(row) for row in good])


_CHANGED: dict[str, Row] = {
    "null-prediction": {"prediction": None}, "null-label": {"label": None},
    "null-id": {"variant_id": None}, "null-seed": {"seed_id": None}, "empty-id": {"variant_id": ""},
    "unknown-id": {"variant_id": "snli:p001/noun/cat/unicorn"},
    "unknown-seed": {"seed_id": "snli:unheard-of"}, "other-seed": {"seed_id": "snli:p004"},
    "prediction-3": {"prediction": 3}, "prediction-minus-1": {"prediction": -1},
    "prediction-huge": {"prediction": 10**12}, "prediction-float": {"prediction": 0.5},
    "prediction-yes": {"prediction": "yes"}, "prediction-blank": {"prediction": " "},
    "prediction-true": {"prediction": True}, "label-7": {"label": 7},
    "label-name": {"label": "entail"}, "probabilities-two": {"probabilities": [0.4, 0.6]},
    "probabilities-sum": {"probabilities": [0.4, 0.4, 0.4]},
    "probabilities-negative": {"probabilities": [-0.2, 0.6, 0.6]},
    "probabilities-logits": {"probabilities": [2.5, -1.0, 0.3]},
    "probabilities-null": {"probabilities": None},
    "probabilities-inner-null": {"probabilities": [0.5, None, 0.5]},
}  # fmt: skip


def _gold(rows: list[Row]) -> list[Row]:
    rows[5]["label"] = (rows[5]["label"] + 1) % 3
    return rows


_WHOLE = {
    "no-prediction": lambda rows: [_without(row, "prediction") for row in rows],
    "no-ids": lambda rows: [_without(row, "variant_id") for row in rows],
    "no-seed": lambda rows: [_without(row, "seed_id") for row in rows],
    "no-label": lambda rows: [_without(row, "label") for row in rows],
    "other-names": lambda rows: [
        {"id": row["variant_id"], "pred": row["prediction"]} for row in rows
    ],
    "number-ids": lambda rows: [row | {"variant_id": n} for n, row in enumerate(rows)],
    "other-gold": _gold,
    "other-order": lambda rows: [
        row | {"label": 2 - row["label"], "prediction": 2 - row["prediction"]} for row in rows
    ],
    "from-one": lambda rows: [
        row | {"label": row["label"] + 1, "prediction": row["prediction"] + 1} for row in rows
    ],
    "prediction-from-one": lambda rows: [
        row | {"prediction": row["prediction"] + 1} for row in rows
    ],
    "twice": lambda rows: [*rows, rows[5]],
    "twice-otherwise": lambda rows: [*rows, rows[5] | {"prediction": 0}, rows[9], rows[9]],
    "seed-missing": lambda rows: [row for row in rows if row["variant_id"] != "snli:p002"],
    "variant-missing": lambda rows: [
        row for row in rows if row["variant_id"] != rows[-1]["variant_id"]
    ],
    "all-unknown": lambda rows: [row | {"variant_id": f"x{row['variant_id']}"} for row in rows],
    "only-seeds": lambda rows: [row for row in rows if row["variant_id"] == row["seed_id"]],
    "only-variants": lambda rows: [row for row in rows if row["variant_id"] != row["seed_id"]],
    "other-text": lambda rows: [row | {"text_digest": "md5:0123456789abcdef"} for row in rows],
    "bad-text-digest": lambda rows: [row | {"text_digest": "xyz"} for row in rows],
    "some-probabilities": lambda rows: [
        row if n % 2 else row | {"probabilities": None} for n, row in enumerate(rows)
    ],
    "spaces": lambda rows: [row | {"variant_id": f" {row['variant_id']} "} for row in rows],
    "both-wrong": lambda rows: [rows[0] | {"prediction": None}, *rows[1:], rows[2]],
    "strings": lambda rows: [
        row | {"label": str(row["label"]), "prediction": str(row["prediction"])} for row in rows
    ],
    "floats": lambda rows: [row | {"prediction": float(row["prediction"])} for row in rows],
    "more-columns": lambda rows: [row | {"comment": 'a\nb"c,'} for row in rows],
}
"""Fault, or valid oddity → function that makes it from good rows."""


def _without(row: Row, name: str) -> Row:
    return {key: value for key, value in row.items() if key != name}
