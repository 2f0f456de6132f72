"""Ask the masked LMs: the part of `suggest` that tasks can share; they fill the same stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa

from generation.config import BUNDLED_MLM, Config, bundled_path
from generation.records import MaskedQuery
from generation.run_folder import RunFolder
from generation.suggestions.questions import Asked, Questions, key_of
from generation.suggestions.store import (
    IDENTITY,
    OF_SETTINGS,
    read_scores,
    suggestion_store,
    table_of,
    write_vocabulary,
)
from merge_dataset.answer_store import AnswerStore, ask, slug
from merge_dataset.executors.plan import Task
from merge_dataset.files import read_json, read_record, write_json
from merge_metric.models.inspection import MASKED_LM, Head
from merge_metric.models.pair_model import ModelRequest
from merge_metric.models.tokens import warn_of_unknown

_LOOKED_AT: Final = 8
"""Number of blocks of questions that are looked at for words unknown to a tokenizer."""


def mlm_names(mlms: Sequence[str]) -> dict[str, str]:
    """Map each masked LM's name in the provenance columns to the model to load."""
    if not mlms:
        raise ValueError("mlms: expected at least one masked LM, got none; add --mlm DIR_OR_ID")
    names: dict[str, str] = {}
    for model in mlms:
        if model == BUNDLED_MLM and not Path(model).is_dir():
            name, model = BUNDLED_MLM, str(bundled_path(f"demo/{BUNDLED_MLM}"))
        else:
            name = Path(model).resolve().name if Path(model).exists() else model.partition("@")[0]
        if name in names:
            raise ValueError(
                f"mlms: expected different names, got {name!r} for both {names[name]} and {model}"
            )
        names[name] = model
    return names


def wanted_mlms(
    mlms: Sequence[str], *, dtype: Literal["float32", "bfloat16", "float16"]
) -> list[tuple[str, ModelRequest, Head]]:
    """List the models that `suggest` will load, for a check beforehand."""
    return [
        (name, ModelRequest(model=model, dtype=dtype), MASKED_LM)
        for name, model in mlm_names(mlms).items()
    ]


def ask_task(folder: Path, task: str) -> None:
    """Do a task of a masked LM, such as "bert 0/2": add the missing answers to the store."""
    from generation.suggestions.masked_lm import MaskedLM

    run = RunFolder(folder)
    config, asked = Config.read(run.config), Asked(Questions(run.questions), run.asked)
    name, _, dealt = task.rpartition(" ")
    blocks = Task.parse(dealt).of(asked.questions.blocks)
    mlm = MaskedLM.load(
        mlm_names(config.mlms)[name],
        name=name,
        device=config.device,
        dtype=config.dtype,
        batch_tokens=config.batch_tokens,
    )
    identity = {n: getattr(config if n in OF_SETTINGS else mlm, n) for n in IDENTITY}
    record = _record(run, name)
    if not record.is_file():
        every = asked.questions.blocks
        some = every[:: -(-len(every) // _LOOKED_AT) or 1]  # the same in all tasks
        sentences = {query.sentence: None for block in some for query in asked.questions.of(block)}
        if unknown := mlm.unknown_tokens(list(sentences)):
            warn_of_unknown(name, unknown)
        more = {"unknown_tokens": unknown, "weights": mlm.weights}
        write_json(record, {**identity, **{key: value for key, value in more.items() if value}})
    known = read_json(record)
    if (others := {key: known[key] for key in IDENTITY}) != identity:
        raise ValueError(
            f"{name}: expected the same model, device and dtype in every task, got {others} and "
            f"{identity}; name them with --device, --dtype and @revision"
        )

    def answer(queries: Sequence[MaskedQuery]) -> Iterator[tuple[Sequence[int], pa.Table]]:
        for rows, scores in mlm.answer(queries, k=config.suggestions_per_occurrence):
            yield rows, table_of(scores)

    (store,), sizes = stores_of(run, config, [identity]).values(), asked.sizes()
    write_vocabulary(store, mlm.vocabulary)
    ask(
        store,
        map(asked.of, blocks),
        answer,
        key=key_of,
        sizes=[sizes[block] for block in blocks],
        what=name,
        unit="mask",
        at_once=mlm.questions_at_once,
    )


def collect(run: RunFolder, config: Config) -> list[dict[str, Any]]:
    """Summarise each masked LM for the manifest, once all its answers are in the store."""
    asked, summaries = Asked(Questions(run.questions), run.asked), []
    records = asked_mlms(run, config)
    for record, store in zip(records, stores_of(run, config, records).values(), strict=True):
        counts = {"not_in_vocabulary": 0, "windowed": 0}
        for block in asked.questions.blocks:
            scores = read_scores(store, asked.of(block))
            counts["not_in_vocabulary"] += int((~scores.answered).sum())
            counts["windowed"] += int(scores.windowed.sum())
        summaries.append({**store.identity, **counts, **record})
    return summaries


def asked_mlms(run: RunFolder, config: Config) -> list[dict[str, Any]]:
    """Read the records of the masked LMs that tasks asked."""
    paths = {name: _record(run, name) for name in mlm_names(config.mlms)}
    if missing := [name for name, path in paths.items() if not path.is_file()]:
        raise ValueError(f"{missing[0]}: expected answers, found none; run the same command again")
    return [read_json(path) for path in paths.values()]


def _record(run: RunFolder, name: str) -> Path:
    return run.stores / f"{slug(name)}.json"


def stores_of(
    run: RunFolder, config: Config, mlms: Iterable[Mapping[str, Any]]
) -> dict[str, AnswerStore]:
    """Open the stores of masked LMs, which records describe, by name."""
    root = Path(config.store) if config.store else run.store
    return {record["name"]: suggestion_store(root, record) for record in mlms}


def unchanged_questions(run: RunFolder) -> Questions:
    """Open the questions of a run, and check that they and their inputs are unchanged."""
    questions = Questions(run.questions)
    paths = [run.config, run.problems, questions.header]
    if "asked" in read_record(run.suggested):
        paths.append(run.asked)
    elif run.asked.is_file():
        raise ValueError(
            f"{run.asked}: expected no such file, as all questions were asked; an interrupted "
            "command left it: run merge-nli suggest again"
        )
    names = [path.relative_to(run.path).as_posix() for path in paths]
    run.require_unchanged(run.suggested, names, "suggest")
    if changed := questions.changed():
        raise ValueError(
            f"{run.questions}: expected {', '.join(changed[:3])} as written, got other contents; "
            f"run: merge-nli suggest --run {run.path}"
        )
    return questions
