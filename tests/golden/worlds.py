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

ROOT: Final = Path(__file__).parents[2]
SHARED: Final = ROOT.parent / "shared"
TESTS: Final = ROOT / "tests"

Row = dict[str, Any]


@dataclass(frozen=True)
class World:
    name: str
    make: Callable[[Path], None]
    """Fills the folder, which is the working directory."""
    commands: Sequence[str]
    """Words after `merge-nli`; each command finds the files of earlier ones."""
    quick: bool = True
    needs: tuple[Path, ...] = ()
    steps: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)
    """Name in the list of commands → function that writes further files at that point."""


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


SCORES: Final = (
    "score a.parquet {} --n-bootstrap 0", "score a.parquet {}", "score a.parquet {} --format json",
    "score a.parquet {} --n-bootstrap 0 --format json",
    "score b.jsonl {} --format json --n-bootstrap 300 --rng-seed 7",
    "score c.csv {} --n-bootstrap 0 --format json", "score c.csv {} --n-bootstrap 200",
    "score a.jsonl.gz {} --n-bootstrap 0", "score a-named.csv {} --n-bootstrap 0",
    "score shuffled.parquet {} --n-bootstrap 50 --format json",
    "score rounded.jsonl {} --n-bootstrap 0 --format json", "score perfect.parquet {}",
    "score parts/1.parquet parts/2.jsonl {} --n-bootstrap 100",
    "score parts/1.parquet parts/again.csv {} --n-bootstrap 0",
    "score parts/1.parquet parts/2.jsonl parts/again.csv {} --n-bootstrap 0",
    "score parts/1.parquet {} --n-bootstrap 0",
    "score parts/1.parquet {} --n-bootstrap 0 --allow-missing",
    "score missing.parquet {} --n-bootstrap 0",
    "score missing.parquet {} --allow-missing --format json --n-bootstrap 20",
    "score missing.parquet {} --allow-missing --n-bootstrap 0",
    "score variants.jsonl {} --n-bootstrap 0",
    "score variants.jsonl {} --n-bootstrap 0 --allow-missing",
    "score seeds.jsonl {} --n-bootstrap 0", "score seeds.jsonl {} --n-bootstrap 0 --allow-missing",
    "score a.parquet {} --by mlms --by premise_mlms --by hypothesis_mlms --n-bootstrap 100",
    "score a.parquet {} --by mlms --by original --by replacement --n-bootstrap 0 --format json",
    "score a.parquet {} --by colour --n-bootstrap 0",
    "score a.parquet {} --cluster premise --n-bootstrap 200 --format json",
    "score a.parquet {} --cluster premise --by mlms --n-bootstrap 200",
    "score a.parquet {} --cluster label",
    "score a.parquet {} --ct 50 --n-bootstrap 100 --figure core_index --figure agreement",
    "score a.parquet {} --n-bootstrap 0 --per-seed a-seeds.parquet",
    "score a.parquet {} --n-bootstrap 0 --per-seed a-seeds.csv",
    "score a.parquet {} --n-bootstrap 0 --per-seed a-seeds.jsonl",
    "score missing.parquet {} --n-bootstrap 0 --per-seed missing.csv --allow-missing",
    "score a.parquet {} --n-bootstrap 0 --per-seed a-seeds.csv",
    "score a.parquet {} --fail-under seed_variant_accuracy=0.99 --fail-over variant_accuracy=0.5",
    "score a.parquet --n-bootstrap 0", "score c.csv --format json --n-bootstrap 100",
    "score missing.parquet --n-bootstrap 0",
    "score parts/1.parquet parts/again.csv --n-bootstrap 0",
)  # fmt: skip
"""`score` with its options; {} is the dataset."""

