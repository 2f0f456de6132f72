"""People's judgements: sessions with a sample of variants, files to fill in, and answers.

A session is a folder: `session.json` describes the population, for the weights of figures;
`sample.jsonl` has the variants; `answers/` has the filled files, tables for any spreadsheet or
exports of Label Studio (https://labelstud.io/guide/task_format, /guide/export).
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa

from merge_dataset.annotation.sample import PER_CLASS, Item, Spans, choose, draw
from merge_dataset.card import environment
from merge_dataset.data_files import column_names, parse_object, read_rows
from merge_dataset.files import (
    LOCK,
    digest_of_file,
    digests,
    draw_rank,
    read_json,
    read_record,
    read_schema,
    read_table,
    read_text,
    target_of,
    working_in,
    write_record,
    write_text,
)
from merge_dataset.layout import split_files
from merge_dataset.redaction import no_formula
from merge_dataset.schema import PARAPHRASE, parse_config_name
from merge_dataset.settings import as_paths
from merge_dataset.show import marked

JudgementKind = Literal["scores", "equivalence"]
"""Fluency and reasoning (MERGE paper, A.3), or equivalence (Arakelyan et al. 2024, 3.1)."""

ASKED: Final[Mapping[JudgementKind, dict[str, pa.DataType]]] = {
    "scores": {"fluency": pa.int8(), "reasoning": pa.int8()},
    "equivalence": {"equivalent": pa.bool_()},
}
"""Kind → names and types of the values of an answer."""

SCHEMAS: Final = {
    kind: pa.schema(
        {"annotator": pa.string(), "variant_id": pa.string(), **asked, "comment": pa.string()}
    )
    for kind, asked in ASKED.items()
}
"""Kind → schema of a table of answers."""

ENOUGH: Final = 9
"""Least F + R of a good variant (paper, section 4)."""

TRUSTED: Final = 0.7
"""Least AUC in its trial of a model whose judgements may filter."""


def is_good(total: Any, annotators: Any = 1) -> Any:
    """Return whether sums of F + R (numbers or arrays) average at least `ENOUGH` per annotator.

    >>> is_good(4 + 5), is_good(4 + 4), is_good((4 + 4) + (5 + 5), annotators=2)
    (True, False, True)
    """
    return total >= ENOUGH * annotators


# --- The folder ---

SESSION: Final = "session.json"
SAMPLE: Final = "sample.jsonl"
ANSWERS: Final = "answers"

_KEYS: Final = ("configurations", "dataset", "files", "items", "kind", "per_class", "population",
                "rng_seed", "sample_sha256")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Session:
    """Contents of a session folder."""

    folder: Path
    items: dict[str, Item]
    """Variant id → item, in the order of the file."""
    description: dict[str, Any]
    """Contents of `session.json`."""

    @property
    def kind(self) -> JudgementKind:
        """The kind of judgement that is asked for."""
        kind: JudgementKind = self.description["kind"]
        return kind


def open_session(
    folder: Path,
    dataset: Path | None = None,
    configs: Sequence[str] = (),
    *,
    per_class: int | None = None,
    per_source: int | None = None,
    rng_seed: int | None = None,
) -> Session:
    """Continue a folder's session, or draw a new one; options are those of `draw`, None for any."""
    sizes = {"per_class": per_class, "per_source": per_source, "rng_seed": rng_seed}
    wanted: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    if dataset is not None and not (folder / SESSION).is_file():
        # Parts of an interrupted session may be there.
        names = {(target_of(path) or path).name for path in folder.glob("*")}
        if any(not name.startswith(LOCK) for name in names - {SAMPLE, SESSION}):
            raise FileExistsError(
                f"{folder}: expected an annotation session, an empty folder or none, got something "
                f"else; name another --out"
            )
        chosen = choose(dataset, configs)
        with working_in(folder):
            if not (folder / SESSION).is_file():  # otherwise another command has drawn it meanwhile
                _write_sample(folder, dataset, chosen, wanted)
    session = read_session(folder)
    if configs and dataset is None:
        wanted["configurations"] = [*configs]
    if dataset is not None:
        chosen = choose(dataset, configs or session.description["configurations"])
        wanted |= {"configurations": chosen, "files": _digests(dataset, chosen)}
    for name, value in wanted.items():  # some answers would be to variants not in the sample
        if value != (drawn_with := session.description.get(name)):
            shown = "" if name == "files" else f" ({drawn_with})"
            raise ValueError(
                f"{folder}: expected the {name} that its sample was drawn with{shown}, got others; "
                f"go on without that option, or take another --out for another sample"
            )
    return session


