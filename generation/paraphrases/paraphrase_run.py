"""The run of the second system, from problems to paraphrases: the order of the steps."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from itertools import compress
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from generation.paraphrases.config import ParaphraseConfig
from generation.paraphrases.model_answers import (
    CANDIDATES,
    PROBABILITIES,
    LazyModel,
    judged,
    rewritten,
)
from generation.paraphrases.rounds import (
    ANSWERS,
    FUNNEL_COLUMNS,
    PARAPHRASES,
    REASONS,
    Candidate,
    ParaphraseReason,
    ParaphraseRequest,
    TextGenerator,
    kept_texts,
    render_funnel,
    run_rounds,
    variant_rows,
)
from generation.problems.on_disk import block_sizes, read_block, sorted_problems
from generation.problems.sources import Problems, load_problems, require_source
from generation.records import Exclusion, exclusion_table, seed_rows
from generation.run_folder import RunFolder, explain, versions
from generation.variants.reasons import KEPT, unlabelled
from merge_dataset.answer_store import KEY, AnswerStore, ask, key_of
from merge_dataset.executors.calls import run_blocks
from merge_dataset.executors.plan import Distribution, Task
from merge_dataset.files import (
    RowGroupWriter,
    atomic,
    digest_of,
    digest_of_file,
    digests,
    draw_rank,
    read_row_groups,
    read_table,
    write_record,
    write_table,
    write_text,
)
from merge_dataset.provenance import EXPLAINED
from merge_dataset.schema import LABELS, PARAPHRASE, arrow_schema
from merge_dataset.settings import require_settings
from merge_metric.models.checkpoints import load
from merge_metric.models.inspection import CAUSAL_LM, CLASSIFIER, TEXT_GENERATOR, find_head, inspect
from merge_metric.models.label_order import ASKED_SEEDS, SEEDS
from merge_metric.models.loading import open_model
from merge_metric.models.model_files import file_stamps
from merge_metric.models.pair_model import Model, ModelRequest, Pair
from merge_metric.models.readiness import inspect_models, machine_for, require_all

log = logging.getLogger(__name__)

BLOCK: Final = 1024
"""Number of hypotheses whose rounds are held in memory together, and done in one task."""

_PACKAGES: Final = ("datasets", "numpy", "pyarrow", "tokenizers", "torch", "transformers")


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
        TypeError: `config` is no `ParaphraseConfig`.
        ValueError: the folder has a run of another kind, a model or source cannot be used,
            or no paraphrase is left.
        FileNotFoundError: the source's file does not exist.
        FileExistsError: the folder has paraphrases made with other settings.
        BlockingIOError: another command is at work in the folder.
        ExecutorError: tasks failed; what they finished is kept.
    """
    require_settings("config", config, ParaphraseConfig)
    require_source(config)
    if generator is None and judge is None:
        look_at_models(config, distribution)
    run = RunFolder(Path(config.run))
    with run.locked():
        run.require_kind(paraphrases=True)
        if not overwrite:
            run.require_same_build(config.output_settings())
        with sorted_problems(run.problems) as add:
            problems = load_problems(config, add)
            # An earlier run's manifest does not fit these settings until this run is done.
            run.manifest.unlink(missing_ok=True)
            problems.list_skipped(run.skipped_rows)
        log.info("%s: %d problems, %d without a label", problems.description, problems.count,
                 len(problems.unlabelled))  # fmt: skip
        write_text(run.config, config.to_toml())

        def refuse(*_: object) -> NoReturn:
            raise ValueError(
                "expected all answers of the models from the tasks, some are missing; run the same "
                "command again"
            )

        if distribution is not None:
            generator = judge = refuse
        return _Work(run, config, generator, judge).do(problems, distribution)


