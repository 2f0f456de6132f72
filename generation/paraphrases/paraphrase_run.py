"""The run of the second system: problems, two models whose answers are kept, and paraphrases."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, compress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from generation.paraphrases.config import ParaphraseConfig
from generation.paraphrases.rounds import (
    FUNNEL_COLUMNS,
    PARAPHRASES,
    REASONS,
    Candidate,
    ParaphraseReason,
    ParaphraseRequest,
    TextGenerator,
    render_funnel,
    run_rounds,
    variants_of,
)
from generation.problems.on_disk import block_sizes, read_block, sorted_problems
from generation.problems.sources import ProblemReader
from generation.records import Exclusion, exclusion_table, seed_rows
from generation.run_folder import RunFolder, explain, versions
from generation.variants.reasons import KEPT, unlabelled
from merge_dataset import files
from merge_dataset.answer_store import KEY, AnswerStore, ask, key_of
from merge_dataset.executors import Distribution, Task, run_blocks
from merge_dataset.provenance import EXPLAINED
from merge_dataset.schema import LABELS, PARAPHRASE, arrow_schema
from merge_metric.models.checkpoints import load
from merge_metric.models.inspection import CAUSAL_LM, CLASSIFIER, TEXT_GENERATOR, find_head, inspect
from merge_metric.models.label_order import ASKED_SEEDS, SEEDS
from merge_metric.models.loading import open_model
from merge_metric.models.model_files import file_stamps
from merge_metric.models.pair_model import Model, ModelRequest, Pair, require_probabilities
from merge_metric.models.readiness import inspect_models, machine_for, require_all

BLOCK: Final = 1024
"""Number of hypotheses whose rounds are held in memory together, and done in one task."""

_CANDIDATE: Final = pa.struct({"text": pa.string(), "finished": pa.bool_(), "score": pa.float64()})
_CANDIDATES: Final = pa.schema([("candidates", pa.list_(_CANDIDATE))])
"""Answer of the text generator."""
_PROBABILITIES: Final = pa.schema([(label, pa.float64()) for label in LABELS])
"""Answer of the NLI model."""


def paraphrase(
    config: ParaphraseConfig,
    *,
    distribution: Distribution | None = None,
    overwrite: bool = False,
    generator: Callable[[], TextGenerator] | None = None,
    judge: Callable[[Path], Model] | None = None,
) -> RunFolder:
    """Paraphrase the hypotheses of the problems that an NLI model answers right.

    Resumes where an earlier run stopped. A model is opened only if it has to be asked; a model
    on the Hub without a revision is assumed not to have changed since.

    Args:
        config: The run's settings; `config.run` is the folder to write.
        distribution: Where tasks ask the models; by default this process does.
        overwrite: Replace paraphrases made with other settings. Answers of the models stay.
        generator: Opens the text generator; by default the model of the settings.
        judge: Opens the NLI model, given the file of all problems; by default the settings' model.

    Returns:
        The run folder, ready for export.

    Raises:
        ValueError: the folder has a run of another kind, a model or source cannot be used,
            or no paraphrase is left.
        FileNotFoundError: the source's file does not exist.
        FileExistsError: the folder has paraphrases made with other settings.
        BlockingIOError: another command is at work in the folder.
        ExecutorError: tasks failed; what they finished is kept.
    """
    reader = ProblemReader(config)
    if generator is None and judge is None:
        look_at_models(config, distribution)
    run = RunFolder(Path(config.run))
    with run.locked():
        run.require_kind(paraphrases=True)
        if not overwrite:
            run.require_same_build(config.output_settings())
        with sorted_problems(run.problems) as add:
            read = reader.read(add, run.skipped_rows)
            # An earlier run's manifest does not fit these settings until this run is done.
            run.manifest.unlink(missing_ok=True)
        config.write(run.config)

        def deal(step: str) -> None:
            if distribution is not None:
                names = [f"{step} {task}" for task in Task.all(distribution.tasks)]
                run_blocks(f"{__name__}:do_task", run.path, names, distribution)

        unlabelled_ids = read["problems"]["unlabelled"]
        deal("problems")
        right, hypotheses = _Work(run, config, generator, judge).answers()
        deal("search")
        work = _Work(run, config, generator, judge)
        funnel, kept = work.write_paraphrases(hypotheses)
        eligible, variants = work.write_variants(unlabelled_ids, right, kept)
        if not variants:
            raise ValueError(
                f"{run.path}: none of {len(hypotheses):,} hypotheses has a paraphrase; take a "
                f"better generator or prompt, or more rounds\n{render_funnel(funnel)}"
            )
        problems = {"unlabelled": len(unlabelled_ids), "answered_right": len(right)}
        made = {
            "problems": read["problems"] | problems,
            "hypotheses": len(hypotheses),
            "funnel": funnel,
            EXPLAINED: explain(ParaphraseConfig, config.output_settings(), FUNNEL_COLUMNS),
            "eligible": {PARAPHRASE: eligible},
            "variants": variants,
        }
        tables = (run.exclusions, run.seeds, run.variants, run.answers, run.paraphrases)
        digests = {"files": files.digests({path.name: path for path in tables})}
        files.write_record(run.manifest, work.made_from(read["source_data"]) | made | digests)
        return run


def look_at_models(config: ParaphraseConfig, distribution: Distribution | None = None) -> None:
    """Inspect both models of a new run before it starts."""
    if (Path(config.run) / "generator.json").is_file():
        return  # a resumed run opens a model only if it has to
    generator = ModelRequest(
        model=config.generator,
        gguf_file=config.gguf_file,
        dtype=None if config.dtype == "auto" else config.dtype,
    )
    kinds = {"classifier": (CLASSIFIER,), "lm": (CAUSAL_LM,), None: (CLASSIFIER, CAUSAL_LM)}
    heads = kinds[config.model_kind]
    head = find_head(config.model, heads, config.model_revision, default=CLASSIFIER)
    asked = [("", generator, TEXT_GENERATOR), ("", config.judge, head)]
    require_all(inspect_models(asked, machine_for(distribution, config.device)))


def open_generator(config: ParaphraseConfig) -> TextGenerator:
    """Load the text generator from a folder or the Hub; no code of the repository is run."""
    from generation.paraphrases.text_generator import Generator

    checkpoint = inspect(config.generator, TEXT_GENERATOR, gguf_file=config.gguf_file)
    return Generator(load(checkpoint, device=config.device, dtype=config.dtype), config)


def open_judge(config: ParaphraseConfig, problems: Path) -> Model:
    """Open the NLI model; gold labels of some problems may show which label each class means."""

    def sample() -> tuple[list[Pair], NDArray[np.int64]]:
        table = files.read_table(problems, ["seed_id", "premise", "hypothesis", "label"])
        drawn = sorted(table["seed_id"].to_pylist(), key=partial(files.draw_rank, 0))[:ASKED_SEEDS]
        table = table.filter(pc.is_in(table["seed_id"], value_set=pa.array(drawn, pa.string())))
        gold = pc.index_in(table["label"], value_set=pa.array(LABELS)).to_numpy()
        pairs = zip(table["premise"].to_pylist(), table["hypothesis"].to_pylist(), strict=True)
        return list(pairs), gold.astype(np.int64)

    return open_model(config.judge, sources=[config.source], seeds=sample)


def do_task(folder: Path, name: str) -> None:
    """Do a step's task, such as "search 0/2": ask models and keep the answers."""
    (step, task), run = name.split(" "), RunFolder(folder)
    work = _Work(run, ParaphraseConfig.read(run.config))
    if step == "problems":
        table = files.read_table(run.problems, ("premise", "hypothesis"))
        pairs = zip(*(column.to_pylist() for column in table.columns), strict=True)
        work.judge(step, Task.parse(task).of(list(dict.fromkeys(pairs))))
    else:
        _, hypotheses = work.answers()
        for start in Task.parse(task).of(range(0, len(hypotheses), BLOCK)):
            work.search(hypotheses, start)