def _write_sample(
    folder: Path, dataset: Path, configs: list[str], sizes: Mapping[str, int]
) -> None:
    items, population = draw(dataset, configs, **sizes)
    per_source = sizes.get("per_source")
    lines = [json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in items]
    write_text(folder / SAMPLE, "".join(lines))
    description = {
        "format": 1,
        "kind": "equivalence" if parse_config_name(configs[0])[1] == PARAPHRASE else "scores",
        "dataset": dataset.resolve().name,
        "files": _digests(dataset, configs),
        "configurations": configs,
        "per_class": None if per_source else sizes.get("per_class", PER_CLASS),
        **({"per_source": per_source} if per_source else {}),
        "rng_seed": sizes.get("rng_seed", 0),
        "items": len(items),
        "population": population,
        "sample_sha256": digest_of_file(folder / SAMPLE),
    }
    # Written last, so a folder with a description is complete.
    write_record(folder / SESSION, description)


def _digests(dataset: Path, configs: Sequence[str]) -> dict[str, str]:
    names = [name for config in configs for name in split_files(dataset, config)["variants"]]
    return digests({name: dataset / name for name in names})


def read_session(folder: Path) -> Session:
    """Read a session folder."""
    description = read_record(folder / SESSION, *_KEYS)
    path = folder / SAMPLE
    if not path.is_file() or description["sample_sha256"] != digest_of_file(path):
        raise ValueError(
            f"{path}: expected the items that were drawn, got something else: the file is damaged "
            f"or was edited; restore it from a copy"
        )
    # Split at "\n" only: `str.splitlines` also splits at U+2028 and others, which texts contain.
    lines = read_text(path).removesuffix("\n").split("\n")
    items = [Item(**parse_object(line)) for line in lines]
    return Session(folder, {item.variant_id: item for item in items}, description)


# --- Files to fill in ---


def write_files(session: Session, annotators: Sequence[str] = ()) -> list[Path]:
    """Write guidelines, Label Studio's tasks, and a table for each annotator, where there is none.

    An annotator's order is their own, so that tiredness affects different items.
    """
    for name in annotators:
        if not re.fullmatch(r"\w[\w.@+-]{0,63}", name):
            raise ValueError(
                f"--annotator: expected a name of up to 64 letters, digits and . _ - + @ that "
                f"begins with a letter or digit, got {name!r}"
            )
    here, kind = Path(__file__).parent, session.kind
    texts = {
        "guidelines.md": (here / f"guidelines_{kind}.md").read_text(encoding="utf-8"),
        "label-studio.json": _tasks(session),
        "label-studio.xml": (here / f"label_studio_{kind}.xml").read_text(encoding="utf-8"),
        **{f"{ANSWERS}/{name}.csv": _table(session, name) for name in annotators},
    }
    written = [session.folder / name for name in texts if not (session.folder / name).exists()]
    for path in written:
        path.parent.mkdir(exist_ok=True)
        write_text(path, texts[path.relative_to(session.folder).as_posix()])
    return written


def _in_order(session: Session, annotator: str) -> list[Item]:
    return sorted(session.items.values(), key=lambda item: draw_rank(annotator, item.variant_id))


def _table(session: Session, annotator: str) -> str:
    items = _in_order(session, annotator)
    fields = list(dict.fromkeys(field for item in items for field in item.variant_texts))
    texts = [f"{side}_{field}" for field in fields for side in ("original", "variant")]
    shown = ("label", "original", "replacement") if session.kind == "scores" else ()
    own = SCHEMAS[session.kind].names
    written = io.StringIO()
    written.write("\ufeff")
    table = csv.DictWriter(written, [*own[:2], *shown, *texts, *own[2:]], restval="")
    table.writeheader()
    for item in items:
        row = {"annotator": annotator, "variant_id": item.variant_id}
        row |= {name: getattr(item, name) for name in shown}
        row |= {f"original_{field}": text for field, text in item.seed_texts.items()}
        row |= {f"variant_{field}": text for field, text in item.variant_texts.items()}
        table.writerow({name: no_formula(text) for name, text in row.items()})
    return written.getvalue()


