"""`merge-nli signals`: how far replacements change the likelihood of texts, or of words beside.

The signals that want a language model, so they are a phase of their own, after a build; later
builds join them from `signals.parquet` and `neighbours.parquet`. Each distinct text is scored once
per model, in the store of likelihoods.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tqdm import tqdm

from generation.config import Config
from generation.model_signals.built import Built, absolute
from generation.model_signals.likelihoods import (
    CAUSAL_SCHEME,
    NEIGHBOURS_SCHEME,
    SCHEME,
    CausalLM,
    Likelihoods,
    LikelihoodStore,
    item_of,
    neighbour_changes,
    pseudo_log_likelihoods,
)
from generation.problems.tagging import Tagger
from generation.records import REPLACEMENT_KEY
from generation.signals.signal_columns import CAUSAL, MASKED
from generation.suggestions.ask import mlm_names
from generation.suggestions.masked_lm import MaskedLM
from generation.variants.adaptation import adapt
from generation.variants.perturbations import text_edits_of
from generation.variants.rows import substitute
from generation.variants.sampling import of_pairs
from merge_dataset.executors.calls import says
from merge_dataset.executors.plan import Distribution
from merge_dataset.files import RowGroupWriter, atomic, distinct_rows, read_record
from merge_metric.models.checkpoints import load
from merge_metric.models.inspection import CAUSAL_LM, MASKED_LM, inspect
from merge_metric.models.pair_model import ModelRequest, Share
from merge_metric.models.readiness import (
    Machine,
    inspect_models,
    machine_for,
    require_all,
    this_machine,
)

_NEIGHBOURS: Final = "neighbours"
"""The kind of signal beside those by a masked LM (`MASKED`) and a causal one (`CAUSAL`)."""
_PARTS_AT_ONCE: Final = {"cpu": 1}
_PARTS_AT_ONCE_ACCELERATOR: Final = 8
"""Parts of the store that are scored together: an accelerator wants more texts than one has."""

Score = Callable[..., Likelihoods]
"""Scores texts, and tells `on_progress` how many are done as they are."""


def write_pll_changes(
    run: str | Path,
    mlm: str | None = None,
    *,
    lm: str | None = None,
    of: str | None = None,
    distribution: Distribution | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Score the texts of a build's seeds and of all its replacements; write `signals.parquet`.

    Resumes where an earlier run stopped: each distinct text is scored once per model.

    Args:
        run: A run folder after `build`.
        mlm: Hub id (optionally `id@revision`) or folder of a masked LM; any, not only one of
            those that suggested the replacements.
        lm: Instead, a causal LM, which may also be a .gguf file.
        of: Name of a build inside the folder, such as an ablation; by default the run's own.
        distribution: Where tasks score the texts; by default all is done here.
        settings: `device`, `dtype` and `batch_tokens`; by default as the run's settings say.

    Returns:
        The contents of `signals.json`: the model and the numbers of texts and replacements.

    Raises:
        FileNotFoundError: there is no such build.
        ExecutorError: tasks failed; what they finished is kept.
        ValueError: not one model is named, it or the tagger cannot be loaded, or what changes in
            the build's texts cannot be told from its replacements.
    """
    if (mlm is None) == (lm is None):
        raise ValueError(f"mlm, lm: expected one of them, got {'none' if lm is None else 'both'}")
    kind, scheme = (MASKED, SCHEME) if lm is None else (CAUSAL, CAUSAL_SCHEME)
    with Built.held(run, of) as built:
        config = built.config(settings)
        if config.scramble and (config.families == "inflect" or config.repair_articles):
            # Which articles and other forms go with the letters, only the words before could tell.
            raise ValueError(
                f"{built.build.path}: expected a build without scrambled letters, or without "
                "families and repair_articles, as nothing says which of these go with shuffled "
                "letters; take the signals of the same build without scrambling"
            )
        models = mlm_names([mlm or lm or ""])
        identities, counts = _make(kind, models, built, config, distribution)
        made = {kind: identities[0], "scheme": scheme, **counts}
        return built.record(built.build.signals_made, made, built.build.signals)


