import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.dataset_files import read_rows
from helpers.paraphrase_run import paraphrase_id, rows_of, write_paraphrase_run

from merge_dataset.card import render
from merge_dataset.checks import check_dataset
from merge_dataset.checks.rules import CHECKS, Finding, broken, check, rules_of
from merge_dataset.checks.variants import substitution_findings
from merge_dataset.engine import connect
from merge_dataset.export import export_dataset
from merge_dataset.layout import CARD
from merge_dataset.schema import NLI, arrow_schema

Rows = list[dict[str, Any]]
Edit = Callable[[Path, Callable[[Rows], object]], None]

NOUNS = "snli/nouns/variants.parquet"
NOUN_SEEDS = "snli/nouns/seeds.parquet"
SEEDS = "snli/seeds.parquet"
FIRST = "snli:1/noun/dog/cat"
"""First row of NOUNS: A girl and a small cat run. / A girl has a small cat."""


def put(column: str, value: object) -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        rows[0][column] = value

    return change


@pytest.mark.parametrize(
    ("file", "change", "problem"),
    [
        (NOUNS, put("label", 0), "the label of the seed; got 0"),
        (NOUNS, put("seed_id", "snli:9"), "every variant in the seeds split; got 'snli:9'"),
        (NOUNS, put("hypothesis", "The girl has a small cat."),
         "the replacement at hypothesis_spans; got ['l c'] instead of ['cat']"),
        (NOUNS, lambda rows: rows[0].update(replacement="dog",
         premise="A girl and a small dog run.", hypothesis="A girl has a small dog."),
         "original and replacement to differ; got 'dog'"),
        (NOUNS, put("word_class", "verb"), "word_class to be that of the files; got 'verb'"),
        (NOUNS, put("subsamples", [0, 3]), "ascending, each once; got [0, 3]"),
        (NOUNS, put("hypothesis_pll_change", None), "or neither; got -0.0, None"),
        (NOUNS, put("replacement", None), "a value for replacement; got None"),
        ("snli/adjectives/variants.parquet", put("variant_id", FIRST),
         f"ids that occur once; got '{FIRST}' 2 times"),
        (NOUNS, lambda rows: rows.__delitem__(slice(4, 6)),
         "every seed to have variants; got 'snli:2' (snli:2)"),
        (SEEDS, lambda rows: rows.append(rows[0] | {"seed_id": "snli:4", "variant_id": "snli:4"}),
         "every seed to have variants; got 'snli:4' (snli:4)"),
        (NOUN_SEEDS, lambda rows: rows.append(rows[0]), "ids that occur once; got 'snli:1' 2"),
        (SEEDS, lambda rows: rows.pop(), "every seed among the seeds of all classes; got 'snli:3'"),
        (NOUN_SEEDS, put("annotator_labels", [2]), "the seeds of all classes; got [2] instead of"),
        (SEEDS, put("variant_id", "x"), "variant_id to equal seed_id in seeds; got 'x' (x)"),
        (SEEDS, put("premise_spans", [[0, 1]]), "to be empty in seeds; got [[0, 1]] (snli:1)"),
        (SEEDS, put("label", 3), "a label of 0 to 2; got 3 (snli:1)"),
    ],
)  # fmt: skip
def test_wrong_rows(
    dataset: Path, edit: Edit, file: str, change: Callable[[Rows], object], problem: str
) -> None:
    edit(dataset / file, change)
    assert any(problem in line for line in check_dataset(dataset))


VARIANT: dict[str, Any] = {
    "premise": "A boy and a boy.", "hypothesis": "A boy.", "original": "girl", "replacement": "boy",
    "premise_spans": [[2, 5], [12, 15]], "hypothesis_spans": [[2, 5]], "mlms": ["a", "b"],
    "premise_mlms": ["b"], "hypothesis_mlms": ["a", "b"], "mlm_count": 2,
    "premise_pll_change": None, "hypothesis_pll_change": None, "subsamples": [0, 9],
}  # fmt: skip
SEED = {"premise": "A girl and a girl.", "hypothesis": "A girl."}
ONCE = VARIANT | {"premise": "A boy 🐶 and a dog.", "premise_spans": [[2, 5]]}
SEED_OF_ONCE = SEED | {"premise": "A girl 🐶 and a dog."}

