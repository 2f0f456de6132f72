"""`merge-nli signals`: how far replacements change the likelihood of their texts.

The one signal that wants a model, a masked LM or a causal one, so it is a phase of its own, after
a build; later builds join it from `signals.parquet`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tqdm import tqdm

from generation.config import Config
from generation.model_signals.built import Built, absolute
from generation.model_signals.likelihoods import (
    CAUSAL_SCHEME,
    SCHEME,
    CausalLM,
    Likelihoods,
    LikelihoodStore,
    pseudo_log_likelihoods,
)
from generation.problems.tagging import Tagger
from generation.records import REPLACEMENT_KEY, Span
from generation.signals.signal_columns import CAUSAL, MASKED
from generation.suggestions.ask import mlm_names
from generation.variants.adaptation import adapt
from generation.variants.perturbations import text_edits_of
from generation.variants.rows import substitute
from generation.variants.sampling import of_pairs
from merge_dataset.executors.calls import says
from merge_dataset.executors.plan import Distribution
from merge_dataset.files import RowGroupWriter, atomic
from merge_metric.models.inspection import CAUSAL_LM, MASKED_LM
from merge_metric.models.pair_model import ModelRequest, Share
from merge_metric.models.readiness import (
    Machine,
    inspect_models,
    machine_for,
    require_all,
    this_machine,
)

if TYPE_CHECKING:
    from generation.suggestions.masked_lm import MaskedLM

_PARTS_AT_ONCE: Final = {"cpu": 1}
_PARTS_AT_ONCE_ACCELERATOR: Final = 8
"""Parts of the store that are scored together: an accelerator wants more texts than one has."""


def write_pll_changes(
    run: str | Path,
    mlm: str | None = None,
    *,
    lm: str | None = None,
    of: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    batch_tokens: int | None = None,
    distribution: Distribution | None = None,
) -> dict[str, Any]:
    """Score the texts of a build's seeds and of all its replacements; write `signals.parquet`.

    Resumes where an earlier run stopped: each distinct text is scored once per model.

    Args:
        run: A run folder after `build`.
        mlm: Hub id (optionally `id@revision`) or folder of a masked LM; any, not only one of
            those that suggested the replacements.
        lm: Instead, a causal LM, which may also be a .gguf file.
        of: Name of a build inside the folder, such as an ablation; by default the run's own.
        device: By default as the run's settings say, like the next two.
        dtype: Number format of the weights.
        batch_tokens: Tokens in a forward pass.
        distribution: Where tasks score the texts; by default all is done here.

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
    model = mlm or lm or ""
    with Built.held(run, of) as built:
        settings = {"device": device, "dtype": dtype, "batch_tokens": batch_tokens}
        config, build = built.config(settings), built.build
        if config.scramble and (config.families == "inflect" or config.repair_articles):
            # Which articles and other forms go with the letters, only the words before could tell.
            raise ValueError(
                f"{build.path}: expected a build without scrambled letters, or without families "
                "and repair_articles, as nothing says which of these go with shuffled letters; "
                "take the signals of the same build without scrambling"
            )
        _look_at_model(kind, model, config, machine_for(distribution, config.device))
        if distribution is None:
            identity, score = _load(kind, model, config)
        else:
            plan = {"kind": kind, "model": absolute(model), "settings": settings}
            unit = f"{__name__}:score_unit"
            identity = built.in_tasks(unit, build.tasks("signals"), plan, distribution)

            def score(texts: Sequence[str], on_progress: Callable[[int], object]) -> Likelihoods:
                raise ValueError(
                    f"{build.path}: expected likelihoods of all texts from the tasks, "
                    f"{len(texts)} are missing; run the same command again"
                )

        store = open_store(built, config, identity)
        build.signals_made.unlink(missing_ok=True)
        counts = _write(built, config, store, score)
        shutil.rmtree(build.tasks("signals"), ignore_errors=True)
        made = {kind: store.identity, "scheme": scheme, **counts}
        return built.record(build.signals_made, made, build.signals)


