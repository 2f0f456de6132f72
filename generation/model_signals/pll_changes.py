"""`merge-nli signals`: how far replacements change the likelihood of their texts.

The one signal that wants a model, a masked LM or a causal one, so it is a phase of its own, after
a build; later builds join it from `signals.parquet`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tqdm import tqdm

from generation.config import Config
from generation.model_signals.built import Built
from generation.model_signals.likelihoods import (
    CAUSAL_SCHEME,
    SCHEME,
    Identity,
    Likelihoods,
    LikelihoodStore,
    pseudo_log_likelihoods,
)
from generation.problems.shared_words import TaggedProblems
from generation.problems.tagging import Tagger
from generation.records import REPLACEMENT_KEY
from generation.run_folder import RunFolder
from generation.signals.signal_columns import CAUSAL, MASKED, signal_schema
from generation.suggestions.ask import mlm_names
from generation.variants.adaptation import adapt
from generation.variants.perturbations import text_edits_of
from generation.variants.rows import substitute
from merge_dataset.executors.calls import says
from merge_dataset.executors.plan import Distribution
from merge_dataset.files import RowGroupWriter, atomic
from merge_metric.models.heads import CAUSAL_LM, MASKED_LM, Head
from merge_metric.models.pair_model import Share
from merge_metric.models.readiness import (
    Machine,
    Wanted,
    look_at,
    machine_for,
    require_all,
    this_machine,
)

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
    with Built.held(run, of) as built:
        settings = {"device": device, "dtype": dtype, "batch_tokens": batch_tokens}
        kind = _MASKED if lm is None else _CAUSAL
        return _score(built, kind, mlm or lm or "", settings, distribution)


def _score(
    built: Built,
    kind: _Kind,
    model: str,
    settings: dict[str, Any],
    distribution: Distribution | None,
) -> dict[str, Any]:
    """Score a build's texts and write what came of it."""
    config, build = built.config(settings), built.build
    _require_known_edits(build, config)
    _look_at_model(kind, model, config, machine_for(distribution, config.device))
    if distribution is None:
        scorer = _Scorer.load(kind, model, built.run, config)
    else:
        scorer = _score_in_tasks(built, kind, model, settings, distribution)
    build.signals_made.unlink(missing_ok=True)
    counts = _write(built, config, scorer)
    shutil.rmtree(build.tasks("signals"), ignore_errors=True)
    made = {kind.key: asdict(scorer.store.identity), "scheme": kind.scheme, **counts}
    return built.record(build.signals_made, made, build.signals)


def _look_at_model(kind: _Kind, model: str, config: Config, machine: Machine) -> None:
    """Raise ValueError where the model cannot be used, or has no room.

    Args:
        kind: Its kind.
        model: Its place.
        config: The settings.
        machine: Where it will run.
    """
    ((name, source),) = mlm_names([model]).items()
    wanted = Wanted(model=source, head=kind.head, short_name=name, dtype=config.dtype)
    require_all(look_at([wanted], machine), machine)


def _require_known_edits(build: RunFolder, config: Config) -> None:
    """Raise ValueError where words were adapted before their letters were shuffled.

    Which articles and other forms go with shuffled letters only the words before could tell.
    """
    if config.scramble and (config.families == "inflect" or config.repair_articles):
        raise ValueError(
            f"{build.path}: expected a build without scrambled letters, or without families and "
            "repair_articles, as nothing says which of these go with shuffled letters; take the "
            "signals of the same build without scrambling"
        )