SEVERAL: dict[str, Any] = {
    **VARIANT,
    "premise": "An owl and an ape.",
    "hypothesis": "A cat, an owl.",
    "original": "girl boy A a",
    "replacement": "owl ape An an",
    "premise_spans": [[0, 2], [3, 6], [11, 13], [14, 17]],
    "hypothesis_spans": [[7, 9], [10, 13]],
}
SEED_OF_SEVERAL = {"premise": "A girl and a boy.", "hypothesis": "A cat, a girl."}


def findings(rows: Rows, sharing: tuple[str, ...] = NLI.fields) -> list[tuple[str, str]]:
    """Find what is wrong with substitutions, in rows with their seeds and numbers as ids."""
    types = {"has seed": pa.bool_(), "row number": pa.int64(), "files of a class": pa.string()}
    types |= {f"seed {name}": pa.string() for name in SEED}
    schema = pa.schema([*arrow_schema(), *types.items()])
    numbered = [
        {"has seed": True, **row, "variant_id": str(n), "row number": n}
        for n, row in enumerate(rows)
    ]
    with connect() as connection:
        connection.register("given", pa.Table.from_pylist(numbered, schema))
        connection.execute("CREATE TEMP TABLE paired AS FROM given")
        wrong = [
            *substitution_findings(connection, NLI, sharing),
            *broken(connection, "paired", rules_of("snli", NLI, {"subsamples": 10})["lists"]),
        ]
        return [(finding.expected, finding.got) for finding in wrong]


def with_seed(variant: dict[str, Any], seed: dict[str, str]) -> dict[str, Any]:
    return variant | {f"seed {name}": text for name, text in seed.items()}


def is_wrong(row: dict[str, Any], sharing: tuple[str, ...]) -> bool:
    """Look at a row again, in Python."""
    old, new = (row["original"] or "").split(" "), (row["replacement"] or "").split(" ")
    if len(old) != len(new) or len({*new}) < len(new):
        return True
    becomes, used = dict(zip(new, old, strict=True)), set()
    for field in NLI.fields:
        text, spans = row[field] or "", row[f"{field}_spans"] or []
        if not spans and field in sharing:
            return True
        if any(not span or len(span) != 2 or None in span for span in spans):
            return True
        offsets = [0, *(offset for span in spans for offset in span), len(text)]
        if offsets != sorted(offsets) or any(start == end for start, end in spans):
            return True
        words = {text[start:end] for start, end in spans}
        if words - {*new}:
            return True
        for start, end in reversed(spans):
            text = text[:start] + becomes[text[start:end]] + text[end:]
        if row["has seed"] and text != row[f"seed {field}"]:
            return True
        used |= words
    if len(new) > 1 and ({*new} - used or any(a == b for a, b in becomes.items())):
        return True
    mlms = [mlm for name in NLI.mlms for mlm in row[name] or ()]
    counts = row["mlm_count"] == len({*mlms}) and None not in mlms
    if not counts or row["mlms"] != sorted({*mlms}):
        return True
    known = [row[f"{field}_pll_change"] is not None for field in NLI.fields]
    if any(known) and known != [bool(row[f"{field}_spans"]) for field in NLI.fields]:
        return True
    drawn = row["subsamples"]
    return not drawn or None in drawn or drawn != sorted({*drawn} & {*range(10)})