Score = Callable[[Sequence[str], Callable[[int], object]], Likelihoods]
"""Scores texts, and tells how many are done as they are."""


def _look_at_model(kind: str, model: str, config: Config, machine: Machine) -> None:
    """Raise ValueError where the model cannot be used, or has no room."""
    ((name, source),) = mlm_names([model]).items()
    head = MASKED_LM if kind == MASKED else CAUSAL_LM
    asked = (name, ModelRequest(model=source, dtype=config.dtype), head)
    require_all(inspect_models([asked], machine), machine)


def require_causal_lm(config: Config, distribution: Distribution | None) -> None:
    """Raise ValueError where `scored_by` names no causal LM that can be used, or has no room."""
    _look_at_model(CAUSAL, config.scored_by, config, machine_for(distribution, config.device))


def _load(kind: str, model: str, config: Config) -> tuple[dict[str, str], Score]:
    """Load a model; return the identity of its store, and what scores texts."""
    ((name, source),) = mlm_names([model]).items()
    loaded: MaskedLM | CausalLM
    if kind == MASKED:
        from generation.suggestions.masked_lm import MaskedLM

        mlm = loaded = MaskedLM.load(source, name=name, device=config.device, dtype=config.dtype)

        def score(texts: Sequence[str], on_progress: Callable[[int], object]) -> Likelihoods:
            return pseudo_log_likelihoods(
                mlm, texts, batch_tokens=config.batch_tokens, on_progress=on_progress
            )
    else:
        lm = loaded = CausalLM.load(source, name=name, device=config.device, dtype=config.dtype)

        def score(texts: Sequence[str], on_progress: Callable[[int], object]) -> Likelihoods:
            return lm.log_likelihoods(texts, on_progress=on_progress)

    identity = {
        "name": name,
        "revision": loaded.revision,
        "architecture": loaded.architecture,
        "dtype": loaded.dtype,
        "device": loaded.device,
    }
    return identity, score


def open_store(built: Built, config: Config, identity: Mapping[str, str]) -> LikelihoodStore:
    """Open the store of a model's likelihoods."""
    own = built.run.likelihoods
    return LikelihoodStore(Path(config.store) / own.name if config.store else own, identity)


def fill(
    store: LikelihoodStore, missing: Sequence[list[str]], score: Score, bar: tqdm[Any]
) -> None:
    """Compute likelihoods, and store them part by part."""
    at_once = _PARTS_AT_ONCE.get(store.identity["device"], _PARTS_AT_ONCE_ACCELERATOR)
    for start in range(0, len(missing), at_once):
        parts = missing[start : start + at_once]
        found = score([text for part in parts for text in part], bar.update)
        done = 0
        for part in parts:
            store.add(part, found.take(slice(done, done + len(part))))
            done += len(part)


def _write(built: Built, config: Config, store: LikelihoodStore, score: Score) -> dict[str, int]:
    """Write `signals.parquet`, block by block; return the numbers of texts and replacements."""
    names = config.problem_format.pll_changes
    keys = ((name, pa.string()) for name in REPLACEMENT_KEY)
    schema = pa.schema([*keys, *((name, pa.float32()) for name in names)])  # changes in nats
    tagger = Tagger.load(config.tagger)
    replacements = pq.ParquetFile(built.build.replacements).metadata.num_rows
    counts = {"texts": 0, "windowed": 0, "replacements": replacements}
    # The most texts that there may be; each block shows how many are the same.
    total = len(names) * replacements
    with (
        tqdm(total=total, desc=store.identity["name"], unit="text") as bar,
        atomic(built.build.signals) as path,
        RowGroupWriter(path, schema) as signals,
    ):
        for number in built.blocks():
            rows, pairs = _block(built, config, tagger, number)
            texts = _distinct(pairs)
            bar.total = (bar.total or 0) - (len(names) * len(pairs) - len(texts))
            missing = store.missing(texts)
            known = len(texts) - sum(map(len, missing))
            if not bar.disable:
                bar.initial += known  # what is there already says nothing of the speed
            bar.update(known)
            fill(store, missing, score, bar)
            found = store.of(texts)
            counts["texts"] += len(texts)
            counts["windowed"] += int(found.windowed.sum())
            pll = dict(zip(texts, found.pll.tolist(), strict=True))
            columns = {name: rows[name] for name in REPLACEMENT_KEY}
            for n, name in enumerate(names):
                # A text in which the word does not stand stays the same.
                columns[name] = [
                    None if old[n] == new[n] else pll[new[n]] - pll[old[n]] for old, new in pairs
                ]
            signals.write(pa.table(columns, schema=schema))
    return counts


