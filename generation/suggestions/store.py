"""The stores of suggestions: every (model revision, sentence, span) is asked about once, ever."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from generation.config import BUNDLED_MLM, Config, bundled_path
from generation.records import MaskedQuery, Scores
from generation.run_folder import RunFolder
from generation.suggestions.questions import Questions, key_of, keys_of
from generation.suggestions.vocabulary import Vocabulary
from merge_dataset.answer_store import AnswerStore, ask, slug
from merge_dataset.executors import Task
from merge_dataset.files import read_json, read_record, write_json, write_record
from merge_dataset.redaction import mask_urls
from merge_metric.models.inspection import MASKED_LM, Head
from merge_metric.models.pair_model import ModelRequest
from merge_metric.models.tokens import warn_of_unknown

OF_SETTINGS: Final = ("masking", "suggestions_per_occurrence")
"""Settings of the questions that distinguish stores."""
LOADED_WITH: Final = ("device", "dtype", "batch_tokens", "unpadded")
"""Settings of a run with which masked LMs are loaded."""
OF_MODEL: Final = ("name", "revision", "architecture", "dtype", "device")
"""Attributes of a model that distinguish stores."""
IDENTITY: Final = ("name", "revision", "architecture", *OF_SETTINGS, "dtype", "device")

_SCHEMA: Final = pa.schema(
    [
        ("original", pa.int32()),
        ("original_logit", pa.float32()),
        ("log_normalizer", pa.float32()),
        ("windowed", pa.bool_()),
        ("tokens", pa.list_(pa.int32())),
        ("logits", pa.list_(pa.float32())),
    ]
)
"""Fields of `Scores`."""
_VOCABULARY: Final = "vocabulary.json"


def mlm_names(mlms: Sequence[str]) -> dict[str, str]:
    """Map each masked LM's name in the provenance columns to the model to load."""
    names: dict[str, str] = {}
    for model in mlms:
        if model == BUNDLED_MLM and not Path(model).is_dir():
            name, model = BUNDLED_MLM, str(bundled_path(f"demo/{BUNDLED_MLM}"))
        else:
            is_path = Path(model).exists()
            name = Path(model).resolve().name if is_path else mask_urls(model).partition("@")[0]
        names[name] = model
    if not names or len(names) < len(mlms):
        raise ValueError(
            "mlms: expected at least one masked LM, and of each name one, got "
            f"{', '.join(mlms) or 'none'}; add or change them with --mlm DIR_OR_ID"
        )
    return names


def wanted_mlms(names: Mapping[str, str], dtype: Any) -> list[tuple[str, ModelRequest, Head]]:
    """List masked LMs by name for a check before they are loaded."""
    return [
        (name, ModelRequest(model=model, dtype=dtype), MASKED_LM) for name, model in names.items()
    ]


# --- Asking ---