def test_rules_find_the_rows_in_which_python_finds_something() -> None:
    rng, sharing = random.Random(0), ("premise",)
    spans = [None, [], [[2, 5]], [[12, 15]], [[2, 5], [12, 15]], [[12, 15], [2, 5]], [[0, 1]]]
    spans += [[[2, 5, 6]], [[5, 2]], [[2, None]], [None], [[2, 5], [5, 9]], [[-3, 5]], [[2, 99]]]
    spans += [[[2]], [[2, 2]], [[2, 5], [4, 7]], [[14, 17]], [[None, 5]]]
    names = [None, [], ["a"], ["b"], ["a", "b"], ["b", "a"], ["a", "a"], ["a", None]]
    values: dict[str, list[Any]] = {
        "premise": ["A boy and a boy.", "A boy and a girl.", "𝔸 boy 🐶nd a boy.", "", None],
        "hypothesis": ["A boy.", "boy", None],
        "original": ["girl", "girls", "boy", "girl A", "girl boy A an", "", None],
        "replacement": ["boy", "girl", "boy an", "owl ape An cat", None],
        **dict.fromkeys(["premise_spans", "hypothesis_spans"], spans),
        **dict.fromkeys(["mlms", "premise_mlms", "hypothesis_mlms"], names),
        "mlm_count": [0, 1, 2, None],
        "premise_pll_change": [None, -0.5],
        "hypothesis_pll_change": [None, -0.5],
        "subsamples": [None, [], [0], [9, 0], [0, 0], [-1], [10], [0, None]],
    }
    rows: Rows = []
    for number in range(2_000):
        good = ((VARIANT, SEED), (ONCE, SEED_OF_ONCE), (SEVERAL, SEED_OF_SEVERAL))[number % 3]
        changed = rng.sample(sorted(values), rng.randrange(4))
        row = with_seed(*good) | {name: rng.choice(values[name]) for name in changed}
        rows.append(row | {"has seed": rng.random() < 0.95})
    result = {int(got.rpartition("(")[2][:-1]) for _, got in findings(rows, sharing)}
    assert result == {number for number, row in enumerate(rows) if is_wrong(row, sharing)}
    assert 400 < len(result) < 1_600


def test_wrong_type(dataset: Path) -> None:
    """A column of another type is reported, and the rows are not checked."""
    table = pq.ParquetFile(dataset / NOUNS).read()
    place = table.schema.get_field_index("subsamples")
    drawn = table["subsamples"].cast(pa.list_(pa.int64()))
    pq.write_table(table.set_column(place, "subsamples", drawn), dataset / NOUNS)
    (problem,) = check_dataset(dataset)
    assert problem.startswith(f"{NOUNS}: expected the columns subsamples (list<")
    assert problem.endswith("int64>)")


def test_missing_extra_and_reordered_columns(dataset: Path) -> None:
    table = pq.ParquetFile(dataset / NOUNS).read()
    pq.write_table(table.drop_columns(["mlms"]), dataset / NOUNS)
    pq.write_table(table.append_column("extra", table["label"]), dataset / SEEDS)
    pq.write_table(table.select(table.schema.names[::-1]), dataset / NOUN_SEEDS)
    order, missing, extra = check_dataset(dataset)
    columns = ", ".join(arrow_schema().names)
    assert order.startswith(f"{NOUN_SEEDS}: expected the columns {columns}; got annotator_labels, ")
    assert missing.startswith(f"{NOUNS}: expected the columns mlms (list<")
    assert missing.endswith("of the contract; got a file without")
    assert extra == f"{SEEDS}: expected the columns {columns}; got {columns}, extra"


def test_metadata_of_datasets(dataset: Path) -> None:
    """The metadata key that breaks `datasets` 3 is reported."""
    table = pq.ParquetFile(dataset / NOUNS).read()
    pq.write_table(table.replace_schema_metadata({"huggingface": "{}"}), dataset / NOUNS)
    assert check_dataset(dataset) == [
        f"{NOUNS}: expected no `huggingface` metadata; got some, which datasets 3 cannot read"
    ]


def test_no_parquet(dataset: Path) -> None:
    (dataset / NOUNS).write_bytes(b"not a table")
    (problem,) = check_dataset(dataset)
    assert problem.startswith(f"{NOUNS}: expected a whole Parquet file; got ")


