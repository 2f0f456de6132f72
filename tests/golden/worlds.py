import csv
import gzip
import io
import json
import random
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from helpers import report_data
from helpers.bench.made_up_rows import write_made_up_predictions, write_made_up_run
from helpers.dataset_files import run_manifest, write_run
from helpers.paraphrase_run import manifest as paraphrase_manifest

from golden.wrong_files import wrong_files
from merge_dataset.export import export_dataset

KEPT: Final = Path(__file__).with_name("kept")
ROOT: Final = Path(__file__).parents[2]
SHARED: Final = ROOT.parent / "shared"
TESTS: Final = ROOT / "tests"

Row = dict[str, Any]


@dataclass(frozen=True)
class World:
    name: str
    make: Callable[[Path], None]
    """Fills the folder, which is the working directory."""
    quick: bool = True
    needs: tuple[Path, ...] = ()
    steps: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)
    """Name in the list of commands → function that writes further files at that point."""

    @property
    def record(self) -> Path:
        return KEPT / f"{self.name}.txt"

    @property
    def commands(self) -> list[str]:
        """Words after `merge-nli`, as in the record; each command finds the files of earlier ones.

        To record another command, add a line `$ WORDS` there, and run `make golden-keep`.
        """
        lines = self.record.read_text(encoding="utf-8").split("\n")
        return [line[2:] for line in lines if line.startswith("$ ")][1:]


def problems_of(dataset: Path, *, source: str = "") -> list[Row]:
    """Read the distinct problems of a dataset folder, variants and seeds, sorted by id."""
    result: dict[str, Row] = {}
    for path in sorted((dataset / source).rglob("*.parquet")):
        for row in pq.ParquetFile(path).read().to_pylist():
            result.setdefault(row["variant_id"], row)
    return [result[name] for name in sorted(result)]


def answers(rows: Iterable[Row], model: str, ability: float, *, labels: int = 3) -> list[Row]:
    """Answer problems, drawn by their ids, as a model with an accuracy of about `ability`."""
    made = []
    for row in rows:
        common = random.Random(f"{row['seed_id']}").random()
        draw = random.Random(f"{model} {row['variant_id']}")
        right = 0.5 * common + 0.5 * draw.random() < ability
        other = (row["label"] + draw.randrange(1, labels)) % labels
        answer = row["label"] if right else other
        weights = [draw.random() for _ in range(labels)]
        weights[answer] += 1
        item = {k: row[k] for k in ("variant_id", "seed_id", "label")} | {"prediction": answer}
        made.append(item | {"probabilities": [weight / sum(weights) for weight in weights]})
    return made


def write(path: Path, rows: Sequence[Row], *, metadata: Row | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix == ".parquet":
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = {name: _column([row.get(name) for row in rows]) for name in names}
        table = pa.table(columns)
        if metadata:
            table = table.replace_schema_metadata({b"merge_nli": json.dumps(metadata).encode()})
        pq.write_table(table, path)
        return
    if suffix == ".jsonl":
        text = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        cells = io.StringIO(newline="")
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(cells, names)
        writer.writeheader()
        writer.writerows(
            {k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows
        )
        text = cells.getvalue()
    content = text.encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values])


def named(rows: Iterable[Row], labels: Sequence[str]) -> list[Row]:
    return [
        row | {"label": labels[row["label"]], "prediction": labels[row["prediction"]]}
        for row in rows
    ]


NLI: Final = ("entailment", "neutral", "contradiction")