def ask_task(folder: Path, task: str, opened: dict[str, Any] | None = None) -> None:
    """Do a task such as "bert 0/2": add missing answers; `opened` holds masked LMs for the next."""
    from generation.suggestions.masked_lm import MaskedLM

    run = RunFolder(folder)
    config, questions = Config.read(run.config), Questions(run.questions)
    name, _, dealt = task.rpartition(" ")
    blocks, asked = Task.parse(dealt).of(questions.blocks), questions.asked
    opened = {} if opened is None else opened
    if name not in opened:
        settings = {key: getattr(config, key) for key in LOADED_WITH}
        opened[name] = MaskedLM.load(mlm_names(config.mlms)[name], name=name, **settings)
    mlm = opened[name]
    identity = {n: getattr(config if n in OF_SETTINGS else mlm, n) for n in IDENTITY}
    record = run.stores / f"{slug(name)}.json"
    if not record.is_file():
        every = questions.blocks
        some = every[:: -(-len(every) // 8) or 1]  # about eight blocks, the same in all tasks
        sentences = {query.sentence: None for block in some for query in questions.of(block)}
        if unknown := mlm.unknown_tokens(list(sentences)):
            warn_of_unknown(name, unknown)
        more = {"unknown_tokens": unknown, "weights": mlm.weights, "unpadded": mlm.unpadded}
        write_json(record, {**identity, **{key: value for key, value in more.items() if value}})

    def answer(queries: Sequence[MaskedQuery]) -> Iterator[tuple[Sequence[int], pa.Table]]:
        for rows, scores in mlm.answer(queries, k=config.suggestions_per_occurrence):
            yield rows, table_of(scores)

    store = suggestion_store(Path(config.store or run.store), identity)
    if not (store.folder / _VOCABULARY).is_file():
        write_vocabulary(store, mlm.vocabulary)
    ask(
        store,
        (questions.of(block, asked) for block in blocks),
        answer,
        key=key_of,
        sizes=[int(asked[questions.places[block]].sum()) for block in blocks],
        what=name,
        unit="mask",
        # Many questions fill the batches of sentences of equal length.
        at_once=1 if mlm.device == "cpu" else 32_768,
    )


def collect(run: RunFolder, config: Config, names: Iterable[str]) -> list[dict[str, Any]]:
    """Summarise each masked LM for the manifest, once all its answers are in the store."""
    questions, summaries, stores = Questions(run.questions), [], stores_of(run, config)
    asked = questions.asked
    for name in names:
        store, record = stores[name], read_json(run.stores / f"{slug(name)}.json")
        counts = {"not_in_vocabulary": 0, "windowed": 0}
        for block in questions.blocks:
            scores = read_scores(store, questions.of(block, asked))
            counts["not_in_vocabulary"] += int((~scores.answered).sum())
            counts["windowed"] += int(scores.windowed.sum())
        summaries.append({**store.identity, **counts, **record})
    return summaries


def unchanged_questions(run: RunFolder) -> Questions:
    """Open the questions of a run, and check that their inputs and selection are unchanged."""
    questions = Questions(run.questions)
    paths = [run.config, run.problems, questions.header]
    if "asked" in read_record(run.suggested) or questions.selection.is_file():
        paths.append(questions.selection)
    names = [path.relative_to(run.path).as_posix() for path in paths]
    run.require_unchanged(run.suggested, names, "suggest")
    return questions


# --- Stores ---


def stores_of(run: RunFolder, config: Config) -> dict[str, AnswerStore]:
    """Open the stores of the masked LMs that were asked, by name, but for `without_mlms`."""
    root = Path(config.store or run.store)
    stores = (suggestion_store(root, read_json(path)) for path in sorted(run.stores.glob("*.json")))
    named = {str(store.identity["name"]): store for store in stores}
    return {name: named[name] for name in sorted({*named} - {*config.without_mlms})}


def suggestion_store(root: Path, described: Mapping[str, Any]) -> AnswerStore:
    """Open the store of a model and settings, which a record describes, among others' stores."""
    identity = {name: described[name] for name in IDENTITY}
    return AnswerStore(root, identity, _SCHEMA, redo="merge-nli suggest")


def table_of(scores: Scores) -> pa.Table:
    """Convert scores to rows of a store."""
    columns = {}
    for name in _SCHEMA.names:
        values = getattr(scores, name)
        columns[name] = pa.array(values.ravel())
        if values.ndim > 1:
            starts = pa.array(np.arange(len(values) + 1, dtype=np.int32) * values.shape[1])
            columns[name] = pa.ListArray.from_arrays(starts, columns[name])
    return pa.table(columns, _SCHEMA)


def read_scores(store: AnswerStore, queries: Sequence[MaskedQuery]) -> Scores:
    """Read the answers to questions, in their order."""
    if not queries:
        return Scores.empty(0, 1)
    table = store.read(keys_of(queries))
    columns = {}
    for name in (field.name for field in fields(Scores)):
        column = table[name].combine_chunks()
        is_list = pa.types.is_list(column.type)
        values = (column.flatten() if is_list else column).to_numpy(zero_copy_only=False)
        columns[name] = values.reshape(len(table), -1) if is_list else values
    return Scores(**columns)


def write_vocabulary(store: AnswerStore, vocabulary: Vocabulary) -> None:
    """Write the texts and kinds of a model's token ids beside its suggestions."""
    values = {"texts": vocabulary.texts, "kinds": vocabulary.kinds.tolist()}
    write_record(store.folder / _VOCABULARY, values)


def stored_vocabulary(store: AnswerStore) -> Vocabulary:
    """Read the texts and kinds of a store's token ids."""
    values = read_record(store.folder / _VOCABULARY, "texts", "kinds")
    return Vocabulary(tuple(values["texts"]), np.array(values["kinds"], np.int8))
