"""`merge-nli signals`: how replacements change the likelihood of texts or neighbouring words."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from generation.config import Config
from generation.model_signals.built import Built, absolute
from generation.model_signals.likelihoods import (
    CAUSAL_SCHEME,
    NEIGHBOURS_SCHEME,
    SCHEME,
    CausalLM,
    Likelihoods,
    item_of,
    likelihood_store,
    neighbour_changes,
    pseudo_log_likelihoods,
    read_likelihoods,
    table_of,
)
from generation.records import REPLACEMENT_KEY, substitute, with_columns
from generation.signals.signal_columns import CAUSAL, MASKED
from generation.suggestions.ask import mlm_names
from generation.suggestions.masked_lm import MaskedLM
from generation.suggestions.store import OF_MODEL
from generation.variants.adaptation import adapt
from generation.variants.perturbations import text_edits_of
from generation.variants.sampling import of_pairs
from merge_dataset.answer_store import ask, key_of
from merge_dataset.executors.calls import keeps_result
from merge_dataset.executors.plan import Distribution, Task
from merge_dataset.files import RowGroupWriter, atomic, distinct_rows, read_record
from merge_metric.models.checkpoints import load
from merge_metric.models.inspection import CAUSAL_LM, MASKED_LM, inspect
from merge_metric.models.pair_model import ModelRequest
from merge_metric.models.readiness import (
    Machine,
    inspect_models,
    machine_for,
    require_all,
    this_machine,
)

Kind = Literal["mlm", "lm", "neighbours"]
"""Kind of change: in the log-likelihood of texts by a masked or causal LM, or of neighbours."""
NEIGHBOURS: Final = "neighbours"
_SCHEMES: Final = {MASKED: SCHEME, CAUSAL: CAUSAL_SCHEME, NEIGHBOURS: NEIGHBOURS_SCHEME}
_TEXTS_AT_ONCE: Final = 512
"""Number of texts scored together, whose scores are then kept; eight times as many on an
accelerator, whose batches are larger."""

Score = Callable[[Sequence[str]], Likelihoods]


def write_changes(
    run: str | Path,
    kind: Kind,
    model: str = "",
    *,
    of: str | None = None,
    distribution: Distribution | None = None,
    device: str | None = None,
    dtype: str | None = None,
    batch_tokens: int | None = None,
) -> dict[str, Any]:
    """Score a build's texts; write `signals.parquet` or `neighbours.parquet`, return its record.

    A masked (`mlm`) or causal (`lm`) model scores all texts of seeds and replacements; the run's
    masked LMs (`neighbours`) score the words beside replacements of eligible seeds. `of` names a
    build inside the folder; device, dtype and batch are by default those of the run.
    """
    is_of_words, scheme = kind == NEIGHBOURS, _SCHEMES[kind]
    work: Literal["signals", "neighbours"] = "neighbours" if is_of_words else "signals"
    settings = {"device": device, "dtype": dtype, "batch_tokens": batch_tokens}
    with Built.held(run, of, **settings) as built:
        config, build = built.config, built.build
        if config.scramble and is_of_words:
            raise ValueError(
                f"{build.path}: expected a build without scrambled letters; score the same build "
                "without scrambling"
            )
        if config.scramble and (config.families == "inflect" or config.repair_articles):
            # Only the words before shuffling could tell which articles and forms go with them.
            raise ValueError(
                f"{build.path}: expected a build without scrambled letters, or without "
                "families and repair_articles, as nothing says which of these go with shuffled "
                "letters; take the signals of the same build without scrambling"
            )
        models = mlm_names(config.mlms if is_of_words else [model])
        if is_of_words:
            used = {mlm["name"] for mlm in read_record(build.manifest)["mlms"]}
            models = {name: each for name, each in models.items() if name in used}
        _require_models(kind, models, config, machine_for(distribution, config.device))
        if distribution is None:
            identities = _fill_stores(kind, models, built, Task())
        else:
            there = {name: absolute(each) for name, each in models.items()}
            plan = {"kind": kind, "models": there}
            unit = f"{__name__}:score_unit"
            identities = built.in_tasks(unit, build.tasks(work), plan, distribution)
        file, record = build.path / f"{work}.parquet", build.path / f"{work}.json"
        record.unlink(missing_ok=True)
        counts = _write(kind, file, built, identities)
        shutil.rmtree(build.tasks(work), ignore_errors=True)
        made_by: Any = {"mlms": identities} if is_of_words else {kind: identities[0]}
        return built.record(record, {**made_by, "scheme": scheme, **counts}, file)


def _require_models(kind: str, models: Mapping[str, str], config: Config, machine: Machine) -> None:
    head = CAUSAL_LM if kind == CAUSAL else MASKED_LM
    asked = [
        (name, ModelRequest(model=model, dtype=config.dtype), head)
        for name, model in models.items()
    ]
    require_all(inspect_models(asked, machine))


def _load(kind: str, name: str, model: str, config: Config) -> tuple[dict[str, str], Score]:
    """Load a model; return the identity of its store, and a function that scores texts."""
    loaded: MaskedLM | CausalLM
    score: Score
    if kind == CAUSAL:
        checkpoint = load(inspect(model, CAUSAL_LM), device=config.device, dtype=config.dtype)
        loaded = CausalLM(checkpoint._replace(name=name))
        score = loaded.log_likelihoods
    else:
        settings = {n: getattr(config, n) for n in ("device", "dtype", "batch_tokens")}
        loaded = MaskedLM.load(model, name=name, **settings)
        score_with = neighbour_changes if kind == NEIGHBOURS else pseudo_log_likelihoods
        score = partial(score_with, loaded)
    identity = {each: str(getattr(loaded, each)) for each in OF_MODEL}
    return identity | ({"scheme": NEIGHBOURS_SCHEME} if kind == NEIGHBOURS else {}), score


def _fill_stores(
    kind: str, models: Mapping[str, str], built: Built, task: Task
) -> list[dict[str, str]]:
    """Add the missing scores of a task to each model's store; return the stores' identities."""
    identities = []
    blocks = task.of(range(len(built.sizes)))
    for name, model in models.items():
        identity, score = _load(kind, name, model, built.config)
        identities.append(identity)
        at_once = _TEXTS_AT_ONCE * (1 if identity["device"] == "cpu" else 8)

        def answer(
            texts: Sequence[str], score: Score = score, size: int = at_once
        ) -> Iterator[tuple[Sequence[int], pa.Table]]:
            for start in range(0, len(texts), size):
                places = range(start, min(start + size, len(texts)))
                yield places, table_of(score([texts[i] for i in places]))

        ask(
            likelihood_store(built.store(built.run.likelihoods), identity),
            (list(chain.from_iterable(_texts(kind, built, block)[1])) for block in blocks),
            answer,
            key=key_of,
            sizes=[built.sizes[block] for block in blocks],
            what=name,
            unit="problem",
            at_once=1 if identity["device"] == "cpu" else at_once,
        )
    return identities


@keeps_result
def score_unit(folder: Path, unit: str) -> list[dict[str, str]]:
    """Do a unit of work: add a task's missing scores to each store; return their identities."""
    built, plan = Built.of_task(folder)
    kind, models = plan["kind"], plan["models"]
    _require_models(kind, models, built.config, this_machine(built.config.device))
    return _fill_stores(kind, models, built, Task.parse(unit))


