import itertools
import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from generation.records import Seed
from merge_dataset.schema import LABELS


def read_seeds(file: Path) -> list[Seed]:
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [
        Seed(
            seed_id=f"bench:{row['pairID']}", source="bench",
            texts=(row["sentence1"], row["sentence2"]), label=row["gold_label"],
        )
        for row in rows
        if row["gold_label"] != "-"
    ]  # fmt: skip


def write_crossed_problems(file: Path, real: Path, count: int) -> None:
    """Write distinct problems from real texts, crossed in groups of 32."""
    every = map(json.loads, real.read_text(encoding="utf-8").splitlines())
    rows = [row for row in every if row["gold_label"] in LABELS]
    with file.open("w", encoding="utf-8") as lines:
        for number, row in enumerate(islice(_crossed(rows), count)):
            lines.write(f'{{"pairID": "crossed-{number:010}", {row}}}\n')


def _crossed(rows: list[dict[str, str]]) -> Iterator[str]:
    """Yield members of JSON objects: the premise of one problem, the other values of another."""
    numbers = [{row[name]: None for row in rows} for name in ("sentence1", "sentence2")]
    first, second = ({text: n for n, text in enumerate(number)} for number in numbers)
    ends = [
        (
            first[row["sentence1"]] * len(second),
            second[row["sentence2"]],
            f'"gold_label": "{row["gold_label"]}", "sentence1": ',
            json.dumps(row["sentence1"]),
            f', "sentence2": {json.dumps(row["sentence2"])}',
        )
        for row in rows
    ]
    seen = bytearray(len(first) * len(second))
    for turn in itertools.count():
        random.Random(turn).shuffle(ends)
        more = False
        for group in (ends[start : start + 32] for start in range(0, len(ends), 32)):
            for (start, _, _, premise, _), (_, place, label, _, rest) in itertools.product(
                group, group
            ):
                if not seen[start + place]:
                    seen[start + place] = more = True
                    yield f"{label}{premise}{rest}"
        if not more:
            raise ValueError(f"expected fewer problems, {sum(seen):,} pairs are all there are")
