"""Logs of harnesses, in all of their forms; `tests/harnesses` reads what harnesses write."""

import json
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.subsampled_folder import write_folder

from merge_dataset.schema import LABELS
from merge_metric import Evaluation, compare_models, read_predictions, score_file
from merge_metric.frame.predictions import model_name, open_predictions

Rows = list[dict[str, Any]]
WORDS = ("True", "Neither", "False")
"""Words of another task, in the order of the labels."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("logs") / "merge-nli")


@pytest.fixture(scope="module")
def rows(folder: Path) -> Rows:
    return answered(folder)


def answered(folder: Path) -> Rows:
    """Problems with a made-up answer, `code`, the same for the same texts and label."""
    tables = [pq.read_table(path).to_pylist() for path in sorted(folder.rglob("*.parquet"))]
    rows = {row["variant_id"]: row for table in tables for row in table}
    return [row | {"code": (len(row["premise"]) + row["label"]) % 3} for row in rows.values()]


def lines(path: Path, samples: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(sample)}\n" for sample in samples), encoding="utf-8")
    return path


def ours(row: dict[str, Any]) -> dict[str, Any]:
    kept = {name: row[name] for name in ("variant_id", "seed_id", "label", "subsamples")}
    return kept | {"prediction": row["code"], "n_problems": 7, "letter": "ABC"[row["code"]]}


def about(row: dict[str, Any], *, by: str) -> dict[str, Any]:
    texts = {"premise": row["premise"], "hypothesis": row["hypothesis"]}
    return texts | ({"variant_id": row["variant_id"]} if by == "id" else {})


def choosing(
    path: Path, rows: Rows, by: str = "id", words: Sequence[str] = WORDS, *, at_words: bool = False
) -> Path:
    """Several choices, in an order of their own, and the target as a number or, if told, a word."""
    order = (2, 0, 1)
    asked = {f"gen_args_{n}": {"arg_0": "…", "arg_1": f" {words[o]}"} for n, o in enumerate(order)}
    targets = words if at_words else [str(order.index(label)) for label in range(3)]
    return lines(
        path,
        (
            {"doc_id": n, "doc": about(row, by=by), "target": targets[row["label"]]}
            | {"arguments": asked, "filter": "none", "acc": float(row["code"] == row["label"])}
            | {"filtered_resps": [[str(-float(code != row["code"])), "False"] for code in order]}
            for n, row in enumerate(rows)
        ),
    )


def writing(path: Path, rows: Rows, form: str = "{}") -> Path:
    """Answers in words, with two filters."""
    asked = {"gen_args_0": {"arg_0": "…", "arg_1": {"until": ["\n"]}}}
    return lines(
        path,
        (
            {"doc": about(row, by="id"), "target": WORDS[row["label"]], "arguments": asked}
            | {"filtered_resps": [form.format(f" {WORDS[row['code']].upper()}\n") * (n == 0)]}
            | {"filter": name, "exact_match": float(row["code"] == row["label"] and n == 0)}
            for n, name in enumerate(("strict", "flexible"))
            for row in rows
        ),
    )


def inspect_samples(rows: Rows, by: str = "ours", epochs: int = 1) -> Rows:
    samples = []
    for epoch in range(epochs, 0, -1):
        for n, row in enumerate(rows):
            code = row["code"] if epoch == 1 else 0
            sample = {"id": row["variant_id"] if by == "shuffled" else n, "epoch": epoch}
            order = [(n + k) % 3 for k in range(3)]  # of the choices
            letters = ["ABC"[order.index(label)] for label in range(3)]
            score = {"value": "C" if code == row["label"] else "I", "answer": letters[code]}
            if by == "ours":
                score |= {"value": 0.0, "metadata": {"answer": ours(row | {"code": code})}}
            sample |= {"choices": [LABELS[label] for label in order]}
            sample |= {"target": letters[row["label"]], "metadata": about(row, by=by)}
            sample |= {"scores": {"choice": score}}
            samples.append(sample)
    return samples


HEADER = {"status": "success", "eval": {"model": "some/model"}}


def inspect_log(path: Path, samples: Rows, *, form: str = "deflate") -> Path:
    if path.suffix == ".json":
        path.write_text(json.dumps(HEADER | {"samples": samples}))
        return path
    with ZipFile(path, "w", ZIP_DEFLATED if form == "deflate" else ZIP_STORED) as archive:
        for sample in samples:
            name = f"samples/{sample['id']}_epoch_{sample['epoch']}"
            entries = {f"{name}.json": sample}
            if form == "chunked":
                shell = {key: value for key, value in sample.items() if key != "metadata"}
                entries = {f"{name}/sample.json": shell, f"{name}/events/0.json": []}
                entries |= {f"{name}/metadata.json": sample["metadata"]}
            for entry, content in entries.items():
                archive.writestr(entry, json.dumps(content))
        archive.writestr(
            "_journal/start.json" if form == "begun" else "header.json", json.dumps(HEADER)
        )
    return path


def with_zstd(path: Path, samples: Rows) -> Path:
    """Compress the entries by method 93, which `zipfile` does not write."""
    plain = inspect_log(path.with_suffix(".zip"), samples, form="stored")
    contents, directory = b"", b""
    with ZipFile(plain) as archive:
        for entry in archive.infolist():
            data, name = archive.read(entry), entry.filename.encode()
            packed = pa.compress(data, "zstd", asbytes=True)
            common = struct.pack(
                "<HHHHHIIIHH", 45, 0, 93, 0, 33, entry.CRC, len(packed), len(data), len(name), 0
            )
            place = struct.pack("<HHHII", 0, 0, 0, 0, len(contents))
            directory += b"PK\x01\x02\x2d\x00" + common + place + name
            contents += b"PK\x03\x04" + common + name + packed
        count = len(archive.infolist())
    end = struct.pack("<HHHHIIH", 0, 0, count, count, len(directory), len(contents), 0)
    path.write_bytes(contents + directory + b"PK\x05\x06" + end)
    return path


Write = Callable[[Path, Rows], Path]

FORMS: dict[str, Write] = {
    "lm-eval, ours": lambda path, rows: lines(
        path / "samples_x_2026-01-31T00.jsonl",
        ({"doc": {"variant_id": 0}, "arguments": {"a": {"arg_0": "", "arg_1": ""}}, "target": "0",
          "filtered_resps": [["-1", "False"]], "seed_accuracy": ours(row)} for row in rows),
    ),
    "lm-eval, choices": lambda path, rows: choosing(path / "a.jsonl", rows),
    "lm-eval, texts": lambda path, rows: choosing(path / "a.jsonl", rows, by="texts"),
    "lm-eval, words": lambda path, rows: writing(path / "a.jsonl", rows),
    "lm-eval, sentences": lambda path, rows: writing(path / "a.jsonl", rows, "It is {}."),
    "lm-eval, numbers as choices": lambda path, rows: choosing(path / "a.jsonl", rows, words="201"),
    "lm-eval, numbers as targets": lambda path, rows: choosing(
        path / "a.jsonl", rows, words="201", at_words=True),
    "Inspect, ours": lambda path, rows: inspect_log(
        path / "log.eval", inspect_samples(rows, epochs=2)),
    "Inspect, zstd": lambda path, rows: with_zstd(path / "log.eval", inspect_samples(rows)),
    "Inspect, chunked": lambda path, rows: inspect_log(
        path / "log.eval", inspect_samples(rows, by="texts"), form="chunked"),
    "Inspect, begun": lambda path, rows: inspect_log(
        path / "log.eval", inspect_samples(rows), form="begun"),
    "Inspect, JSON": lambda path, rows: inspect_log(
        path / "log.json", inspect_samples(rows, by="shuffled")),
}  # fmt: skip


def codes_in(table: pa.Table) -> dict[str, int]:
    return {row["variant_id"]: row["prediction"] for row in table.to_pylist()}


def codes_of(rows: Rows) -> dict[str, int]:
    return {row["variant_id"]: row["code"] for row in rows}


@pytest.mark.parametrize("form", FORMS)
def test_answers_are_those_of_the_log(
    form: str, folder: Path, rows: Rows, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = FORMS[form](tmp_path, rows)
    assert codes_in(read_predictions(path, folder)) == codes_of(rows)
    several = {
        "lm-eval, words": "strict are read, not of flexible",
        "lm-eval, sentences": "strict are read, not of flexible",
        "Inspect, ours": "1 are read, not of 2",
    }
    assert several.get(form, "") in caplog.text
    assert ("are read" in caplog.text) == (form in several)
    assert (model_name(path) == "some/model") == form.startswith("Inspect")


def test_targets_tell_problems_of_the_same_texts_apart(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "merge-nli")
    for path in folder.rglob("seeds.parquet"):
        seeds = pq.read_table(path).to_pylist()
        pq.write_table(
            pa.Table.from_pylist([row | {"premise": "A", "hypothesis": "B"} for row in seeds]), path
        )
    rows = answered(folder)[::-1]
    table = read_predictions(choosing(tmp_path / "samples.jsonl", rows, by="texts"), folder)
    assert codes_in(table) == codes_of(rows)


def test_figures_of_logs(folder: Path, rows: Rows, tmp_path: Path) -> None:
    """They are those of predictions; several files of one model are one."""
    results = tmp_path / "results_2026-01-31T00.json"
    results.write_text('{"model_name": "owner/other"}')
    first = FORMS["lm-eval, ours"](tmp_path, rows)
    second = FORMS["Inspect, zstd"](tmp_path, rows)
    expected = score_file(first, folder, n_bootstrap=0)["snli"]
    seeds = [row for row in rows if row["variant_id"] == row["seed_id"]]
    share = sum(row["code"] == row["label"] for row in seeds) / len(seeds)
    assert expected["seed_accuracy"] == share
    description = open_predictions(second, folder).description
    assert description["name"] == "some/model"
    assert description["letter_B"] == sum(row["code"] == 1 for row in rows)
    loaded = Evaluation.load(second, folder, n_bootstrap=0)
    assert loaded.name == "some/model"
    kept = loaded.save(tmp_path / "kept.parquet")
    assert model_name(kept) == "some/model"
    parts = [choosing(tmp_path / f"{n}.jsonl", rows[n::2]) for n in range(2)]
    assert score_file(kept, folder, n_bootstrap=0)["snli"] == loaded["snli"]
    for same in (loaded["snli"], score_file(parts, folder, n_bootstrap=0)["snli"]):
        assert {key: same[key] for key in ("sv_curve", "by_group")} == {
            key: expected[key] for key in ("sv_curve", "by_group")
        }
    (compared,) = compare_models([first, second], folder, n_bootstrap=10).values()
    assert {row["model"] for row in compared.models.rows} == {"owner/other", "some/model"}
    with pytest.raises(ValueError, match="a dataset folder with several files of one model, got"):
        score_file(parts)


def test_merged_labels(folder: Path, rows: Rows, tmp_path: Path) -> None:
    """Two classes, one of which is right for two labels of the dataset, or three."""
    whole = inspect_log(tmp_path / "three.json", inspect_samples(rows, by="shuffled"))
    of_three = read_predictions(whole, folder, merge_labels="contradiction,neutral=other")
    assert of_three["prediction"].to_pylist() == [min(row["code"], 1) for row in rows]
    names = ["entailment", "other", "other"]
    samples = inspect_samples(rows, by="shuffled")
    for sample, row in zip(samples, rows, strict=True):
        is_right = names[row["code"]] == names[row["label"]]
        score = {"value": float(is_right), "answer": names[row["code"]]}
        sample |= {"choices": None, "target": names[row["label"]], "scores": {"match": score}}
    path = inspect_log(tmp_path / "log.json", samples)
    merged = read_predictions(path, folder, merge_labels="contradiction,neutral=other")
    assert merged["prediction"].to_pylist() == [min(row["code"], 1) for row in rows]
    alone = read_predictions(path, folder)  # which of the two a wrong answer names is not known
    assert alone["prediction"].to_pylist() == [
        row["label"] if min(row["code"], 1) == min(row["label"], 1) else -1 if row["code"] else 0
        for row in rows
    ]


def change(**columns: Any) -> Callable[[Rows], Rows]:
    return lambda samples: [samples[0] | columns, *samples[1:]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (change(id="x", metadata={"premise": "Other."}),
         "variant_id or the premise and hypothesis"),
        (change(scores={"s": {"value": {"a": 1}, "answer": ""}}),
         r"snli:0.*: expected a score that"),
        (change(scores={"s": {"value": 0.5, "answer": ""}}),
         r"whether the answer is right, .*got 0\.5"),
        (change(scores={}, error={"message": "boom"}), r"predictions are missing for 1 of 8 seeds"),
        (lambda samples: samples[:50], "predictions are missing for"),
        (lambda samples: [], "expected answers, got 0 samples without any"),
        (change(target=None), r"log\.json: expected a whole log of lm-.*, got an error"),
    ],
)  # fmt: skip
def test_what_cannot_be_scored(
    changed: Callable[[Rows], Rows], message: str, folder: Path, rows: Rows, tmp_path: Path
) -> None:
    path = inspect_log(tmp_path / "log.json", changed(inspect_samples(rows, by="shuffled")))
    with pytest.raises(ValueError, match=message):
        score_file(path, folder)


def test_answers_without_scores_in_other_words(folder: Path, rows: Rows, tmp_path: Path) -> None:
    path = writing(tmp_path / "samples.jsonl", rows, "It is {}.")
    path.write_text(path.read_text().replace("exact_match", "bleu"))
    with pytest.raises(ValueError, match=r"expected scores, acc or exact_match, .* for 'True'"):
        read_predictions(path, folder)


def test_a_log_cut_in_mid_line(folder: Path, rows: Rows, tmp_path: Path) -> None:
    path = writing(tmp_path / "samples_it.jsonl", rows, "It is {}.")
    path.write_text(path.read_text()[:-40])
    cut = r"samples_it\.jsonl: line \d+: expected a JSON object per line, got '[^;]*$"
    with pytest.raises(ValueError, match=cut):
        read_predictions(path, folder)


def test_a_folder_of_logs(folder: Path, rows: Rows, tmp_path: Path) -> None:
    path = writing(tmp_path / "samples_it.jsonl", rows, "It is {}.")
    with pytest.raises(ValueError, match="a folder; give the logs of one model by name: ") as told:
        score_file(tmp_path, folder)
    assert str(told.value).endswith(f": {path}")
    path.unlink()
    without = r"a folder without logs \(samples_\*\.jsonl or \*\.eval\); name a file$"
    with pytest.raises(ValueError, match=without):
        score_file(tmp_path, folder)


def test_several_logs_of_one_model(folder: Path, rows: Rows, tmp_path: Path) -> None:
    path = writing(tmp_path / "samples_it.jsonl", rows, "It is {}.")
    with pytest.raises(ValueError, match="score those of other models, or of other runs, by"):
        score_file([path, path], folder)


def test_without_a_dataset(folder: Path, rows: Rows, tmp_path: Path) -> None:
    assert score_file(FORMS["Inspect, ours"](tmp_path, rows), n_bootstrap=0)
    other = FORMS["Inspect, JSON"](tmp_path, rows)
    with pytest.raises(ValueError, match=r"log\.json: expected the dataset with the log of a task"):
        score_file(other)
    whole = other.read_bytes()
    for content in (whole[:200], b"{}", b"", b"\xff"):
        other.write_bytes(content)
        with pytest.raises(ValueError, match=r"log\.json: expected"):
            score_file(other, folder)


def test_samples_with_errors_are_told(
    folder: Path, rows: Rows, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    samples = change(scores={"s": {"value": float("nan")}})(inspect_samples(rows, by="shuffled"))
    samples[1] |= {"scores": None, "error": {"message": "boom"}}
    path = inspect_log(tmp_path / "log.json", samples)
    score_file(path, folder, allow_missing=True, n_bootstrap=0)
    assert "log.json: 2 of 80 samples have no answer: " in caplog.text
    assert ": it was not scored" in caplog.text
    own = inspect_samples(rows)
    own[1]["scores"] = {"further": {"value": 1.0, "answer": "A"}}
    table = read_predictions(inspect_log(tmp_path / "own.json", own), folder)
    assert len(table) == len(rows) - 1
    assert "own.json: 1 of 80 samples have no answer: " in caplog.text
