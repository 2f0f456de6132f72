"""`merge-nli signals`: how replacements change the likelihood of texts or neighbouring words."""

import logging
import pickle
import shutil
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from generation.config import Config
from generation.problems.on_disk import block_sizes
from generation.records import REPLACEMENT_KEY, substitute, with_columns
from generation.run_folder import SCORED, RunFolder
from generation.signals import likelihoods
from generation.suggestions.masked_lm import MaskedLM
from generation.suggestions.store import LOADED_WITH, OF_MODEL, mlm_names
from generation.variants.further_edits import adapt
from generation.variants.perturbations import perturbations_of
from generation.variants.signal_columns import (
    CAUSAL,
    COMPLETE,
    MASKED,
    NEIGHBOURS,
    ONLY,
    keys_as_texts,
)
from generation.variants.validation import of_pairs
from generation.variants.work import BlockWork
from merge_dataset import files
from merge_dataset.answer_store import KEY, AnswerStore, ask, key_of
from merge_dataset.executors import Distribution, Task, plan_of, run_blocks
from merge_metric.models.checkpoints import load
from merge_metric.models.inspection import CAUSAL_LM, MASKED_LM, Head, inspect
from merge_metric.models.pair_model import ModelRequest
from merge_metric.models.readiness import (
    Machine,
    inspect_models,
    machine_for,
    require_all,
    this_machine,
)

log = logging.getLogger(__name__)

Kind = Literal["mlm", "lm", "neighbours"]
"""Kind of change: in the log-likelihood of texts by a masked or causal LM, or of neighbours."""
KINDS: Final[Mapping[str, tuple[str, Head, Callable[[Any, Sequence[str]], pa.Table]]]] = {
    MASKED: (likelihoods.SCHEME, MASKED_LM, likelihoods.pseudo_log_likelihoods),
    CAUSAL: (likelihoods.CAUSAL_SCHEME, CAUSAL_LM, likelihoods.CausalLM.changes),
    NEIGHBOURS: (likelihoods.NEIGHBOURS_SCHEME, MASKED_LM, likelihoods.neighbour_changes),
}
"""Kind → name of the method, kind of model, and the function that scores with it."""
_TEXTS_AT_ONCE: Final = 512
"""Number of texts scored together, whose scores are then kept; eight times as many on an
accelerator, whose batches are larger."""


@dataclass(frozen=True)
class Scoring(BlockWork):
    """Texts of a build that models score, by the settings of run, build and command."""

    build: RunFolder
    """The run's own build, or one inside its folder."""
    kind: Kind
    models: Mapping[str, str]
    """Name of a model → where it is."""
    only: Sequence[str] = ()
    """Texts to score, by name; all without any."""

    def require_models(self, machine: Machine) -> None:
        """Raise ValueError if models cannot be used."""
        _, head, _ = KINDS[self.kind]
        asked = [
            (name, ModelRequest(model=model, dtype=self.config.dtype), head)
            for name, model in self.models.items()
        ]
        require_all(inspect_models(asked, machine))

    def store(self, identity: Mapping[str, str]) -> AnswerStore:
        """Open a model's scores, which are in the run's folder unless the settings name another."""
        own = self.run.likelihoods
        root = Path(self.config.store) / own.name if self.config.store else own
        described = {"scheme": likelihoods.SCHEME, **identity}
        return AnswerStore(root, described, likelihoods.SCORES, redo="merge-nli signals")