def _texts(kind: str, built: Built, number: int) -> tuple[pa.Table, list[list[str]]]:
    """Read a block's replacements and, for each, the texts to score or the items of `item_of`."""
    problems = built.problems(number)
    rows = built.replacements(problems, REPLACEMENT_KEY)
    if kind == NEIGHBOURS:
        rows = of_pairs(rows, distinct_rows(built.build.variants, ["seed_id", "word_class"]))
    seeds = {seed.seed_id: seed for seed in problems.seeds}
    alone = rows.select(list(REPLACEMENT_KEY))
    # Drops the further edits, which come after the word.
    words = {n: pc.split_pattern(alone[n], " ") for n in ("word", "replacement")}
    alone = with_columns(alone, {n: pc.list_element(words[n], 0) for n in words})
    if not built.config.scramble:
        alone, *_ = adapt(problems, alone, built.tagger, built.config)
    found = []
    edits = text_edits_of(alone, problems)
    for seed_id, of_texts in zip(rows["seed_id"].to_pylist(), edits, strict=True):
        old = seeds[seed_id].texts
        new = [substitute(text, *edit) for text, edit in zip(old, of_texts, strict=True)]
        if kind == NEIGHBOURS:
            sides = zip(old, of_texts, new, strict=True)
            found.append([item_of(text, edit[0], *after) for text, edit, after in sides if edit[0]])
        else:
            found.append([*old, *(text for text, _ in new)])
    return rows, found


def _write(
    kind: str, file: Path, built: Built, identities: Sequence[Mapping[str, str]]
) -> dict[str, int]:
    """Write the changes of replacements in nats, as means over the models; return counts."""
    root = built.store(built.run.likelihoods)
    stores = [likelihood_store(root, identity) for identity in identities]
    names = ("neighbour_change",) if kind == NEIGHBOURS else built.config.problem_format.pll_changes
    keys = ((name, pa.string()) for name in REPLACEMENT_KEY)
    schema = pa.schema([*keys, *((name, pa.float32()) for name in names)])
    counts = {"texts": 0, "windowed": 0, "replacements": 0}
    with atomic(file) as path, RowGroupWriter(path, schema) as written:
        for number in range(len(built.sizes)):
            rows, of_rows = _texts(kind, built, number)
            texts = list(dict.fromkeys(chain.from_iterable(of_rows)))
            found = [read_likelihoods(store, texts) for store in stores]
            counts["texts"] += len(texts)
            counts["windowed"] += int(np.any([each.windowed for each in found], axis=0).sum())
            counts["replacements"] += len(rows)
            means = np.mean([each.pll for each in found], axis=0)
            of_text = dict(zip(texts, means.tolist(), strict=True))
            columns = {name: rows[name] for name in REPLACEMENT_KEY}
            if kind == NEIGHBOURS:
                of_row = [float(np.mean([of_text[each] for each in row])) for row in of_rows]
                columns[names[0]] = pa.array(of_row, pa.float32(), from_pandas=True)
            else:
                for n, name in enumerate(names):
                    # A text without the word stays the same.
                    sides = [(row[n], row[n + len(names)]) for row in of_rows]
                    columns[name] = [
                        None if old == new else of_text[new] - of_text[old] for old, new in sides
                    ]
            written.write(pa.table(columns, schema=schema))
    return counts
