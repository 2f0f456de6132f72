import itertools
import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from generation.records import Seed
from merge_dataset.schema import LABELS

_PEOPLE: Final = ("man", "woman", "girl", "boy", "child", "player", "dog", "worker")
_DOING: Final = ("sleeps", "waits", "sings", "smiles", "runs", "eats", "jumps", "reads")
_HYPOTHESES: Final = (
    ("entailment", "{number}. The {who} {does}."),
    ("neutral", "{number}. The {who} is tired."),
    ("contradiction", "{number}. The {who} is not there."),
)


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


def write_problems(file: Path, count: int) -> None:
    """Write short problems with one noun, three per premise, made distinct by a number."""
    with file.open("w", encoding="utf-8") as lines:
        for number, (premise, hypothesis, label) in enumerate(islice(_problems(), count)):
            row = {
                "pairID": f"made-{number}", "gold_label": label, "sentence1": premise,
                "sentence2": hypothesis,
            }  # fmt: skip
            print(json.dumps(row), file=lines)


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
    first, second = ({text: n for n, text in enumerate(each)} for each in numbers)
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


def _problems() -> Iterator[tuple[str, str, str]]:
    rng = random.Random(0)
    for number in itertools.count():
        who, does = rng.choice(_PEOPLE), rng.choice(_DOING)
        for label, hypothesis in _HYPOTHESES:
            said = hypothesis.format(number=number, who=who, does=does)
            yield f"{number}. A {who} {does}.", said, label