def write_changes(
    run: str | Path,
    kind: Kind,
    model: str = "",
    *,
    of: str | None = None,
    only: Sequence[str] = (),
    distribution: Distribution | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Score a build's texts; write `signals.parquet` or `neighbours.parquet`, return its record.

    A masked (`mlm`) or causal (`lm`) model scores all texts of seeds and replacements; the run's
    masked LMs (`neighbours`) score the words beside replacements of eligible seeds. `of` names a
    build inside the folder; `settings` of models, such as `device`, are by default those of the
    run. After a call with the names of some texts, `only` these, the next one keeps what else it
    scored.
    """
    if others := sorted(settings.keys() - {*LOADED_WITH}):
        raise ValueError(f"expected settings of models, {LOADED_WITH}, got {', '.join(others)}")
    is_of_words = kind == NEIGHBOURS
    base = RunFolder(Path(run))
    build = base.named(of)
    build.require("build")
    with build.locked():
        build.require_unchanged(build.manifest, [build.replacements.name], "build")
        base.require_unchanged(base.suggested, [base.problems.name], "suggest")
        manifest = files.read_record(build.manifest)
        config = Config.read(base.config).overlaid(None, {**manifest["config"], **settings})
        edits_more = config.families == "inflect" or config.repair_articles
        if config.scramble and (is_of_words or edits_more):
            # Only the words before shuffling could tell which articles and forms go with them.
            raise ValueError(
                f"{build.path}: expected a build without scrambled letters, as nothing says what "
                "goes with them; score the same build without scrambling"
            )
        models = mlm_names(config.mlms if is_of_words else [model])
        if is_of_words:
            used = {mlm["name"] for mlm in manifest["mlms"]}
            models = {name: path for name, path in models.items() if name in used}
        scoring = Scoring(base, config, build, kind, models, only=only)
        scoring.require_models(machine_for(distribution, config.device))
        name: Literal["signals", "neighbours"] = "neighbours" if is_of_words else "signals"
        folder = build.tasks(name)
        if distribution is None:
            identities = _fill_stores(scoring, Task())
        else:
            tasks = [str(task) for task in Task.all(distribution.tasks)]
            plan = {"scoring": b64encode(pickle.dumps(scoring)).decode()}
            results = run_blocks(f"{__name__}:score_task", folder, tasks, distribution, plan)
            identities = next(iter(results.values()))
        file, record = build.path / f"{name}.parquet", build.path / f"{name}.json"
        earlier = files.read_record(record) if record.is_file() else {}
        record.unlink(missing_ok=True)
        counts = _write(scoring, file, identities, file if ONLY in earlier else None)
        shutil.rmtree(folder, ignore_errors=True)
        made_by: Any = {"mlms": identities} if is_of_words else {kind: identities[0]}
        made = {**made_by, "scheme": KINDS[kind][0], **counts, "sha256": files.digest_of_file(file)}
        made |= {ONLY: [*only]} if only else {}
        files.write_record(record, {**made, "problems": files.digest_of_file(base.problems)})
        return made


def _fill_stores(scoring: Scoring, task: Task) -> list[dict[str, str]]:
    """Add a task's missing scores to the store of each model; return the models' identities."""
    config, sizes = scoring.config, block_sizes(scoring.run.problems)
    identities, blocks = [], task.of(range(len(sizes)))
    told = set[str]()
    scheme, head, score = KINDS[scoring.kind]
    for name, path in scoring.models.items():
        model: MaskedLM | likelihoods.CausalLM
        if head is CAUSAL_LM:
            model = causal_lm(path, name, config.device, config.dtype)
        else:
            settings = {setting: getattr(config, setting) for setting in LOADED_WITH}
            model = MaskedLM.load(path, name=name, **settings)
        identity = {field: str(getattr(model, field)) for field in OF_MODEL}
        identities.append(identity | ({"scheme": scheme} if scoring.kind != MASKED else {}))
        at_once = _TEXTS_AT_ONCE * (1 if model.device == "cpu" else 8)

        def answer(
            texts: Sequence[str], model: Any = model, size: int = at_once
        ) -> Iterator[tuple[Sequence[int], pa.Table]]:
            for start in range(0, len(texts), size):
                some, began = texts[start : start + size], time.monotonic()
                yield range(start, start + len(some)), score(model, some)
                # Blocks of problems have about as many texts each.
                if len(texts) > size and model.name not in told:
                    rest = len(texts) * len(blocks) - size
                    minutes = rest * (time.monotonic() - began) / size / 60
                    log.info("%s: about %.0f minutes for %d texts", model.name, minutes, rest)
                    told.add(model.name)

        rows = (_texts(scoring, block)[1] for block in blocks)
        ask(
            scoring.store(identities[-1]),
            (list(chain.from_iterable(chain.from_iterable(of_block))) for of_block in rows),
            answer,
            key=key_of,
            sizes=[sizes[block] for block in blocks],
            what=name,
            unit="problem",
            at_once=1 if model.device == "cpu" else at_once,
        )
    return identities


@lru_cache(maxsize=1)
def causal_lm(path: str, name: str, device: str, dtype: str) -> likelihoods.CausalLM:
    """Open a causal LM; it stays open for the next call, as `generate` asks it twice."""
    loaded = load(inspect(path, CAUSAL_LM), device=device, dtype=dtype)
    return likelihoods.CausalLM(loaded._replace(name=name))


def score_task(folder: Path, task: str) -> list[dict[str, str]]:
    """Do a task: add its missing scores to each store; return their identities."""
    scoring: Scoring = pickle.loads(b64decode(plan_of(folder)["scoring"]))
    scoring.require_models(this_machine(scoring.config.device))
    return _fill_stores(scoring, Task.parse(task))


def _texts(
    scoring: Scoring, block: int
) -> tuple[pa.Table, list[list[tuple[str, ...]]], list[tuple[str, str, str]]]:
    """Read a block's replacements and, for each, what to score for each text that it changes.

    This is the new text and the old one, whose score is subtracted, or an item of `item_of`. The
    last value are conditions on the ids of the block, as `read_table` takes them.
    """
    kind, config, problems = scoring.kind, scoring.config, scoring.problems(block)
    ids = [("seed_id", sign, problems.seeds[n].seed_id) for sign, n in ((">=", 0), ("<=", -1))]
    rows = files.read_table(scoring.build.replacements, REPLACEMENT_KEY, ids)
    if kind == NEIGHBOURS or scoring.build.path.name == SCORED:
        rows = of_pairs(
            rows, files.distinct_rows(scoring.build.variants, ["seed_id", "word_class"])
        )
    seeds = {seed.seed_id: seed for seed in problems.seeds}
    alone = rows.select(list(REPLACEMENT_KEY))
    # Drops the further edits, which come after the word.
    words = {n: pc.split_pattern(alone[n], " ") for n in ("word", "replacement")}
    alone = with_columns(alone, {n: pc.list_element(words[n], 0) for n in words})
    if not config.scramble:
        alone, *_ = adapt(problems, alone, scoring.tagger, config)
    texts: list[list[tuple[str, ...]]] = []
    fields = config.problem_format.fields
    edits = [one.text_edits() for one in perturbations_of(alone, problems)]
    for seed_id, of_texts in zip(rows["seed_id"].to_pylist(), edits, strict=True):
        old = seeds[seed_id].texts
        new = [substitute(text, *edit) for text, edit in zip(old, of_texts, strict=True)]
        sides = [(item, edit[0]) for item, edit in zip(old, of_texts, strict=True)]
        texts.append(
            [
                () if not before[1] or (scoring.only and name not in scoring.only)
                else (after[0], before[0]) if kind == MASKED
                else (likelihoods.item_of(*before, *after),)
                for name, before, after in zip(fields, sides, new, strict=True)
            ]
        )  # fmt: skip
    return rows, texts, ids


def _write(
    scoring: Scoring, file: Path, identities: Sequence[Mapping[str, str]], earlier: Path | None
) -> dict[str, int]:
    """Write changes; of replacements that are no longer asked about, those of an `earlier` file."""
    stores = list(map(scoring.store, identities))
    names = scoring.config.problem_format.pll_changes
    if scoring.kind == NEIGHBOURS:
        names = ("neighbour_change",)
    keys = ((name, pa.string()) for name in REPLACEMENT_KEY)
    floats = ((name, pa.float32()) for name in names)
    schema = pa.schema([*keys, *floats, (COMPLETE, pa.bool_())])
    counts = {"texts": 0, "windowed": 0, "replacements": 0}
    with files.atomic(file) as path, files.RowGroupWriter(path, schema) as written:
        for block in range(len(block_sizes(scoring.run.problems))):
            rows, of_rows, ids = _texts(scoring, block)
            texts = list(dict.fromkeys(text for row in of_rows for text in chain(*row)))
            scores = [store.read(np.array(list(map(key_of, texts)), KEY)) for store in stores]
            counts["texts"] += len(texts)
            windowed = [of_model["windowed"].to_numpy() for of_model in scores]
            counts["windowed"] += int(np.any(windowed, axis=0).sum())
            means = np.mean([of_model["pll"].to_numpy() for of_model in scores], axis=0)
            of_text = dict(zip(texts, means.tolist(), strict=True))
            columns = {name: rows[name] for name in REPLACEMENT_KEY}
            changes = [
                [of_text[new[0]] - sum(map(of_text.__getitem__, new[1:])) if new else None
                 for new in row]
                for row in of_rows
            ]  # fmt: skip
            if scoring.kind == NEIGHBOURS:
                changes = [[np.mean([x for x in row if x is not None])] for row in changes]
            for n, name in enumerate(names):
                values = [row[n] for row in changes]
                columns[name] = pa.array(values, pa.float32(), from_pandas=True)
            columns[COMPLETE] = pa.repeat(not scoring.only, len(rows))
            table = pa.table(columns, schema=schema)
            if earlier:
                before = files.read_table(earlier, where=ids)
                gone = pc.invert(pc.is_in(keys_as_texts(before), keys_as_texts(table)))
                order = [(name, "ascending") for name in REPLACEMENT_KEY]
                table = pa.concat_tables([table, before.filter(gone)]).sort_by(order)
            counts["replacements"] += len(table)
            written.write(table)
    return counts