_Texts = Sequence[str]

Changed = tuple[str, Sequence[Span], str, Sequence[Span]]
"""A text, the spans of it that change, the text afterwards, and the spans there."""


def changed_texts(
    built: Built, config: Config, tagger: Tagger, number: int, *, pairs: pa.Table | None = None
) -> tuple[pa.Table, list[list[Changed]]]:
    """Read a block's replacements, and what each of them makes of its seed's texts.

    `pairs` are the (seed_id, word_class) wanted, by default all.
    """
    problems = built.problems(number, tagger, config)
    rows = built.replacements(problems, REPLACEMENT_KEY)
    if pairs is not None:
        rows = of_pairs(rows, pairs)
    seeds = {seed.seed_id: seed for seed in problems.seeds}
    alone = rows.select(list(REPLACEMENT_KEY))
    for name in ("word", "replacement"):
        # Without the further edits, which stand after the word.
        first = pc.list_element(pc.split_pattern(alone[name], " "), 0)
        column = alone.schema.get_field_index(name)
        alone = alone.set_column(column, alone.schema.field(column), first)
    if not config.scramble:
        alone, _ = adapt(problems, alone, tagger, config)
    edits = text_edits_of(alone, problems)
    found: list[list[Changed]] = []
    for seed_id, of_texts in zip(rows["seed_id"].to_pylist(), edits, strict=True):
        texts = seeds[seed_id].texts
        found.append(
            [
                (text, edit[0], *substitute(text, *edit))
                for text, edit in zip(texts, of_texts, strict=True)
            ]
        )
    return rows, found


def _block(
    built: Built, config: Config, tagger: Tagger, number: int
) -> tuple[pa.Table, list[tuple[_Texts, _Texts]]]:
    """Read a block's replacements, and their seeds' texts without and with each of them."""
    rows, changed = changed_texts(built, config, tagger, number)
    return rows, [([old for old, *_ in row], [new for _, _, new, _ in row]) for row in changed]


def _distinct(pairs: Iterable[tuple[_Texts, _Texts]]) -> list[str]:
    """List the distinct texts; those of a seed, which share most of their words, together."""
    return list(dict.fromkeys(text for pair in pairs for side in pair for text in side))


@says
def score_unit(folder: Path, unit: str) -> dict[str, Any]:
    """Do a unit of work: add a share of the missing likelihoods to the store.

    Returns:
        The identity of the store.

    Raises:
        ValueError: the model cannot be used, or has no room.
    """
    (built, plan), share = Built.of_task(folder), Share.parse(unit)
    kind, model, config = plan["kind"], plan["model"], built.config(plan["settings"])
    _look_at_model(kind, model, config, this_machine(config.device))
    identity, score = _load(kind, model, config)
    store = open_store(built, config, identity)
    tagger, blocks = Tagger.load(config.tagger), built.blocks()
    with tqdm(desc=identity["name"], unit="text") as bar:
        for block in blocks:
            if share.looks_at(block, len(blocks)):
                _, pairs = _block(built, config, tagger, block)
                mine = partial(share.takes, window=block, windows=len(blocks))
                fill(store, store.missing(_distinct(pairs), mine), score, bar)
    return identity