COMPARISONS: Final = (
    "compare a.parquet b.jsonl {}", "compare a.parquet b.jsonl c.csv {} --format json",
    "compare first=a.parquet second=c.csv {} --cluster premise --ct 60 --n-bootstrap 200",
    "compare a=parts/1.parquet a=parts/2.jsonl b=b.jsonl {} --format json --n-bootstrap 50",
    "compare a.parquet missing.parquet {} --n-bootstrap 20",
    "compare a.parquet m=missing.parquet {} --n-bootstrap 20 --allow-missing",
    "compare a.parquet {} --n-bootstrap 20", "compare a.parquet a.parquet {} --n-bootstrap 20",
    "report a.parquet b.jsonl {} --n-bootstrap 200 --out r.html",
    "report a.parquet b.jsonl c.csv {} --n-bootstrap 20 --out r.md",
    "report a.parquet b.jsonl {} --n-bootstrap 50 --out r.tex --cluster premise",
    "report a.parquet b.jsonl {} --n-bootstrap 50 --out r.json",
    "report c.csv {} --n-bootstrap 0 --out few.html --max-variants 40",
    "report a.parquet m=missing.parquet {} --n-bootstrap 0 --out m.html --allow-missing",
    "report a=parts/1.parquet a=parts/2.jsonl {} --n-bootstrap 0 --out parts.html",
)  # fmt: skip

ANALYSES: Final = (
    "analyse accuracy a.parquet b.jsonl c.csv {}",
    "analyse accuracy a.parquet b.jsonl {} --format json --group model-a=S --group b=M",
    "analyse curves a.parquet b.jsonl {} --n-bootstrap 50 --format csv",
    "analyse curves a.parquet b.jsonl {} --out curves.svg",
    "analyse matching a.parquet b.jsonl {} --format latex",
    "analyse matching a.parquet b.jsonl {} --format json",
    "analyse classes a.parquet b.jsonl {} --config snli --n-bootstrap 50",
    "analyse classes a.parquet {} --config snli --n-bootstrap 0 --format json",
    "analyse mlms a.parquet {} --config snli --n-bootstrap 20 --mlm-map mlms.toml",
    "analyse origins a.parquet b.jsonl {} --config snli --n-bootstrap 20",
    "analyse origins a.parquet {} --config snli --n-bootstrap 0 --format json",
    "analyse hardest a.parquet b.jsonl c.csv {} --top 5",
    "analyse hardest a.parquet {} --format csv --below 0.6",
    "analyse first-answers a.parquet b.jsonl {}",
    "analyse first-answers a.parquet b.jsonl {} --format json",
    "analyse fooling a.parquet b.jsonl {} --n-bootstrap 50",
    "analyse fooling a.parquet c.csv {} --n-bootstrap 0 --format json",
    "analyse sizes a.parquet b.jsonl {} --size model-a=110M --size b=340M --n-bootstrap 0",
    "analyse shift a.parquet b.jsonl {}", "analyse shift a.parquet b.jsonl {} --format json",
    "analyse shift c.csv {}", "analyse confidence a.parquet b.jsonl {} --format markdown",
    "analyse confidence a.parquet {} --format json", "analyse overlap {}",
    "analyse overlap a.parquet {} --format json",
    "analyse signals a.parquet b.jsonl {} --n-bootstrap 20",
    "analyse signals {} --format json --n-bootstrap 0",
    "analyse phenomena a.parquet b.jsonl {} --n-bootstrap 20", "analyse composition {}",
    "analyse composition {} --format json", "analyse provenance {}",
    "analyse provenance {} --format json", "analyse stability a.parquet {} --draws 20 --seeds 20",
    "analyse stability {} --format json --draws 10 --seeds 10",
    "analyse ablations a.parquet b=b.jsonl@merge-nli {} --config snli_nouns",
    "analyse fooling a.parquet m=missing.parquet {} --n-bootstrap 0 --allow-missing",
    "analyse curves missing.parquet {}",
)  # fmt: skip