@dataclass(frozen=True)
class _KeptModel:
    """A model with its answers in a store; opened only for new questions or without a record."""

    answers: Path
    """Folder of the stores."""
    path: Path
    """The file of the record, by this or an earlier run."""
    open: Callable[[], Any]
    answer: Callable[[Any, Sequence[Any]], Iterator[tuple[Sequence[int], pa.Table]]]
    schema: pa.Schema
    asked: Mapping[str, Any]
    """Settings that name the model."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Settings on which its answers depend."""

    @cached_property
    def _opened(self) -> tuple[Any, dict[str, Any]]:
        """The model and its record, which is written; ValueError if an earlier one differs."""
        model, before = self.open(), vars(self).get("record")
        known, evidence = model.describe(), "label_order_evidence"
        description = dict(known.identity)
        if description.get("label_order_source") == SEEDS:  # the problems tell it
            description |= {evidence: known.facts.get(evidence, description.get(evidence))}
        made = {"description": description, "weights": known.facts.get("weights")}
        record = json.loads(json.dumps({"asked": self.asked, **made}))
        files.write_record(self.path, record)
        if before and before["description"] != record["description"]:
            raise ValueError(
                f"{self.path}: expected the model of the run so far, got another of the same "
                "name; give the same command again, and this one is asked"
            )
        return model, record

    @cached_property
    def record(self) -> dict[str, Any]:
        """The model as `asked` for, its identifying `description`, and its `weights`."""
        record = files.read_record(self.path) if self.path.is_file() else {}
        asked = json.loads(json.dumps(self.asked))
        return record if record.get("asked") == asked else self._opened[1]

    @cached_property
    def _store(self) -> AnswerStore:
        identity = {**self.record["description"], **self.search}
        return AnswerStore(self.answers, identity, self.schema, redo="merge-nli paraphrase")

    def __call__(self, what: str, questions: Sequence[Any]) -> pa.Table:
        """Return the answers to questions; the model is asked for those that are not kept yet."""
        ask(
            self._store,
            [questions],
            lambda new: self.answer(self._opened[0], new),
            key=key_of,
            sizes=[len(questions)],
            what=what,
            unit="question",
        )
        return self._store.read(np.array(list(map(key_of, questions)), KEY))


