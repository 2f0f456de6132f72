"""Typical mistakes on the command line, and their messages; `make mistakes` records them."""

import json
import re
import shlex
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from faults import small_world
from generation.config import bundled_path
from merge_dataset.annotation.answers import Answer, append
from merge_dataset.files import read_text, write_text
from merge_metric.demo import MODEL

MISTAKES = Path(__file__).with_name("mistakes.toml")


@dataclass(frozen=True)
class Mistake:
    what: str
    command: str
    """Words after `merge-nli`, separated by spaces."""
    exit: int = 2
    message: str = ""
    """Stderr from the error on, the folder as …; without an error, the first lines of stdout."""


def recorded() -> list[Mistake]:
    return [Mistake(**each) for each in tomllib.loads(read_text(MISTAKES))["mistake"]]


def write_files(folder: Path) -> None:
    with chdir(folder):
        shutil.copytree(MODEL, "nli")
        shutil.copytree(bundled_path("demo/bert-tiny-mlm"), "mlm")
        Path("empty").mkdir()
        texts = _texts() | _predictions() | _answers()
        for name, text in texts.items():
            Path(name).write_text(text, encoding="utf-8", newline="")
        Path("latin1.csv").write_bytes(_table(",", "Ein Mädchen läuft.").encode("latin-1"))
        Path("utf16.csv").write_bytes(_table(",").encode("utf-16"))
        Path("table.xlsx").write_bytes(b"PK\x03\x04 and so on")


def _table(delimiter: str, premise: str = "A girl runs.", label: str = "neutral") -> str:
    rows = [("id", "premise", "hypothesis", "label"), ("1", premise, "She runs.", label)]
    return "".join(delimiter.join(row) + "\n" for row in rows)


def _texts() -> dict[str, str]:
    good = json.dumps(small_world.ROWS[0])
    other = [{**small_world.ROWS[0], "pairID": "1", **change} for change in (
        {"sentence2": 7}, {"sentence2": " "}, {"pairID": "1/noun/boy/man"},
    )]  # fmt: skip
    number, empty, variant = (f"{good}\n{json.dumps(row)}\n" for row in other)
    return {
        "chapter.tex": "Call me Ishmael.\n", "comma.csv": _table(",", "A girl, who runs."),
        "notes.txt": "Call Ann about the figures.\n",
        "odd.csv": "id,text_a,text_b,label\n1,A girl runs.,She runs.,neutral\n",
        "semicolon.csv": _table(";"), "words.csv": _table(",", label="ja"),
        "numbers.csv": _table(",", label="3"),
        "questions.jsonl": '{"passage": "It is wet.", "question": "Is it?", "label": "yes"}\n',
        "number-text.jsonl": number, "no-text.jsonl": empty, "variant-id.jsonl": variant,
        "cut.jsonl": f"{good}\n{good[:50]}",
        "unlabelled.jsonl": json.dumps({**small_world.ROWS[0], "gold_label": "-"}) + "\n",
    }  # fmt: skip


def _predictions() -> dict[str, str]:
    lines = [json.loads(line) for line in read_text(Path("b.jsonl")).splitlines()]
    for line in lines:
        del line["crc32"]
    names = ("Folgerung", "neutral", "Widerspruch")

    def as_lines(rows: Sequence[object]) -> str:
        return "".join(json.dumps(row) + "\n" for row in rows)

    def changed(**change: object) -> str:
        return as_lines([lines[0], {**lines[1], **change}, *lines[2:]])

    from_one = [f"{r['variant_id']},{r['seed_id']},{r['label'] + 1},{r['prediction'] + 1}\n"
                for r in lines]  # fmt: skip
    half = lines[: len(lines) // 2]
    return {
        "half.jsonl": as_lines(half),
        "variants-only.jsonl": as_lines([r for r in lines if r["variant_id"] != r["seed_id"]]),
        "other.jsonl": as_lines([{**r, "variant_id": f"x{r['variant_id']}"} for r in lines]),
        "german.jsonl": as_lines([{**r, "prediction": names[r["prediction"]],
                                   "label": names[r["label"]]} for r in lines]),
        "null.jsonl": changed(label=None),
        "twice.jsonl": as_lines([*lines, lines[5]]),
        "logits.jsonl": changed(probabilities=[2.5, -1.0, 0.3]),
        "two.jsonl": changed(probabilities=[0.4, 0.6]),
        "array.jsonl": json.dumps(lines[:3]),
        "pred.csv": "id,pred\n1,neutral\n",
        "empty.jsonl": "",
        "empty.csv": "variant_id,seed_id,label,prediction\n",
        "fake.parquet": "variant_id,seed_id,label,prediction\n",
        "gold.jsonl": changed(label=(lines[1]["label"] + 1) % 3),
        "from-one.csv": "variant_id,seed_id,label,prediction\n" + "".join(from_one),
        "floats.jsonl": as_lines([{**r, "prediction": float(r["prediction"])} for r in lines]),
    }  # fmt: skip


def _answers() -> dict[str, str]:
    header, first, *rest = read_text(Path("answers.csv")).splitlines(keepends=True)
    name = first.split(",")[1]
    answers = Path("answers/ann.jsonl")
    append(answers, [Answer("demo:1/noun/dog/cat", 4, 5), Answer("demo:1/noun/dog/cow", 2, 2)])
    session = read_text(answers)
    shutil.rmtree(answers.parent)
    return {
        "ann.jsonl": "".join(session.splitlines(keepends=True)[:-1]),
        "renamed.jsonl": session,
        "nobody.csv": f"{header}{first.replace('ann', '', 1)}",
        "nameless.csv": header.partition(",")[2] + first.partition(",")[2],
        "six.csv": f"{header}ann,{name},6,1,\n",
        "foreign.csv": f"{header}ann,snli:1/noun/dog/cat,4,4,\n",
        "cut.csv": (header + first + "".join(rest))[:-9],
        "contradicting.csv": f"{header}ann,{name},1,1,\nann,{name},5,5,\n",
    }


def tried(mistakes: Sequence[Mistake], folder: Path) -> Iterator[Mistake]:
    """Make the mistakes in a small world, and yield each with its end."""
    with chdir(folder):
        for each in mistakes:
            code, printed, said = small_world.call(*shlex.split(each.command))
            message = _message(said, folder) or "\n".join(printed.strip().splitlines()[:3])
            yield Mistake(each.what, each.command, code, message)


def _message(said: str, folder: Path) -> str:
    """Extract the error from stderr, without details of this machine."""
    lines = said.replace("\r", "\n").splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith("error: ")), 0)
    text = "\n".join(line.rstrip() for line in lines[first:])
    return text.replace(str(folder.resolve()), "…").strip()


def record(mistakes: Sequence[Mistake]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small_world.make(folder)
        write_files(folder)
        entries = "\n".join(map(_as_toml, tried(mistakes, folder)))
    head = re.match(r"(#.*\n)*", read_text(MISTAKES))
    write_text(MISTAKES, f"{head[0] if head else ''}\n{entries}")


def _as_toml(mistake: Mistake) -> str:
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}"
             for name, value in vars(mistake).items() if (name, value) != ("exit", 2)]  # fmt: skip
    if "\n" in mistake.message:
        lines[-1] = f"message = '''\n{mistake.message}'''"
    return "\n".join(["[[mistake]]", *lines, ""])


if __name__ == "__main__":
    record(recorded())