BROKEN = "README.md: expected text in UTF-8, with YAML between two lines of ---"


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (remove(SEEDS), f"{SEEDS}: expected a file, for the split seeds of snli; got none"),
        (remove(NOUNS),
         f"{NOUN_SEEDS}: expected every Parquet file to belong to a configuration; got one of "
         f"none"),
        (remove("README.md"), "README.md: expected a dataset card; got no such file"),
        (lambda folder: (folder / "merge-nli.py").touch(),
         "merge-nli.py: expected no script of the folder's name: datasets would refuse to load "
         "the folder; got one"),
        (lambda folder: (folder / f".mnli-m.{'0' * 32}.partial").mkdir(),
         f".mnli-m.{'0' * 32}.partial: expected no leftover of an interrupted export; got one; "
         "export again"),
        (lambda folder: (folder / "README.md").write_bytes(b"\xff\xfe"),
         f"{BROKEN}; got 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (lambda folder: (folder / "README.md").write_text("---\n- 1\n---\n"),
         f"{BROKEN}; got no YAML with keys (cannot convert dictionary update sequence element #0 "
         "to a sequence)"),
        (lambda folder: [shutil.rmtree(path) for path in sorted(folder.glob("snli/*/"))],
         "snli: expected a word class with variants.parquet; got none"),
    ],
)  # fmt: skip
def test_wrong_files(dataset: Path, change: Callable[[Path], object], problem: str) -> None:
    change(dataset)
    assert problem in check_dataset(dataset)


def test_wrong_provenance(dataset: Path) -> None:
    path = dataset / "snli/provenance.json"
    made = json.loads(path.read_text())
    path.write_text(json.dumps(made | {"source": "demo"}))
    assert check_dataset(dataset) == [
        "snli/provenance.json: expected the source 'snli'; got 'demo'"
    ]
    path.write_text("{}")
    (problem,) = check_dataset(dataset)
    assert "expected a record with source, config" in problem


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("| `snli_verbs` | 2 |", "| `snli_verbs` | 7 |",
         "README.md: expected the statistics of the data: ['| `snli_verbs` | 2 | 50.0 | 0.0 | "
         "50.0 | 3 | 1.5 | 2.0 |']; got others"),
        ("<!-- statistics -->", "",
         "README.md: expected the statistics of the data: ['<!-- statistics -->']; got others"),
        ("path: snli/verbs/seeds.parquet", "path: snli/verb/seeds.parquet",
         "README.md: expected `configs` in the YAML to be that of the data; got another for "
         "snli_verbs"),
    ],
)  # fmt: skip
def test_card_that_does_not_fit(dataset: Path, old: str, new: str, problem: str) -> None:
    card = dataset / "README.md"
    assert old in card.read_text()
    card.write_text(card.read_text().replace(old, new, 1))
    assert check_dataset(dataset) == [problem]


def test_no_dataset(tmp_path: Path) -> None:
    """A folder without a dataset, or a missing folder, is reported as the only problem."""
    (problem,) = check_dataset(tmp_path)
    assert "found none with <source>/provenance.json" in problem
    (problem,) = check_dataset(tmp_path / "nowhere")
    text = "nowhere: expected a dataset folder or a registered name, found no folder there"
    assert problem.endswith(text)


def test_variants_that_cannot_be_told_from_other_rows(
    dataset: Path, edit: Callable[..., None]
) -> None:
    seeds = {row["seed_id"]: row for row in read_rows(dataset / SEEDS)}
    first, *_ = read_rows(dataset / NOUNS)
    other = next(seed for name, seed in seeds.items() if name != first["seed_id"])

    def spoil(rows: Rows) -> None:
        rows[0].update(premise=other["premise"], hypothesis=other["hypothesis"])
        rows[1]["variant_id"] = other["seed_id"]
        rows[2].update(premise=rows[1]["premise"], hypothesis=rows[1]["hypothesis"])

    edit(dataset / NOUNS, spoil)
    result = "\n".join(check_dataset(dataset))
    texts = f"those of {other['seed_id']} ({first['variant_id']})"
    assert f"expected other texts than those of another seed; got {texts}" in result
    assert f"expected another id than any seed's; got '{other['seed_id']}'" in result
    assert "expected texts that stand in one variant; got " in result


ROOT = Path(__file__).parents[3]