DATASETS: Final = (
    "check {folder}",
    "check {folder} --format json",
    "show {folder} --n 3",
    "show {folder} --format json --n 2",
    "export croissant {folder}",
    "export jsonl {folder} --out out-jsonl",
    "export csv {folder} --out out-csv",
    "export mini-datasets {folder} --out out-mini",
    "export lm-eval {folder} --shots none --out out-lm-eval",
    "export inspect {folder} --shots none --out out-inspect",
    "publish dataset {folder} --repo somebody/merge-nli",
    "publish dataset {folder} --repo somebody/merge-nli --format json",
    "publish results a.parquet --dataset {folder} --dataset-repo somebody/merge-nli "
    "--repo somebody/model",
    "publish results a.parquet --dataset {folder} --dataset-repo somebody/merge-nli "
    "--repo somebody/model --format json --date 2025-10-28",
    "publish results missing.parquet --dataset {folder} --dataset-repo somebody/merge-nli "
    "--repo somebody/model",
    "baseline majority --dataset {folder} --out majority.parquet",
    "baseline majority --dataset {folder} --out majority.jsonl --format json",
    "baseline majority --dataset {folder} --out some.jsonl --limit-seeds 5",
    "score majority.parquet --dataset {folder} --n-bootstrap 0",
)


def _all(dataset: str, *groups: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        item.format(f"--dataset {dataset}", folder=dataset) for group in groups for item in group
    )


# --- the demo ---

DEMO: Final = "--recipe demo --limit 24 --set min_replacements=10 --set variants_per_class=10"


def make_demo(folder: Path) -> None:
    for name in ("judged_variants", "judged_options"):
        shutil.copytree(TESTS / "data" / name, folder / name)
    shutil.copytree(ROOT / "merge_metric/demo/bert-tiny-nli", folder / "nli")
    shutil.copy(ROOT / "generation/demo/problems.jsonl", folder)


DEMO_COMMANDS: Final = (
    f"generate {DEMO} --run runs/demo --out merge-nli",
    "build --run runs/demo --out merge-nli --overwrite --with-column quality",
    "build --run runs/demo --set subsamples=2 --out merge-nli --overwrite --format json",
    "predict --model nli --dataset merge-nli --out a.parquet",
    "predict --model nli --dataset merge-nli --out b.jsonl --limit-seeds 4",
    "predict --model nli --dataset merge-nli --out a.parquet --format json",
    "baseline hypothesis-only --train problems.jsonl --dataset merge-nli --out c.parquet",
    "score a.parquet --dataset merge-nli",
    "score a.parquet --dataset merge-nli --format json",
    "score c.parquet --dataset merge-nli --by mlms --n-bootstrap 100",
    "score b.jsonl --dataset merge-nli --n-bootstrap 0",
    "score b.jsonl --dataset merge-nli --n-bootstrap 0 --allow-missing",
    "score a.parquet --n-bootstrap 0",
    "compare a.parquet c.parquet --dataset merge-nli",
    "report a.parquet c.parquet --dataset merge-nli --out report.html --n-bootstrap 100",
    "report a.parquet c.parquet --dataset merge-nli --out report.md --n-bootstrap 100",
    "check merge-nli",
    "analyse seeds --run runs/demo",
    "analyse seeds --run runs/demo --format json",
    "analyse filters --run runs/demo",
    "analyse filters --run runs/demo --format json",
    "analyse composition --run runs/demo",
    "analyse provenance --run runs/demo",
    "analyse signals a.parquet --dataset merge-nli --n-bootstrap 20",
    "show merge-nli --n 2",
    "publish metric --repo somebody/seed_variant_accuracy",
    "publish dataset merge-nli --repo somebody/merge-nli",
    "export croissant merge-nli --overwrite",
    "agreement judged_variants",
    "agreement judged_variants --format json --n-bootstrap 100",
    "agreement judged_options --format latex",
    "agreement judged_variants judged_options --format markdown --n-bootstrap 0",
    "annotate merge-nli --out study --per-class 3 --format json",
    "models show nli",
)

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