def look_at_models(config: ParaphraseConfig, distribution: Distribution | None = None) -> None:
    """Inspect both models of a new run before it starts."""
    if (Path(config.run) / "generator.json").is_file():
        return  # a resumed run opens a model only if it has to
    generator = ModelRequest(
        model=config.generator,
        gguf_file=config.gguf_file,
        dtype=None if config.dtype == "auto" else config.dtype,
    )
    judge = ModelRequest(
        model=config.model, revision=config.model_revision, label_order=config.label_order
    )
    kinds = {"classifier": (CLASSIFIER,), "lm": (CAUSAL_LM,), None: (CLASSIFIER, CAUSAL_LM)}
    heads = kinds[config.model_kind]
    head = find_head(judge.model, heads, judge.revision, default=CLASSIFIER)
    machine = machine_for(distribution, config.device)
    asked = [("", generator, TEXT_GENERATOR), ("", judge, head)]
    require_all(inspect_models(asked, machine))


def open_generator(config: ParaphraseConfig) -> TextGenerator:
    """Load the text generator from a folder or the Hub; no code of the repository is run."""
    from generation.paraphrases.text_generator import Generator

    checkpoint = inspect(config.generator, TEXT_GENERATOR, gguf_file=config.gguf_file)
    return Generator(load(checkpoint, device=config.device, dtype=config.dtype), config)


def open_judge(config: ParaphraseConfig, problems: Path) -> Model:
    """Open the NLI model; gold labels of some problems may show which label each class means."""

    def sample() -> tuple[list[Pair], NDArray[np.int64]]:
        table = read_table(problems, ["seed_id", "premise", "hypothesis", "label"])
        drawn = sorted(table["seed_id"].to_pylist(), key=partial(draw_rank, 0))[:ASKED_SEEDS]
        table = table.filter(pc.is_in(table["seed_id"], value_set=pa.array(drawn, pa.string())))
        gold = pc.index_in(table["label"], value_set=pa.array(LABELS)).to_numpy()
        pairs = zip(table["premise"].to_pylist(), table["hypothesis"].to_pylist(), strict=True)
        return list(pairs), gold.astype(np.int64)

    request = ModelRequest(
        model=config.model,
        kind=config.model_kind,
        revision=config.model_revision,
        device=config.device,
        label_order=config.label_order,
    )
    return open_model(request, sources=[config.source], seeds=sample)


def do_task(folder: Path, name: str) -> None:
    """Do a step's task, such as "search 0/2": ask models and keep the answers."""
    step, task = name.split(" ")
    run = RunFolder(folder)
    work = _Work(run, ParaphraseConfig.read(run.config))
    if step == "problems":
        table = read_table(run.problems, ("premise", "hypothesis"))
        pairs = zip(*(column.to_pylist() for column in table.columns), strict=True)
        work.ask_judge(step, Task.parse(task).of(list(dict.fromkeys(pairs))))
    else:
        _, hypotheses = work.answers()
        for block in Task.parse(task).of(range(0, len(hypotheses), BLOCK)):
            work.search(hypotheses, block)