def test_how_to_add_a_check(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(@check.*?)```", text, re.DOTALL)
    monkeypatch.setitem(CHECKS, "contents", [*CHECKS["contents"]])  # put back afterwards
    names = {"CARD": CARD, "Finding": Finding, "Iterator": Iterator, "Path": Path, "check": check}
    exec(code, names)
    assert check_dataset(dataset) == []
    card = dataset / CARD
    card.write_text(card.read_text(encoding="utf-8") + "\nRead this!\n", encoding="utf-8")
    (problem,) = check_dataset(dataset)
    assert problem == "README.md: expected no exclamation marks; got Read this!"


Change = Callable[[Rows], object]

PARAPHRASED = "snli_paraphrases/seeds.parquet"
PARAPHRASES = "snli_paraphrases/variants.parquet"

LAST = rows_of()[1][-1]
"""Nobody makes a sound. → It is all quiet."""
ID = LAST["variant_id"]


def put_last(**values: object) -> Change:
    return lambda rows: rows[-1].update(values)


def rewrite(text: str, **values: object) -> Change:
    """Make the last row a correct paraphrase with another text, except for some columns."""
    return put_last(
        **{
            "variant_id": paraphrase_id("snli:4", text),
            "hypothesis": text,
            "replacement": text,
            "hypothesis_spans": [[0, len(text)]],
        }
        | values
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (put_last(premise="Two girls sing."), f"the seed's premise; got 'Two girls sing.' ({ID})"),
        (put_last(original="Nobody sings."),
         f"original to be the seed's hypothesis; got 'Nobody sings.' ({ID})"),
        (put_last(replacement="quiet"), f"replacement to be the hypothesis; got 'quiet' ({ID})"),
        (put_last(hypothesis_spans=[[0, 5]]),
         f"hypothesis_spans to cover the whole hypothesis; got [[0, 5]], not [[0, 16]] ({ID})"),
        (put_last(mlms=["a/bert"]), f"mlms to be empty in paraphrases; got ['a/bert'] ({ID})"),
        (put_last(log_odds=0.5), f"log_odds to be null in paraphrases; got 0.5 ({ID})"),
        (put_last(subsamples=[0, 1]), f"subsamples to be [0] in paraphrases; got [0, 1] ({ID})"),
        (put_last(variant_id="snli:4/paraphrase/0"),
         "variant_id to be the seed's, the class and a digest of the hypothesis; got other than "
         f"{ID.removeprefix('snli:4')} (snli:4/paraphrase/0)"),
        (put_last(annotator_labels=[2]), f"the annotator_labels of the seed; got [2] ({ID})"),
        (rewrite("\x0b"), r"a hypothesis with words in it; got '\x0b' ("),
        (rewrite("Nobody makes a sound."),
         "another hypothesis than the seed's; got 'Nobody makes a sound.' ("),
        (lambda rows: rows.append(rows[-1] | {"variant_id": "another"}),
         "each paraphrase of a seed once; got 'It is all quiet.' 2 times (snli:4)"),
    ],
)  # fmt: skip
def test_wrong_paraphrases(
    paraphrases: Path, edit: Callable[..., None], change: Change, problem: str
) -> None:
    edit(paraphrases / PARAPHRASES, change)
    (paraphrases / "README.md").write_text(render(paraphrases))
    assert any(f"{PARAPHRASES}: expected {problem}" in line for line in check_dataset(paraphrases))


@pytest.mark.slow
def test_both_collections_have_the_same_problem(
    dataset: Path, edit: Callable[..., None], tmp_path: Path
) -> None:
    """A seed with two texts or labels could not have one prediction."""
    export_dataset(write_paraphrase_run(tmp_path / "paraphrase-run"), dataset)
    assert check_dataset(dataset) == []
    for file in (PARAPHRASED, PARAPHRASES):
        edit(
            dataset / file,
            lambda rows: [r.update(label=2) for r in rows if r["seed_id"] == "snli:1"],
        )
    (dataset / "README.md").write_text(render(dataset))
    assert check_dataset(dataset) == [
        f"{PARAPHRASED}: expected label as in snli/seeds.parquet; got 2 instead of 1 (snli:1)"
    ]


def test_kinds_of_provenances(paraphrases: Path, dataset: Path) -> None:
    path = paraphrases / "snli_paraphrases/provenance.json"
    made = json.loads(path.read_text())
    shutil.copy(dataset / "snli/provenance.json", path)
    assert (
        "snli_paraphrases/provenance.json: expected the kind of snli_paraphrases; got replacements"
        in check_dataset(paraphrases)
    )
    path.write_text(json.dumps(made))
    shutil.copy(path, dataset / "snli/provenance.json")
    assert "snli/provenance.json: expected the kind of snli; got paraphrases" in check_dataset(
        dataset
    )