class _Work:
    """A run whose problems are read, and its two models."""

    def __init__(
        self,
        run: RunFolder,
        config: ParaphraseConfig,
        generator: Callable[[], TextGenerator] | None = None,
        judge: Callable[[Path], Model] | None = None,
    ) -> None:
        """Prepare to open the models given, or else the models of the settings."""
        self.run, self.config = run, config

        def asked(model: str, *names: str) -> dict[str, Any]:
            named = {name: getattr(config, name) for name in names}
            return {"model": model, **named, "files": file_stamps(model)}

        self.generator = _KeptModel(
            run.model_answers,
            run.path / "generator.json",
            generator or partial(open_generator, config),
            _rewritten,
            _CANDIDATES,
            asked(config.generator, "gguf_file", "device", "dtype", "batch_size", "num_beams"),
            {"prompt": config.prompt, "decoding": config.decoding},
        )
        names = ("model_kind", "model_revision", "label_order", "device")
        self.judge = _KeptModel(
            run.model_answers,
            run.path / "nli_model.json",
            partial(judge or partial(open_judge, config), run.problems),
            _judged,
            _PROBABILITIES,
            # The order of labels may have been inferred from the problems.
            asked(config.model, *names) | {"problems": files.digest_of_file(run.problems)},
        )

    def made_from(self, source_data: Mapping[str, Any]) -> dict[str, Any]:
        """Describe what determines the paraphrases, with a fingerprint of it, and the versions."""
        models = {"generator": self.generator.record, "nli_model": self.judge.record}
        determined_by = {
            "config": self.config.output_settings(),
            "source_data": source_data,
            **{name: record["description"] for name, record in models.items()},
        }
        return {
            "kind": "paraphrases",
            "source": self.config.source,
            "fingerprint": files.digest_of(determined_by),
            **determined_by,
            **{
                name: record["description"] | {"weights": record["weights"]}
                for name, record in models.items()
                if record["weights"]
            },
            "prompt": self.config.prompt,
            "packages": versions(
                "datasets", "numpy", "pyarrow", "tokenizers", "torch", "transformers"
            ),
        }

    def answers(self) -> tuple[frozenset[str], list[str]]:
        """Ask about the problems; return ids of those answered right, and their hypotheses."""
        names = ("seed_id", "premise", "hypothesis", "label")
        table = files.read_table(self.run.problems, names)
        seed_ids, premises, hypotheses, gold = (table[name].to_pylist() for name in names)
        answers = self.judge("problems", list(zip(premises, hypotheses, strict=True)))
        predicted = pa.array(LABELS).take(pa.array(_matrix(answers).argmax(axis=1)))
        columns = {"seed_id": table["seed_id"]} | dict(zip(LABELS, answers.columns, strict=True))
        files.write_table(self.run.answers, pa.table(columns | {"prediction": predicted}))
        right = [p == g for p, g in zip(predicted.to_pylist(), gold, strict=True)]
        name = self.judge.record["description"]["name"]
        if not any(right):
            raise ValueError(
                f"{name}: expected some right answers, got none "
                f"to {len(right):,} problems; are its labels the right way round (`label_order`)?"
            )
        return frozenset(compress(seed_ids, right)), sorted(set(compress(hypotheses, right)))

    def search(self, hypotheses: Sequence[str], start: int) -> tuple[pa.Table, int]:
        """Rewrite, ask and select for the block that starts there; return candidates and rounds."""
        of = len(hypotheses) // BLOCK + 1
        where = f"block {start // BLOCK + 1}/{of}, round" if len(hypotheses) > BLOCK else "round"

        def rewrite(number: int, requests: list[ParaphraseRequest]) -> list[list[Candidate]]:
            answers = self.generator(f"{where} {number}", requests)["candidates"].to_pylist()
            return [[Candidate(**candidate) for candidate in row] for row in answers]

        def judge(number: int, pairs: list[Pair]) -> NDArray[np.float64]:
            return _matrix(self.judge(f"{where} {number}: NLI model", pairs))

        block = hypotheses[start : start + BLOCK]
        rounds = list(run_rounds(block, self.config, rewrite=rewrite, judge=judge))
        rows = pa.Table.from_pylist(list(chain.from_iterable(rounds)), PARAPHRASES)
        order = [(name, "ascending") for name in ("hypothesis", "round", "rank")]
        return rows.sort_by(order).combine_chunks(), len(rounds)

    def write_paraphrases(
        self, hypotheses: Sequence[str]
    ) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
        """Write all candidates; return the funnel, and the kept texts of hypotheses."""
        counts, kept, rounds = Counter[tuple[int, str]](), dict[str, list[str]](), 0
        with (
            files.atomic(self.run.paraphrases) as path,
            files.RowGroupWriter(path, PARAPHRASES) as writer,
        ):
            for start in range(0, len(hypotheses), BLOCK):
                table, of_block = self.search(hypotheses, start)
                writer.write(table)
                rounds = max(rounds, of_block)
                names = ("hypothesis", "text", "round", "reason")
                columns = (table[name].to_pylist() for name in names)
                for hypothesis, text, number, reason in zip(*columns, strict=True):
                    counts[number, reason] += 1
                    if reason == KEPT:
                        kept.setdefault(hypothesis, []).append(text)
        funnel = []
        for number in range(1, rounds + 1):
            ends = {str(reason): counts[number, reason] for reason in (*REASONS, KEPT)}
            funnel.append({"round": number, "generated": sum(ends.values()), **ends})
        return funnel, kept

    def write_variants(
        self,
        unlabelled_ids: Sequence[str],
        right: frozenset[str],
        kept: Mapping[str, Sequence[str]],
    ) -> tuple[int, int]:
        """Write seeds, variants, and what is left out; return the numbers of the first two."""
        left_out = list(unlabelled(unlabelled_ids, self.config.source))
        with (
            files.atomic(self.run.seeds) as seeds_file,
            files.atomic(self.run.variants) as variants_file,
            files.RowGroupWriter(seeds_file, arrow_schema()) as seeds,
            files.RowGroupWriter(variants_file, arrow_schema()) as variants,
        ):
            for number in range(len(block_sizes(self.run.problems))):
                mine = []
                for seed in read_block(self.run.problems, number):
                    why: Exclusion = {"reason": ParaphraseReason.ANSWERED_WRONG}
                    if seed.seed_id in right:
                        why = {"reason": ParaphraseReason.NO_PARAPHRASE, "replacements": 0}
                        if seed.hypothesis in kept:
                            mine.append(seed)
                            continue
                    left_out.append({"seed_id": seed.seed_id, "source": seed.source, **why})
                seeds.write(seed_rows(mine))
                variants.write(variants_of(mine, kept))
        files.write_table(self.run.exclusions, exclusion_table(left_out))
        return seeds.rows, variants.rows