def write_answers(dataset: Path) -> None:
    rows = problems_of(dataset)
    a, b, c = (answers(rows, name, x) for name, x in (("a", 0.75), ("b", 0.66), ("c", 0.5)))
    write(Path("a.parquet"), a, metadata={"kind": "other", "name": "model-a", "parameters": 110e6})
    write(Path("b.jsonl"), b)
    write(Path("c.csv"), named([{k: r[k] for k in list(r)[:4]} for r in c], NLI))
    write(Path("a.jsonl.gz"), a)
    write(Path("a-named.csv"), named(a, [name.title() for name in NLI]))
    write(Path("perfect.parquet"), [row | {"prediction": row["label"]} for row in c])
    half = len(a) // 2
    write(Path("parts/1.parquet"), a[:half])
    write(Path("parts/2.jsonl"), a[half:])
    write(Path("parts/again.csv"), a[half - 3 : half + 3])
    write(Path("missing.parquet"), [row for n, row in enumerate(a) if n % 9])
    write(Path("variants.jsonl"), [row for row in a if row["variant_id"] != row["seed_id"]])
    write(Path("seeds.jsonl"), [row for row in a if row["variant_id"] == row["seed_id"]])
    shuffled = random.Random(0).sample(a, len(a))
    write(Path("shuffled.parquet"), shuffled)
    rounded = [row | {"probabilities": [round(p, 3) for p in row["probabilities"]]} for row in a]
    write(Path("rounded.jsonl"), rounded)


# --- the demo ---


def make_demo(folder: Path) -> None:
    for name in ("judged_variants", "judged_options"):
        shutil.copytree(TESTS / "data" / name, folder / name)
    shutil.copytree(ROOT / "merge_metric/demo/bert-tiny-nli", folder / "nli")
    shutil.copy(ROOT / "generation/demo/problems.jsonl", folder)


# --- a made-up dataset: two sources, three masked LMs, paraphrases, votes ---

_MLM_MAP: Final = """\
[model-a]
equivalent = ["some/mlm"]
size = ["some/large-mlm"]
"""