class _Work:
    """A run whose problems are read, and its models."""

    def __init__(
        self,
        run: RunFolder,
        config: ParaphraseConfig,
        generator: Callable[[], TextGenerator] | None = None,
        judge: Callable[[Path], Model] | None = None,
    ) -> None:
        """Prepare to open the models given, or else the models of the settings."""
        self.run, self.config = run, config
        open_it = judge or partial(open_judge, config)

        def described(model: Model) -> dict[str, Any]:
            # With the problems' evidence for the meaning of its classes, if it was needed.
            known, name = model.describe(), "label_order_evidence"
            if known.identity.get("label_order_source") != SEEDS:
                return known.identity
            return known.identity | {name: known.facts.get(name, known.identity.get(name))}

        def asked(model: str, *names: str) -> dict[str, Any]:
            return {**{n: getattr(config, n) for n in names}, "files": file_stamps(model)}

        names = ("generator", "gguf_file", "device", "dtype", "batch_size", "num_beams")
        self.generator = LazyModel(
            generator or partial(open_generator, config),
            lambda model: {**model.describe(), "batch_size": model.batch_size},
            asked=asked(config.generator, *names),
            path=run.path / "generator.json",
        )
        of_judge = ("model", "model_kind", "model_revision", "label_order", "device")
        # The order of labels may have been inferred from the problems.
        made_from = {"problems": digest_of_file(run.problems)}
        self.judge = LazyModel(
            lambda: open_it(run.problems),
            described,
            asked=asked(config.model, *of_judge) | made_from,
            path=run.path / "nli_model.json",
        )

    @cached_property
    def generated(self) -> AnswerStore:
        """The text generator's answers."""
        search = {"prompt": self.config.prompt, "decoding": self.config.decoding}
        return self._store(self.generator.description | search, CANDIDATES)

    @cached_property
    def judged(self) -> AnswerStore:
        """The NLI model's answers."""
        return self._store(self.judge.description, PROBABILITIES)

    def _store(self, identity: dict[str, Any], schema: pa.Schema) -> AnswerStore:
        return AnswerStore(self.run.model_answers, identity, schema, redo="merge-nli paraphrase")

    def rewrite(self, what: str, requests: Sequence[ParaphraseRequest]) -> list[list[Candidate]]:
        """Return the text generator's candidates for each request."""
        ask(
            self.generated,
            [requests],
            lambda new: rewritten(self.generator(), new),
            key=_key_of_request,
            sizes=[len(requests)],
            what=what,
            unit="hypothesis",
        )
        table = self.generated.read(np.array([_key_of_request(r) for r in requests], KEY))
        rows = table["candidates"].to_pylist()
        return [[Candidate(**candidate) for candidate in row] for row in rows]

    def ask_judge(self, what: str, pairs: Sequence[Pair]) -> NDArray[np.float64]:
        """Return (n, 3) probabilities of the NLI model for pairs."""
        ask(
            self.judged,
            [pairs],
            lambda new: judged(self.judge(), new),
            key=key_of,
            sizes=[len(pairs)],
            what=f"{what}: NLI model",
            unit="pair",
        )
        table = self.judged.read(np.array([key_of(pair) for pair in pairs], KEY))
        return np.stack([table[label].to_numpy() for label in LABELS], axis=1)

    def do(self, problems: Problems, distribution: Distribution | None) -> RunFolder:
        """Take all steps; with a distribution, tasks ask the models beforehand."""

        def deal(step: str) -> None:
            if distribution is not None:
                names = [f"{step} {task}" for task in Task.all(distribution.tasks)]
                run_blocks(f"{__name__}:do_task", self.run.path, names, distribution)

        deal("problems")
        right, hypotheses = self.answers()
        deal("search")
        self.judged.reload()
        funnel = self._write_paraphrases(hypotheses)
        eligible, variants = self._write_outcome(problems, right)
        if not variants:
            raise ValueError(
                f"{self.run.path}: none of {len(hypotheses):,} hypotheses has a "
                f"paraphrase; take another generator or prompt, more rounds or higher "
                f"temperatures\n{render_funnel(funnel)}"
            )
        run, config = self.run, self.config
        made_from = {
            "config": config.output_settings(),
            "source_data": problems.source_data,
            "generator": self.generator.description,
            "nli_model": self.judge.description,
        }
        files = (run.exclusions, run.seeds, run.variants, run.answers, run.paraphrases)
        manifest = {
            "kind": "paraphrases",
            "source": config.source,
            "fingerprint": digest_of(made_from),
            **made_from,
            "generator": self.generator.provenance,
            "nli_model": self.judge.provenance,
            "prompt": config.prompt,
            "packages": versions(*_PACKAGES),
            "problems": {**problems.counts, "answered_right": len(right)},
            "hypotheses": len(hypotheses),
            "funnel": funnel,
            EXPLAINED: explain(ParaphraseConfig, made_from["config"], FUNNEL_COLUMNS),
            "eligible": {PARAPHRASE: eligible},
            "variants": variants,
            "files": digests({path.name: path for path in files}),
        }
        write_record(run.manifest, manifest)
        return run

    def answers(self) -> tuple[frozenset[str], list[str]]:
        """Ask the NLI model about the problems; return those answered right, and hypotheses.

        The hypotheses are the distinct ones of problems that are answered right, sorted.
        """
        names = ("seed_id", "premise", "hypothesis", "label")
        table = read_table(self.run.problems, names)
        seed_ids, premises, hypotheses, gold = (table[name].to_pylist() for name in names)
        of_problems = self.ask_judge("problems", list(zip(premises, hypotheses, strict=True)))
        predicted = pa.array(LABELS).take(pa.array(of_problems.argmax(axis=1)))
        columns = [pa.array(seed_ids), *map(pa.array, of_problems.T), predicted]
        write_table(self.run.answers, pa.table(columns, schema=ANSWERS))
        right = [p == g for p, g in zip(predicted.to_pylist(), gold, strict=True)]
        if not any(right):
            raise ValueError(
                f"{self.judge.description['name']}: expected some right answers, got none to "
                f"{len(right):,} problems; are its labels the right way round (`label_order`)?"
            )
        return frozenset(compress(seed_ids, right)), sorted(set(compress(hypotheses, right)))

    def search(self, hypotheses: Sequence[str], start: int) -> tuple[pa.Table, int]:
        """Rewrite, ask and select for the block that starts there; return candidates and rounds."""
        of = len(hypotheses) // BLOCK + 1
        where = f"block {start // BLOCK + 1}/{of}, round" if len(hypotheses) > BLOCK else "round"
        rounds = run_rounds(
            hypotheses[start : start + BLOCK],
            self.config,
            rewrite=lambda number, requests: self.rewrite(f"{where} {number}", requests),
            judge=lambda number, pairs: self.ask_judge(f"{where} {number}", pairs),
        )
        tables = [pa.Table.from_pylist(rows, PARAPHRASES) for rows in rounds]
        order = [(name, "ascending") for name in ("hypothesis", "round", "rank")]
        return pa.concat_tables(tables).sort_by(order).combine_chunks(), len(tables)

    def _write_paraphrases(self, hypotheses: Sequence[str]) -> list[dict[str, int]]:
        counts, rounds = Counter[tuple[int, str]](), 0
        with (
            atomic(self.run.paraphrases) as temporary,
            RowGroupWriter(temporary, PARAPHRASES) as writer,
        ):
            for start in range(0, len(hypotheses), BLOCK):
                table, of_block = self.search(hypotheses, start)
                rounds = max(rounds, of_block)
                fates = (table[name].to_pylist() for name in ("round", "reason"))
                counts.update(zip(*fates, strict=True))
                writer.write(table)
        reasons = (*REASONS, KEPT)
        return [
            {
                "round": number,
                "generated": sum(counts[number, reason] for reason in reasons),
                **{reason: counts[number, reason] for reason in reasons},
            }
            for number in range(1, rounds + 1)
        ]

    def _write_outcome(self, problems: Problems, right: frozenset[str]) -> tuple[int, int]:
        run, kept = self.run, kept_texts(read_row_groups(self.run.paraphrases))
        none_kept = ParaphraseReason.NO_PARAPHRASE, 0
        wrong = ParaphraseReason.ANSWERED_WRONG, None
        excluded_rows = [exclusion_table(unlabelled(problems.unlabelled, self.config.source))]
        with (
            atomic(run.seeds) as seeds_file,
            atomic(run.variants) as variants_file,
            RowGroupWriter(seeds_file, arrow_schema()) as seeds,
            RowGroupWriter(variants_file, arrow_schema()) as variants,
        ):
            for number in range(len(block_sizes(run.problems))):
                block = read_block(run.problems, number)
                mine = [s for s in block if s.seed_id in right and s.hypothesis in kept]
                texts = {seed.hypothesis: kept[seed.hypothesis].to_pylist() for seed in mine}
                seeds.write(seed_rows(mine))
                variants.write(variant_rows(mine, texts))
                without = [
                    Exclusion(s.seed_id, s.source, *(none_kept if s.seed_id in right else wrong))
                    for s in block
                    if s.seed_id not in right or s.hypothesis not in kept
                ]
                excluded_rows.append(exclusion_table(without))
        rows = pa.concat_tables(excluded_rows).sort_by("seed_id").combine_chunks()
        write_table(run.exclusions, rows)
        return seeds.rows, variants.rows


def _key_of_request(request: ParaphraseRequest) -> bytes:
    return key_of(asdict(request))