MADE_COMMANDS: Final = (
    *_all("merge-nli", SCORES, COMPARISONS, ANALYSES, DATASETS),
    "score a.parquet --dataset merge-nli --config snli_nouns --n-bootstrap 100",
    "score a.parquet --dataset merge-nli --config snli_paraphrases --format json",
    "score a.parquet --dataset merge-nli --config snli_paraphrases --config snli "
    "--n-bootstrap 0 --per-seed p.csv",
    "score a.parquet --dataset merge-nli --config snli_adverbs",
    "compare a.parquet b.jsonl --dataset merge-nli --config snli_paraphrases",
    "analyse fooling a.parquet b.jsonl --dataset merge-nli --config snli_paraphrases",
    "report a.parquet b.jsonl --dataset merge-nli --config snli_paraphrases --config snli "
    "--out p.html --n-bootstrap 20",
    "baseline majority --dataset merge-nli --config snli_verbs --out verbs.jsonl",
    "show merge-nli --config snli_paraphrases --n 2 --variants 3",
)

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


FORMAT_COMMANDS: Final = (
    "generate --source pairs --data pairs.jsonl --recipe demo --limit 20 --fields first,second "
    "--labels different,paraphrase --run runs/pairs --out merge-nli",
    "generate --source reading --data reading.jsonl --recipe demo --limit 20 "
    "--fields context,question,answer --labels incorrect,correct "
    "--field-column context=passage --shared-fields context,question "
    "--set min_replacements=8 --set variants_per_class=8 --run runs/reading --out merge-nli",
    "(answers)",
    "check merge-nli",
    "baseline majority --dataset merge-nli --config pairs --out majority.parquet",
    *(
        item.format(source)
        for source in ("pairs", "reading")
        for item in (
            "score {0}/a.parquet --dataset merge-nli",
            "score {0}/a.jsonl --dataset merge-nli --format json --n-bootstrap 100",
            "score {0}/a.parquet --n-bootstrap 0",
            "score {0}/wrong.csv --dataset merge-nli",
            "score {0}/a.parquet --dataset merge-nli --n-bootstrap 0 --per-seed {0}/seeds.csv",
            "compare {0}/a.parquet {0}/b.jsonl --dataset merge-nli --n-bootstrap 100",
            "report {0}/a.parquet {0}/b.jsonl --dataset merge-nli --out {0}/r.html "
            "--n-bootstrap 20",
            "report {0}/a.parquet {0}/b.jsonl --dataset merge-nli --out {0}/r.json "
            "--n-bootstrap 20",
            "analyse curves {0}/a.parquet {0}/b.jsonl --dataset merge-nli --format csv",
            "analyse fooling {0}/a.parquet {0}/b.jsonl --dataset merge-nli --n-bootstrap 0",
            "analyse shift {0}/a.parquet --dataset merge-nli",
        )
    ),
    "score pairs/a.parquet reading/a.parquet --dataset merge-nli --n-bootstrap 0",
    "compare pairs/a.parquet reading/b.jsonl --dataset merge-nli",
    "export croissant merge-nli",
    "export lm-eval merge-nli --out tasks",
    "publish dataset merge-nli --repo somebody/merge-nli",
)

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
_WRONG: Final = tuple(name for name, _ in wrong_files([]))
_BROKEN: Final = (
    "empty.jsonl", "empty.csv", "words.txt", "fake.parquet", "cut.jsonl", "array.jsonl",
    "blank.jsonl", "nan.jsonl", "semicolon.csv", "short-row.csv", "bom.csv", "latin1.csv",
    "merge-nli", "nowhere.parquet", "nowhere.csv",
)  # fmt: skip