def make_made(folder: Path) -> None:
    for source, count in (("snli", 48), ("mnli-m", 32)):
        made = report_data.problems(count, source)
        mlms = ("some/mlm", "some/large-mlm", "other/mlm")
        for number, row in enumerate(made.variants):
            chosen = sorted({mlms[number % 3], mlms[(number // 2) % 3]})
            row["mlms"] = row["premise_mlms"] = row["hypothesis_mlms"] = chosen
            row["mlm_count"] = len(chosen)
            row["zipf_frequency"] = 2 + number % 7 / 2
        details = [{**_MLM, "name": name} for name in mlms]
        words = run_manifest(source, mlms=details, eligible={"noun": count, "verb": count // 2})
        _export(folder / "runs" / source, made, words)
        if source == "snli":
            others = report_data.Problems(source, made.seeds)
            report_data.paraphrased(others)
            chosen_seeds = {row["seed_id"] for row in others.variants}
            others.seeds = [row for row in others.seeds if row["seed_id"] in chosen_seeds]
            counts = {"paraphrase": len(others.seeds)}
            _export(folder / "runs" / "more", others, paraphrase_manifest(eligible=counts))
    Path("mlms.toml").write_text(_MLM_MAP, encoding="utf-8")
    write_answers(folder / "merge-nli")


_MLM: Final = {
    "revision": "0123456789abcdef", "architecture": "BertForMaskedLM", "dtype": "float32",
    "device": "cpu",
}  # fmt: skip


def _export(run: Path, made: report_data.Problems, manifest: Row) -> None:
    seeds, variants = (
        sorted(rows, key=lambda row: str(row["variant_id"])) for rows in (made.seeds, made.variants)
    )
    write_run(run, seeds, variants, manifest)
    export_dataset(run, Path("merge-nli"))


def make_options(folder: Path) -> None:
    """Make what options that play no part, and wrong ones, are tried on."""
    make_made(folder)
    shutil.copytree(TESTS / "data/judged_variants", folder / "judged_variants")


# --- other formats ---


def make_formats(folder: Path) -> None:
    for name in ("pairs.jsonl", "reading.jsonl"):
        shutil.copy(ROOT / "generation/demo" / name, folder)


def format_answers(folder: Path) -> None:
    for source, labels in (("pairs", ("different", "paraphrase")),
                           ("reading", ("incorrect", "correct"))):  # fmt: skip
        rows = problems_of(folder / "merge-nli", source=source)
        for model, ability in (("a", 0.8), ("b", 0.6)):
            made = answers(rows, model, ability, labels=2)
            write(folder / source / f"{model}.parquet", named(made, labels))
            write(folder / source / f"{model}.jsonl", made)
        wrong = named(made, labels)
        wrong[3]["prediction"] = "maybe"
        write(folder / source / "wrong.csv", wrong)


# --- messages about invalid predictions files ---


def make_messages(folder: Path) -> None:
    report_data.problems(6).write(folder / "merge-nli")
    other = report_data.problems(6)
    for row in [*other.seeds, *other.variants]:
        row["premise"] = row["premise"].replace("park", "wood")
    other.write(folder / "other")
    report_data.problems(4, "mnli-m").write(folder / "mnli")
    good = answers(problems_of(folder / "merge-nli"), "a", 0.8)
    write(folder / "good.parquet", good)
    for name, rows in wrong_files(good):
        for suffix in _SUFFIXES:
            write(folder / f"{name}{suffix}", rows)
    for name in _PACKED:
        write(folder / name, [good[0] | {"prediction": None}, *good[1:]])
    (folder / "empty.jsonl").write_bytes(b"")
    (folder / "empty.csv").write_bytes(b"")
    (folder / "words.txt").write_bytes(b"variant_id\n")
    (folder / "fake.parquet").write_bytes(b"variant_id,seed_id,label,prediction\n")
    lines = [json.dumps(row) + "\n" for row in good]
    broken = {"cut": lines[3][:40] + "\n", "array": "[1]\n", "blank": "\n", "nan": "NaN\n"}
    for name, line in broken.items():
        (folder / f"{name}.jsonl").write_text("".join([*lines[:3], line, *lines[4:]]))
    columns = "variant_id;seed_id;label;prediction"
    rows = [";".join(str(row[name]) for name in columns.split(";")) for row in good]
    (folder / "semicolon.csv").write_text("\n".join([columns, *rows]) + "\n")
    (folder / "short-row.csv").write_text("\n".join([columns, rows[0], "x;y", *rows[2:]]) + "\n")
    (folder / "bom.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join([columns, *rows]).encode())
    (folder / "latin1.csv").write_bytes("\n".join([columns, "é;é;0;0", *rows]).encode("latin-1"))


_SUFFIXES: Final = (".parquet", ".csv", ".jsonl")
_PACKED: Final = ("packed.jsonl.gz", "packed.csv.gz", "packed.parquet.gz", "table.tsv")
# --- SNLI, by real models ---


def make_snli(folder: Path) -> None:
    for name in ("bert-tiny-mlm", "minilm-l6-mlm", "bert-tiny-nli", "minilm-l6-nli"):
        (folder / name).symlink_to(SHARED / "models" / name)
    (folder / "snli_test.jsonl").symlink_to(SHARED / "data" / "snli_test.jsonl")


# --- a million rows ---


def make_million(folder: Path) -> None:
    seeds = range(1_000_000 // 22)
    export_dataset(write_made_up_run(folder / "run", seeds), folder / "merge-nli")
    write_made_up_predictions(folder / "a.parquet", seeds)
    rows = pq.read_table(folder / "a.parquet")
    label = rows["label"].to_numpy()
    b = rows.set_column(
        3, "prediction", pa.array((8 * label + (np.arange(len(label)) % 11 == 0)) % 3)
    )
    pq.write_table(b.drop_columns(["text_digest"]), folder / "b.parquet")
    pq.write_table(rows.slice(0, 900_000), folder / "missing.parquet")
    pq.write_table(pa.concat_tables([rows, rows.slice(700_000, 2)]), folder / "twice.parquet")


WORLDS: Final = {
    world.name: world
    for world in (
        World("demo", make_demo),
        World("made", make_made),
        World("formats", make_formats, steps={"(answers)": format_answers}),
        World("messages", make_messages),
        World("options", make_options),
        World("snli", make_snli, quick=False, needs=(SHARED,)),
        World("million", make_million, quick=False),
    )
}