class _Model(Protocol):
    """A model by the values that a store's identity has."""

    @property
    def name(self) -> str: ...
    @property
    def revision(self) -> str: ...
    @property
    def architecture(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> str: ...


_Score = Callable[[Sequence[str], Callable[[int], object]], Likelihoods]
"""Scores texts, and tells how many are done as they are."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of model that scores texts."""

    key: str
    """Its key in `signals.json` and manifests."""
    scheme: str
    head: Head
    load: Callable[[str, str, Config], tuple[_Model, _Score]]
    """Loads it by its place, its name and the settings."""


def _load_masked(source: str, name: str, config: Config) -> tuple[_Model, _Score]:
    from generation.suggestions.masked_lm import MaskedLM

    mlm = MaskedLM.load(source, name=name, device=config.device, dtype=config.dtype)
    return mlm, lambda texts, on_progress: pseudo_log_likelihoods(
        mlm, texts, batch_tokens=config.batch_tokens, on_progress=on_progress
    )


def _load_causal(source: str, name: str, config: Config) -> tuple[_Model, _Score]:
    from generation.model_signals.causal_lm import CausalLM

    lm = CausalLM.load(source, name=name, device=config.device, dtype=config.dtype)
    return lm, lambda texts, on_progress: lm.log_likelihoods(texts, on_progress=on_progress)


_MASKED: Final = _Kind(MASKED, SCHEME, MASKED_LM, _load_masked)
_CAUSAL: Final = _Kind(CAUSAL, CAUSAL_SCHEME, CAUSAL_LM, _load_causal)


@dataclass(frozen=True, slots=True)
class _Scorer:
    """A model and the store of its likelihoods."""

    likelihoods: _Score
    store: LikelihoodStore

    @classmethod
    def load(cls, kind: _Kind, model: str, base: RunFolder, config: Config) -> Self:
        """Load the model and open its store."""
        ((name, source),) = mlm_names([model]).items()
        loaded, likelihoods = kind.load(source, name, config)
        identity = Identity(
            name=name,
            revision=loaded.revision,
            architecture=loaded.architecture,
            dtype=loaded.dtype,
            device=loaded.device,
        )
        return cls(likelihoods, LikelihoodStore(_store_root(base, config), identity))

    def score(self, texts: Sequence[str], bar: tqdm[Any]) -> Likelihoods:
        """Return likelihoods of distinct texts; those missing are computed and stored.

        Args:
            texts: As many as fit into memory.
            bar: Counts them.
        """
        missing = self.store.missing(texts)
        known = len(texts) - sum(map(len, missing))
        if not bar.disable:
            bar.initial += known  # what is there already says nothing of the speed
        bar.update(known)
        self.add(missing, bar)
        return self.store.of(texts)

    def add(self, missing: Sequence[list[str]], bar: tqdm[Any]) -> None:
        """Compute and store likelihoods.

        Args:
            missing: Texts without any, in the parts that are to be written.
            bar: Counts them.
        """
        at_once = _PARTS_AT_ONCE.get(self.store.identity.device, _PARTS_AT_ONCE_ACCELERATOR)
        for start in range(0, len(missing), at_once):
            parts = missing[start : start + at_once]
            found = self.likelihoods([text for part in parts for text in part], bar.update)
            done = 0
            for part in parts:
                self.store.add(part, found.take(slice(done, done + len(part))))
                done += len(part)


def _store_root(base: RunFolder, config: Config) -> Path:
    """Return the folder that holds the stores of likelihoods."""
    return Path(config.store) / base.likelihoods.name if config.store else base.likelihoods


def _write(built: Built, config: Config, scorer: _Scorer) -> dict[str, int]:
    """Write `signals.parquet`, block by block; the numbers of texts and replacements."""
    schema = signal_schema(config.problem_format)
    tagger = Tagger.load(config.tagger)
    replacements = pq.ParquetFile(built.build.replacements).metadata.num_rows
    counts = {"texts": 0, "windowed": 0, "replacements": replacements}
    # At most so many texts; block by block it shows how many are the same.
    total = len(config.problem_format.fields) * replacements
    with (
        tqdm(total=total, desc=scorer.store.identity.name, unit="text") as bar,
        atomic(built.build.signals) as path,
        RowGroupWriter(path, schema) as signals,
    ):
        for number in built.blocks():
            rows, pairs = _block(built, config, tagger, number)
            texts = _distinct(pairs)
            twice = len(config.problem_format.fields) * len(pairs) - len(texts)
            bar.total = (bar.total or 0) - twice
            found = scorer.score(texts, bar)
            counts["texts"] += len(texts)
            counts["windowed"] += int(found.windowed.sum())
            pll = dict(zip(texts, found.pll.tolist(), strict=True))
            changes = [
                # A text in which the word does not stand stays the same.
                [None if old == new else pll[new] - pll[old] for old, new in zip(*p, strict=True)]
                for p in pairs
            ]
            signals.write(_table(rows, changes, schema))
    return counts


_Texts = Sequence[str]


def _block(
    built: Built, config: Config, tagger: Tagger, number: int
) -> tuple[pa.Table, list[tuple[_Texts, _Texts]]]:
    """Read a block's replacements, and their seeds' texts without and with each of them."""
    problems = built.problems(number, tagger, config)
    rows = built.replacements(problems, REPLACEMENT_KEY)
    return rows, list(_texts(problems, rows, tagger, config))


def _distinct(pairs: Iterable[tuple[_Texts, _Texts]]) -> list[str]:
    """List the distinct texts; those of a seed, which share most of their words, together."""
    return list(dict.fromkeys(text for pair in pairs for side in pair for text in side))


def _texts(
    problems: TaggedProblems, rows: pa.Table, tagger: Tagger, config: Config
) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield the texts of each replacement's seed, and the same with the replacement."""
    seeds = {seed.seed_id: seed for seed in problems.seeds}
    alone = _by_words_alone(rows)
    if not config.scramble:
        alone, _ = adapt(problems, alone, tagger, config)
    edits = text_edits_of(alone, problems)
    for seed_id, of_texts in zip(rows["seed_id"].to_pylist(), edits, strict=True):
        texts = seeds[seed_id].texts
        yield texts, [substitute(text, *e)[0] for text, e in zip(texts, of_texts, strict=True)]


# --- In tasks ---


def _score_in_tasks(
    built: Built,
    kind: _Kind,
    model: str,
    settings: Mapping[str, Any],
    distribution: Distribution,
) -> _Scorer:
    """Let tasks fill the store, and return it with a model that is not asked any more."""
    plan = {"kind": kind.key, "model": model, "settings": settings}
    function = "generation.model_signals.pll_changes:score_unit"
    identity = built.in_tasks(function, built.build.tasks("signals"), plan, distribution)

    def refuse(texts: Sequence[str], on_progress: Callable[[int], object]) -> Likelihoods:
        raise ValueError(
            f"{built.build.path}: expected likelihoods of all texts from the tasks, {len(texts)} "
            "are missing; run the same command again"
        )

    root = _store_root(built.run, built.config(settings))
    return _Scorer(refuse, LikelihoodStore(root, Identity(**identity)))


@says
def score_unit(folder: Path, unit: str) -> dict[str, Any]:
    """Do a unit of work: add a share of the missing likelihoods to the store.

    Args:
        folder: `RunFolder.tasks`.
        unit: A share of the parts of all blocks.

    Returns:
        The identity of the store.

    Raises:
        ValueError: the model cannot be used, or has no room.
    """
    (built, plan), share = Built.of_task(folder), Share.parse(unit)
    kind = next(each for each in (_MASKED, _CAUSAL) if each.key == plan["kind"])
    config = built.config(plan["settings"])
    _look_at_model(kind, plan["model"], config, this_machine(config.device))
    scorer = _Scorer.load(kind, plan["model"], built.run, config)
    tagger, blocks = Tagger.load(config.tagger), built.blocks()
    with tqdm(desc=scorer.store.identity.name, unit="text") as bar:
        for block in blocks:
            if share.looks_at(block, len(blocks)):
                _, pairs = _block(built, config, tagger, block)
                mine = partial(share.takes, window=block, windows=len(blocks))
                scorer.add(scorer.store.missing(_distinct(pairs), mine), bar)
    return asdict(scorer.store.identity)


# --- Texts ---


def _by_words_alone(rows: pa.Table) -> pa.Table:
    """Return replacements by their words, without the further edits, which stand after them."""
    alone = rows.select(list(REPLACEMENT_KEY))
    for name in ("word", "replacement"):
        first = pc.list_element(pc.split_pattern(alone[name], " "), 0)
        column = alone.schema.get_field_index(name)
        alone = alone.set_column(column, alone.schema.field(column), first)
    return alone


def _table(
    rows: pa.Table, changes: Sequence[Sequence[float | None]], schema: pa.Schema
) -> pa.Table:
    """Return the rows of `signals.parquet`: keys, and the change of each text."""
    names = schema.names[len(REPLACEMENT_KEY) :]
    columns = {name: [of_row[n] for of_row in changes] for n, name in enumerate(names)}
    return pa.table({**{name: rows[name] for name in REPLACEMENT_KEY}, **columns}, schema=schema)