def _tasks(session: Session) -> str:
    """Render tasks for Label Studio."""

    def highlighted(text: str, spans: Spans) -> str:
        marks = escape(marked(text, spans, "\1{}\2".format))
        return marks.replace("\1", "<mark>").replace("\2", "</mark>")

    template = environment(Path(__file__).parent).get_template("label_studio_task.html.j2")
    options = {"is_pair": session.kind == "equivalence", "escape": escape}
    tasks = []
    for item in _in_order(session, ""):
        problem = template.render(item=item, highlighted=highlighted, **options)
        tasks.append({"data": {"variant_id": item.variant_id, "problem": problem}})
    return json.dumps(tasks, indent=1, ensure_ascii=False) + "\n"


# --- Answers ---


def read_answers(paths: str | Path | Sequence[Path | str]) -> pa.Table:
    """Read the answers of all annotators into a table.

    Args:
        paths: One or several session folders, whose files in `answers/` are read; tables (.csv)
            with the columns in `SCHEMAS`, exports of Label Studio (.json), and files of
            `merge-nli judge` (.parquet). An answer may stand in several of them. Where a file does
            not name the annotator, its own name does.

    Returns:
        A table with the columns in `SCHEMAS` for the kind of judgement, sorted by annotator and
        variant, each pair once.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: a file is malformed, has answers to variants that its session does not have, or
            an annotator's answers to a variant differ, or some are scores and others about
            equivalence.
    """
    answers: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
    kinds: dict[JudgementKind, Path] = {}
    for path in as_paths(paths):
        items, files = None, [path]
        if path.is_dir():
            items = read_session(path).items
            files = sorted(p for p in path.glob(f"{ANSWERS}/*") if p.suffix in _READERS)
        if not files or (items is None and path.suffix not in _READERS):
            raise ValueError(
                f"{path}: expected a session folder with files in {ANSWERS}/, a filled table "
                "(.csv), an export of Label Studio (.json) or a judge's file (.parquet), found none"
            )
        for file in files:
            for place, record in _READERS[file.suffix](file):
                answer = parse_answer(record, place)
                kinds.setdefault("equivalence" if "equivalent" in answer else "scores", file)
                annotator, variant = answer["annotator"], answer["variant_id"]
                other, earlier = answers.setdefault((annotator, variant), (place, answer))
                expected = ""
                if items is not None and variant not in items:
                    expected = f"variants of {path}, got {variant!r}"
                elif earlier != answer:
                    expected = f"the answer of {annotator} to {variant!r} that stands in {other}, "
                    expected += "got another; leave out one of them"
                if expected:
                    raise ValueError(f"{place}: expected {expected}")
    if len(kinds) != 1:
        told = {"scores": "fluency and reasoning", "equivalence": "equal meaning of paraphrases"}
        got = " and ".join(f"{told[kind]} in {file}" for kind, file in kinds.items())
        where = ", ".join(map(str, as_paths(paths)))
        raise ValueError(f"{where}: expected answers to one kind of question, got {got or 'none'}")
    rows = [answers[key][1] for key in sorted(answers)]
    return pa.Table.from_pylist(rows, schema=SCHEMAS[next(iter(kinds))])


