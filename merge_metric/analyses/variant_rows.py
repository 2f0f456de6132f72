"""A configuration's distinct variants, joined to a model's answers and annotators' judgements."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from merge_dataset.annotation import ENOUGH, read_answers, read_session
from merge_dataset.engine import connect
from merge_dataset.layout import split_files
from merge_metric.frame.joined import VARIANT_IDS, Frame
from merge_metric.frame.relations import read_columns


@dataclass(frozen=True, slots=True, eq=False)
class VariantRows:
    """The distinct variants of a configuration, or the variants that a frame has answers to."""

    config: str
    dataset: str
    table: pa.Table
    columns: tuple[str, ...] = ()
    frame: Frame | None = None

    @property
    def model(self) -> str | None:
        """Name of the model, if any."""
        return self.frame.model if self.frame else None


def variant_rows(
    folder: Path,
    config: str,
    columns: Sequence[str] = (),
    of_seeds: Sequence[str] = (),
    *,
    frame: Frame | None = None,
    judged: pa.Table | None = None,
) -> VariantRows:
    """Read a configuration's variants, in order: `variant_id`, `seed_id`, `columns`, `seed_…`.

    With a `frame` the table has only its variants, and the columns `right`, `seed_right` and
    `changed` (whether the answer differs from the answer to the seed). With `judged` it also has
    the columns of `mean_judgements`, null where nobody judged.
    """
    files = split_files(folder, config)
    rows = read_columns(folder, files["variants"], ("variant_id", "seed_id", *columns))
    wanted, joins = ["variants.*"], []
    with connect() as connection:
        connection.register("rows", rows.append_column("place", pa.array(np.arange(len(rows)))))
        if of_seeds:
            seeds = read_columns(folder, files["seeds"], ("seed_id", *of_seeds))
            connection.register("seeds", seeds)
            wanted += [f'seeds."{name}" AS "seed_{name}"' for name in of_seeds]
            joins.append("LEFT JOIN seeds USING (seed_id)")
        if frame is not None:
            answers = frame.rows
            own, gold = answers.own[answers.seed], answers.gold[answers.seed]
            given = {
                "variant_id": frame.values[VARIANT_IDS],
                "right": answers.prediction == gold,
                "seed_right": own == gold,
                "changed": answers.prediction != own,
            }
            connection.register("answers", pa.table(given))
            wanted += ["answers.* EXCLUDE (variant_id)"]
            joins.append("JOIN answers USING (variant_id)")
        if judged is not None:
            connection.register("judged", judged)
            wanted += ["judged.* EXCLUDE (variant_id)"]
            joins.append("LEFT JOIN judged USING (variant_id)")
        table = connection.sql(
            f"SELECT {', '.join(wanted)} FROM rows variants {' '.join(joins)} ORDER BY place"
        ).to_arrow_table()
    return VariantRows(
        config, folder.resolve().name, table.drop_columns("place"), tuple(columns), frame
    )


def mean_judgements(paths: Sequence[Path | str]) -> pa.Table:
    """Read judgements of variants, averaged over annotators.

    Columns: `variant_id`; `fluency` and `reasoning`, 1–5; `good`, 1 if mean F + R is at least
    `ENOUGH`, else 0; `chance`, the probability with which the session drew it, null without one.
    """
    answers, names = read_answers(paths), ", ".join(map(str, paths))
    if "fluency" not in answers.column_names:
        raise ValueError(
            f"{names}: expected scores of fluency and reasoning, got answers about paraphrases; "
            "merge-nli agreement has what they say"
        )
    sessions = [read_session(Path(path)) for path in paths if Path(path).is_dir()]
    chances = {name: item.chance for session in sessions for name, item in session.items.items()}
    drawn = {"variant_id": list(chances), "chance": list(chances.values())}
    types = pa.schema({"variant_id": pa.string(), "chance": pa.float64()})
    with connect() as connection:
        connection.register("answers", answers)
        connection.register("drawn", pa.table(drawn, types))
        return connection.sql(
            "SELECT variant_id, avg(fluency) AS fluency, avg(reasoning) AS reasoning, "
            f"(sum(fluency + reasoning) >= {ENOUGH} * count(*))::DOUBLE AS good, "
            "any_value(chance) AS chance FROM answers LEFT JOIN drawn USING (variant_id) "
            "GROUP BY variant_id ORDER BY variant_id"
        ).to_arrow_table()