def write_neighbour_changes(
    run: str | Path,
    *,
    of: str | None = None,
    distribution: Distribution | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Score the words beside the replacements of eligible seeds; write `neighbours.parquet`.

    All masked LMs that suggested replacements are asked. Arguments, results and errors are
    otherwise those of `write_pll_changes`.
    """
    with Built.held(run, of) as built:
        config, build = built.config(settings), built.build
        if config.scramble:
            raise ValueError(
                f"{build.path}: expected a build without scrambled letters; score the same build "
                "without scrambling"
            )
        used = {mlm["name"] for mlm in read_record(build.manifest)["mlms"]}
        models = {name: model for name, model in mlm_names(config.mlms).items() if name in used}
        identities, counts = _make(_NEIGHBOURS, models, built, config, distribution)
        made = {"mlms": identities, "scheme": NEIGHBOURS_SCHEME, **counts}
        return built.record(build.neighbours_made, made, build.neighbours)


def _make(
    kind: str,
    models: Mapping[str, str],
    built: Built,
    config: Config,
    distribution: Distribution | None,
) -> tuple[list[dict[str, str]], dict[str, int]]:
    """Score with each model, here or in tasks, and write the file of changes.

    Returns the identities of the models' stores, and the numbers of texts and replacements.
    """
    build, score = built.build, None
    work: Literal["signals", "neighbours"] = "neighbours" if kind == _NEIGHBOURS else "signals"
    _require_models(kind, models, config, machine_for(distribution, config.device))
    if distribution is not None:
        plan = {
            "kind": kind,
            "models": {name: absolute(model) for name, model in models.items()},
            "settings": {n: getattr(config, n) for n in ("device", "dtype", "batch_tokens")},
        }
        unit = f"{__name__}:score_unit"
        identities = built.in_tasks(unit, build.tasks(work), plan, distribution)
    elif kind == _NEIGHBOURS:
        identities = [
            _fill_store(kind, name, model, built, config, Share()) for name, model in models.items()
        ]
    else:
        [(name, model)] = models.items()
        identity, score = _load(kind, name, model, config)
        identities = [identity]
    made = build.neighbours_made if kind == _NEIGHBOURS else build.signals_made
    stores = [_open_store(built, config, identity) for identity in identities]
    made.unlink(missing_ok=True)
    counts = _write(kind, built, config, stores, score)
    shutil.rmtree(build.tasks(work), ignore_errors=True)
    return identities, counts


def _require_models(kind: str, models: Mapping[str, str], config: Config, machine: Machine) -> None:
    """Raise ValueError where a model cannot be used, or has no room."""
    head = CAUSAL_LM if kind == CAUSAL else MASKED_LM
    asked = [
        (name, ModelRequest(model=model, dtype=config.dtype), head)
        for name, model in models.items()
    ]
    require_all(inspect_models(asked, machine))


def _load(kind: str, name: str, model: str, config: Config) -> tuple[dict[str, str], Score]:
    """Load a model; return the identity of its store, and what scores texts."""
    loaded: MaskedLM | CausalLM
    score: Score
    if kind == CAUSAL:
        checkpoint = load(inspect(model, CAUSAL_LM), device=config.device, dtype=config.dtype)
        loaded = CausalLM(checkpoint._replace(name=name))
        score = loaded.log_likelihoods
    else:
        loaded = MaskedLM.load(model, name=name, device=config.device, dtype=config.dtype)
        score_with = neighbour_changes if kind == _NEIGHBOURS else pseudo_log_likelihoods
        score = partial(score_with, loaded, batch_tokens=config.batch_tokens)
    names = ("name", "revision", "architecture", "dtype", "device")
    identity = {each: str(getattr(loaded, each)) for each in names}
    return identity | ({"scheme": NEIGHBOURS_SCHEME} if kind == _NEIGHBOURS else {}), score


def _open_store(built: Built, config: Config, identity: Mapping[str, str]) -> LikelihoodStore:
    own = built.run.likelihoods
    return LikelihoodStore(Path(config.store) / own.name if config.store else own, identity)


def _fill(
    store: LikelihoodStore, missing: Sequence[list[str]], score: Score, bar: tqdm[Any]
) -> None:
    """Compute likelihoods, and store them part by part."""
    at_once = _PARTS_AT_ONCE.get(store.identity["device"], _PARTS_AT_ONCE_ACCELERATOR)
    for start in range(0, len(missing), at_once):
        parts = missing[start : start + at_once]
        found = score([text for part in parts for text in part], on_progress=bar.update)
        done = 0
        for part in parts:
            store.add(part, found.take(slice(done, done + len(part))))
            done += len(part)


def _fill_store(
    kind: str, name: str, model: str, built: Built, config: Config, share: Share
) -> dict[str, str]:
    """Add a share of what is missing of a model to its store; return the store's identity."""
    identity, score = _load(kind, name, model, config)
    store = _open_store(built, config, identity)
    tagger, blocks = Tagger.load(config.tagger), built.blocks()
    with tqdm(desc=name, unit="text") as bar:
        for block in blocks:
            if share.looks_at(block, len(blocks)):
                _, texts = _texts(kind, built, config, tagger, block)
                mine = partial(share.takes, window=block, windows=len(blocks))
                _fill(store, store.missing(chain.from_iterable(texts), mine), score, bar)
    return identity


@says
def score_unit(folder: Path, unit: str) -> list[dict[str, str]]:
    """Do a unit of work: add a share of what is missing to each store; return their identities."""
    (built, plan), share = Built.of_task(folder), Share.parse(unit)
    kind, models, config = plan["kind"], plan["models"], built.config(plan["settings"])
    _require_models(kind, models, config, this_machine(config.device))
    return [_fill_store(kind, name, model, built, config, share) for name, model in models.items()]


def _texts(
    kind: str, built: Built, config: Config, tagger: Tagger, number: int
) -> tuple[pa.Table, list[list[str]]]:
    """Read a block's replacements, and the texts that are scored for each of them.

    These are the seed's texts and then those with the replacement, or what `item_of` writes of
    both, then of eligible seeds alone.
    """
    problems = built.problems(number, tagger, config)
    rows = built.replacements(problems, REPLACEMENT_KEY)
    if kind == _NEIGHBOURS:
        rows = of_pairs(rows, distinct_rows(built.build.variants, ["seed_id", "word_class"]))
    seeds = {seed.seed_id: seed for seed in problems.seeds}
    alone = rows.select(list(REPLACEMENT_KEY))
    for name in ("word", "replacement"):
        # Without the further edits, which stand after the word.
        first = pc.list_element(pc.split_pattern(alone[name], " "), 0)
        column = alone.schema.get_field_index(name)
        alone = alone.set_column(column, alone.schema.field(column), first)
    if not config.scramble:
        alone, _ = adapt(problems, alone, tagger, config)
    found = []
    edits = text_edits_of(alone, problems)
    for seed_id, of_texts in zip(rows["seed_id"].to_pylist(), edits, strict=True):
        old = seeds[seed_id].texts
        new = [substitute(text, *edit) for text, edit in zip(old, of_texts, strict=True)]
        if kind == _NEIGHBOURS:
            sides = zip(old, of_texts, new, strict=True)
            found.append([item_of(text, edit[0], *after) for text, edit, after in sides if edit[0]])
        else:
            found.append([*old, *(text for text, _ in new)])
    return rows, found


def _write(
    kind: str, built: Built, config: Config, stores: Sequence[LikelihoodStore], score: Score | None
) -> dict[str, int]:
    """Write the changes of replacements, block by block, in nats; means over the stores.

    Where nothing scores, all that is wanted has to be in the stores.
    """
    build = built.build
    names = ("neighbour_change",) if kind == _NEIGHBOURS else config.problem_format.pll_changes
    keys = ((name, pa.string()) for name in REPLACEMENT_KEY)
    schema = pa.schema([*keys, *((name, pa.float32()) for name in names)])
    tagger = Tagger.load(config.tagger)
    counts = {"texts": 0, "windowed": 0, "replacements": 0}
    # The most texts that there may be; each block shows how many are the same.
    total = len(names) * pq.ParquetFile(build.replacements).metadata.num_rows
    hidden = {"disable": True} if score is None else {}
    with (
        tqdm(total=total, desc=stores[0].identity["name"], unit="text", **hidden) as bar,
        atomic(build.neighbours if kind == _NEIGHBOURS else build.signals) as path,
        RowGroupWriter(path, schema) as written,
    ):
        for number in built.blocks():
            rows, of_rows = _texts(kind, built, config, tagger, number)
            texts = list(dict.fromkeys(chain.from_iterable(of_rows)))
            if score is not None:
                bar.total = (bar.total or 0) - (len(names) * len(rows) - len(texts))
                missing = stores[0].missing(texts)
                known = len(texts) - sum(map(len, missing))
                if not bar.disable:
                    bar.initial += known  # what is there already says nothing of the speed
                bar.update(known)
                _fill(stores[0], missing, score, bar)
            elif lost := sum(len(part) for store in stores for part in store.missing(texts)):
                raise ValueError(
                    f"{build.path}: expected likelihoods of all texts from the tasks, {lost} are "
                    "missing; run the same command again"
                )
            found = [store.of(texts) for store in stores]
            counts["texts"] += len(texts)
            counts["windowed"] += int(np.any([each.windowed for each in found], axis=0).sum())
            counts["replacements"] += len(rows)
            means = np.mean([each.pll for each in found], axis=0)
            of_text = dict(zip(texts, means.tolist(), strict=True))
            columns = {name: rows[name] for name in REPLACEMENT_KEY}
            if kind == _NEIGHBOURS:
                of_row = [float(np.mean([of_text[each] for each in row])) for row in of_rows]
                columns[names[0]] = pa.array(of_row, pa.float32(), from_pandas=True)
            else:
                for n, name in enumerate(names):
                    # A text in which the word does not stand stays the same.
                    sides = [(row[n], row[n + len(names)]) for row in of_rows]
                    columns[name] = [
                        None if old == new else of_text[new] - of_text[old] for old, new in sides
                    ]
            written.write(pa.table(columns, schema=schema))
    return counts