def parse_answer(record: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Parse the answer in a place, about a paraphrase if it has `equivalent`; values may be texts.

    >>> parse_answer({"variant_id": "snli:1", "fluency": "4", "reasoning": " 5.0"}, "a.csv")
    {'variant_id': 'snli:1', 'fluency': 4, 'reasoning': 5}
    >>> parse_answer({"variant_id": "snli:1", "equivalent": " TRUE "}, "a.csv")
    {'variant_id': 'snli:1', 'equivalent': True}
    """
    kind: JudgementKind = "equivalence" if "equivalent" in record else "scores"
    expected, values = _VALUES[kind]
    answer: dict[str, Any] = dict(record)
    for name in ASKED[kind]:
        answer[name] = values.get(str(record.get(name)).strip().lower().removesuffix(".0"))
    for name in ("variant_id", *ASKED[kind]):
        if answer.get(name) in (None, ""):
            what = expected if name in ASKED[kind] else "the id of a variant"
            raise ValueError(f"{place}: {name}: expected {what}, got {record.get(name)!r}")
    return answer


_VALUES: Final[Mapping[JudgementKind, tuple[str, Mapping[str, Any]]]] = {
    "scores": ("a whole number from 1 to 5", {str(n): n for n in range(1, 6)}),
    "equivalence": (
        "yes or no",
        dict.fromkeys(("yes", "y", "true"), True) | dict.fromkeys(("no", "n", "false"), False),
    ),
}
"""Kind → what a value should be, and its spellings with their meanings."""


def _read_table(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    asked = ASKED["equivalence" if "equivalent" in column_names(path) else "scores"]
    for number, cells in read_rows(path, ("variant_id", *asked), ("annotator", "comment")):
        if any(cells[name].strip() for name in asked):
            annotator = cells.get("annotator", "").strip() or path.stem
            yield f"{path}: line {number}", {"comment": "", **cells, "annotator": annotator}


def _read_label_studio(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield places and answers of an export as JSON or JSON-MIN; user 3 is `label-studio-3`."""
    exported = read_json(path)
    for number, task in enumerate(exported if isinstance(exported, list) else [exported], start=1):
        place = f"{path}: task {number}"
        try:
            answers = [(task.get("annotator"), task, task)]  # JSON-MIN
            if "annotations" in task:
                answers = [
                    (annotation.get("completed_by"), task["data"],
                     {part["from_name"]: part["value"] for part in annotation["result"]})
                    for annotation in task["annotations"]
                    if not annotation.get("was_cancelled")
                ]  # fmt: skip
            for user, data, values in answers:
                user = user.get("email") or user.get("id") if isinstance(user, dict) else user
                name = f"label-studio-{user}" if isinstance(user, int) else user or path.stem
                answer = {"annotator": str(name), "variant_id": data.get("variant_id")}
                for question in ASKED[
                    "scores" if values.get("equivalent") is None else "equivalence"
                ]:
                    # A choice such as "4" or "4 mostly good", or the number of a rating.
                    value = _unwrapped(values.get(question))
                    answer[question] = str(value).split(maxsplit=1)[0] if value else value
                text = _unwrapped(values.get("comment")) or ""
                comment = text if isinstance(text, str) else "\n".join(map(str, text))
                yield place, answer | {"comment": comment.strip()}
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"{place}: expected data, and annotations with results, as Label Studio exports "
                f"lists of them, got {json.dumps(task, ensure_ascii=False)[:60]}"
            ) from error


def _unwrapped(value: Any) -> Any:
    while isinstance(value, dict | list) and len(value) == 1:
        (value,) = value.values() if isinstance(value, dict) else value
    return value


def read_judge(path: Path) -> dict[str, Any]:
    """Read what a file of `merge-nli judge` says of the model and its `trial`."""
    described: dict[str, Any] = json.loads(
        (read_schema(path).metadata or {}).get(b"merge_nli", "{}")
    )
    if "trial" not in described:
        raise ValueError(f"{path}: expected a file of `merge-nli judge`, got another one")
    return described


def _read_judgements(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a model's judgements, without those of its trial."""
    annotator = read_judge(path)["name"]
    judged: dict[str, dict[str, Any]] = {}
    rows = read_table(path, ["variant_id", "prediction"])
    for name, score in zip(
        *(rows[column].to_pylist() for column in rows.column_names), strict=True
    ):
        asked, _, variant = name.partition(":")
        if asked in ASKED["scores"] and score is not None:
            judged.setdefault(variant, {"variant_id": variant})[asked] = score
    for variant, scores in judged.items():
        if len(scores) == 1 + len(ASKED["scores"]):  # otherwise an answer named no score
            yield f"{path}: {variant}", {"annotator": annotator, "comment": "", **scores}


_READERS: Final = {".csv": _read_table, ".json": _read_label_studio, ".parquet": _read_judgements}
"""Suffix → function that yields the place and the values of the answers in a file."""