def _matrix(answers: pa.Table) -> NDArray[np.float64]:
    return np.stack([column.to_numpy() for column in answers.columns], axis=1)


def _rewritten(
    generator: TextGenerator, requests: Sequence[ParaphraseRequest]
) -> Iterator[tuple[Sequence[int], pa.Table]]:
    """Yield candidates for batches of requests, whose prompts have similar lengths."""
    from merge_metric.models.fast_layers import on_single_threads

    lengths = [generator.length(request.hypothesis) for request in requests]
    order = sorted(range(len(requests)), key=lambda i: (-lengths[i], requests[i].hypothesis))
    size = generator.batch_size
    # The longest first, so that a lack of memory shows at once; the others at random, so that the
    # speed so far tells of the speed to come.
    first, *others = (order[start : start + size] for start in range(0, len(order), size))
    random.Random(0).shuffle(others)
    batches = [first, *others]

    def rewrite(batch: Sequence[int]) -> pa.Table:
        answers = generator.candidates([requests[i] for i in batch])
        rows = [{"candidates": [c._asdict() for c in candidates]} for candidates in answers]
        return pa.Table.from_pylist(rows, _CANDIDATES)

    yield from zip(batches, on_single_threads(rewrite, batches, generator.device), strict=True)


def _judged(judge: Model, pairs: Sequence[Pair]) -> Iterator[tuple[Sequence[int], pa.Table]]:
    """Yield the NLI model's probabilities for batches of pairs."""
    for answers in judge.answer(pairs):
        asked = [pairs[i] for i in answers.positions]
        rows = require_probabilities(answers, asked, LABELS)
        yield answers.positions, pa.table(list(rows.T), schema=_PROBABILITIES)