MESSAGE_COMMANDS: Final = (
    "score good.parquet --dataset merge-nli --n-bootstrap 0",
    "score good.parquet --dataset mnli --n-bootstrap 0",
    "predict --model nowhere --dataset merge-nli --out x.parquet",
    *(
        f"score {name}{suffix} --dataset merge-nli --n-bootstrap 0"
        for name in _WRONG
        for suffix in _SUFFIXES
    ),
    *(f"score {name}.csv --n-bootstrap 0" for name in _WRONG),
    *(f"score {name} --dataset merge-nli --n-bootstrap 0" for name in (*_BROKEN, *_PACKED)),
    *(
        f"{command} {name}.parquet --dataset merge-nli --n-bootstrap {n}"
        for name in _WRONG
        for command, n in (("compare good.parquet", 1), ("report good.parquet", 0))
    ),
    *(
        f"score good.parquet {name}.jsonl --dataset merge-nli --n-bootstrap 0"
        for name in ("null-prediction", "twice", "unknown-id")
    ),
)

# --- SNLI, by real models ---


def make_snli(folder: Path) -> None:
    for name in ("bert-tiny-mlm", "minilm-l6-mlm", "bert-tiny-nli", "minilm-l6-nli"):
        (folder / name).symlink_to(SHARED / "models" / name)
    (folder / "snli_test.jsonl").symlink_to(SHARED / "data" / "snli_test.jsonl")


_SNLI: Final = "--dataset merge-nli"
SNLI_COMMANDS: Final = (
    "generate --source snli --data snli_test.jsonl --limit 80 --mlm bert-tiny-mlm "
    "--mlm minilm-l6-mlm --set suggestions_per_occurrence=80 --set min_replacements=6 "
    "--set variants_per_class=6 --set subsamples=3 --run runs/snli --out merge-nli",
    "check merge-nli",
    "predict --model bert-tiny-nli --dataset merge-nli --out tiny.parquet",
    "predict --model minilm-l6-nli --dataset merge-nli --out minilm.parquet",
    f"score tiny.parquet {_SNLI}",
    f"score minilm.parquet {_SNLI} --format json",
    f"score minilm.parquet {_SNLI} --cluster premise --by mlms",
    f"compare tiny.parquet minilm.parquet {_SNLI}",
    f"compare tiny.parquet minilm.parquet {_SNLI} --format json",
    f"report tiny.parquet minilm.parquet {_SNLI} --out report.html",
    f"analyse classes tiny.parquet minilm.parquet {_SNLI} --n-bootstrap 100",
    f"analyse curves tiny.parquet minilm.parquet {_SNLI} --format csv",
    f"analyse origins tiny.parquet minilm.parquet {_SNLI} --n-bootstrap 100",
    f"analyse shift tiny.parquet minilm.parquet {_SNLI}",
    f"analyse sizes tiny.parquet minilm.parquet {_SNLI} --n-bootstrap 0",
    f"analyse overlap tiny.parquet {_SNLI}",
    f"analyse signals tiny.parquet minilm.parquet {_SNLI} --n-bootstrap 20",
    f"analyse provenance {_SNLI}",
)

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


MILLION_COMMANDS: Final = (
    "check merge-nli", "score a.parquet --dataset merge-nli --n-bootstrap 0 --format json",
    "score a.parquet --dataset merge-nli", "score b.parquet --dataset merge-nli --n-bootstrap 0",
    "score missing.parquet --dataset merge-nli --n-bootstrap 0",
    "score missing.parquet --dataset merge-nli --n-bootstrap 0 --allow-missing",
    "score twice.parquet --dataset merge-nli --n-bootstrap 0",
    "compare a.parquet b.parquet --dataset merge-nli --n-bootstrap 100",
)  # fmt: skip

WORLDS: Final = {
    world.name: world
    for world in (
        World("demo", make_demo, DEMO_COMMANDS),
        World("made", make_made, MADE_COMMANDS),
        World("formats", make_formats, FORMAT_COMMANDS, steps={"(answers)": format_answers}),
        World("messages", make_messages, MESSAGE_COMMANDS),
        World("snli", make_snli, SNLI_COMMANDS, quick=False, needs=(SHARED,)),
        World("million", make_million, MILLION_COMMANDS, quick=False),
    )
}
