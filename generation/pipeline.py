"""The two phases and the order of their steps.

`suggest` asks the masked LMs and fills the suggestion store: slow, wants a GPU. `build`
does everything else and is quick. `generate` is both.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from generation.artifacts import (
    RunFolder,
    digest_of,
    digest_of_file,
    read_json,
    write_json,
    write_table,
    write_text,
)
from generation.asking import ask, collect, mlm_names, store_root, units_of
from generation.blocks import block_sizes, read_block, sorted_problems
from generation.candidates import Candidates
from generation.config import Config
from generation.exclusions import unlabelled, without_replacement
from generation.executors import Executor, Resources, run_units
from generation.funnel import Funnel
from generation.manifest import manifest_of
from generation.parallel import tag_in_order
from generation.questions import Questions
from generation.records import Exclusion, MaskedQuery, Replacement, Seed, Sentence, SharedWord
from generation.sampling import draw, eligible
from generation.shared_words import shared_words
from generation.sources import load_problems
from generation.suggestions import SuggestionStore
from generation.tables import (
    exclusion_table,
    read_problems,
    read_replacements,
    replacement_table,
)
from generation.tagging import Tagger
from generation.validation import masked_queries, propose, settle
from generation.variants import scramble, seed_rows, variant_rows, word_spans

log = logging.getLogger(__name__)

_SEEDS_PER_BATCH = 64


@dataclass(frozen=True, slots=True)
class _TaggedProblems:
    """Seeds with what the tagger found in them."""

    seeds: list[Seed]
    sentences: dict[str, Sentence]
    words: dict[str, list[SharedWord]]
    """Seed id → its shared words of the classes wanted."""
    tagger: str

    def pair(self, seed: Seed) -> tuple[Sentence, Sentence]:
        """Premise and hypothesis, tagged."""
        return self.sentences[seed.premise], self.sentences[seed.hypothesis]

    def queries(self, masking: str) -> list[MaskedQuery]:
        """Every distinct question to ask, in the order of the seeds."""
        found: dict[MaskedQuery, None] = {}
        for seed in self.seeds:
            for word in self.words[seed.seed_id]:
                for sentence, positions in zip(
                    self.pair(seed), (word.premise, word.hypothesis), strict=True
                ):
                    found.update(
                        dict.fromkeys(masked_queries(sentence, positions, masking=masking))
                    )
        return list(found)


def generate(
    config: Config,
    *,
    executor: Executor = "local",
    tasks: int = 1,
    resources: Resources | None = None,
) -> RunFolder:
    """Problems in, variants out: `suggest`, then `build`.

    Args:
        config: The run's settings; `config.run` is the folder to write.
        executor, tasks, resources: As in `suggest`.

    Returns:
        The run folder, ready for export.

    Raises:
        ValueError, FileNotFoundError: as in the two phases.
    """
    suggest(config, executor=executor, tasks=tasks, resources=resources)
    return build(config.run)


def suggest(
    config: Config,
    *,
    executor: Executor = "local",
    tasks: int = 1,
    resources: Resources | None = None,
) -> RunFolder:
    """Phase 1: ask every masked LM about every occurrence of a shared word.

    Resumes where an earlier run stopped; what the store already holds is not asked again.

    Args:
        config: The run's settings.
        executor: Where to ask: on this machine, a Ray cluster, or Slurm.
        tasks: To how many tasks the work is dealt, `config.workers` of which run at a time.
            One on this machine is this process.
        resources: What each task gets.

    Raises:
        RuntimeError: tasks failed. What they finished is kept.
        ValueError: the settings name no MLM or two of the same name, or a model, a
            source or the tagger cannot be loaded.
        FileNotFoundError: the source's file does not exist.
    """
    run, config = RunFolder(Path(config.run)), config.located()
    mlm_names(config.mlms)  # before the long work
    # What an earlier run left no longer fits these settings until both phases are done.
    run.manifest.unlink(missing_ok=True)
    run.suggested.unlink(missing_ok=True)
    shutil.rmtree(run.stores, ignore_errors=True)
    with sorted_problems(run.problems) as add:
        problems = load_problems(config, add)
    log.info("%s: %d problems, %d without a label", problems.description, problems.count,
             len(problems.unlabelled))  # fmt: skip
    write_text(run.config, config.to_toml())
    questions = _questions(run, config)
    if not len(questions):
        raise ValueError(
            f"{problems.description}: expected a {' or '.join(config.word_classes)} shared by "
            f"premise and hypothesis, found none in {problems.count} problems"
        )
    units = units_of(config, questions, tasks=tasks)
    if executor == "local" and tasks == 1:
        for unit in units:
            ask(run.path, unit)
    else:
        run_units(
            "generation.asking:ask",
            run.path,
            units,
            executor=executor,
            tasks=tasks,
            workers=config.workers,
            resources=resources,
        )
    write_json(
        run.suggested,
        {
            "source": config.source,
            "source_data": {"description": problems.description, "sha256": problems.sha256},
            "problems": {
                "read": problems.count + len(problems.unlabelled),
                "unlabelled": problems.unlabelled,
                "kept": problems.count,
            },
            "questions": len(questions),
            "mlms": collect(run, config),
        },
    )
    return run


def _questions(run: RunFolder, config: Config) -> Questions:
    """The questions about the run's problems; those of an earlier run where they fit."""
    tagger = Tagger.load(config.tagger)
    made_from = digest_of(
        [digest_of_file(run.problems), config.word_classes, config.masking, tagger.name]
    )
    if run.questions.is_dir() and (there := Questions(run.questions)).made_from == made_from:
        return there
    sizes = block_sizes(run.problems)

    def queries() -> Iterator[MaskedQuery]:
        with tqdm(total=sum(sizes), desc="tagging", unit="problem") as bar:
            for number, size in enumerate(sizes):
                seeds = read_block(run.problems, number)
                yield from _tag_problems(seeds, tagger, config.word_classes).queries(config.masking)
                bar.update(size)

    return Questions.write(run.questions, queries(), problems=sum(sizes), made_from=made_from)


def build(run: str | Path, *, ablation: str | None = None, **settings: Any) -> RunFolder:
    """Phase 2: filters, eq. 1, eligibility, sampling, variants; no masked LM runs.

    Args:
        run: The folder that `suggest` filled.
        ablation: One of `config.ablation_names()` (D13): built into a folder of that name
            inside `run`, for the seeds that are eligible without it (paper, A.2).
        settings: Fields of `Config` to change for this build alone: the manifest has them,
            the run's `config.toml` stays.

    Returns:
        The folder with the outcome.

    Raises:
        FileNotFoundError: `run` holds no suggestions.
        ValueError: suggestions are missing, settings are wrong, or nothing is left.
    """
    base = RunFolder(Path(run))
    if not base.suggested.is_file():
        raise FileNotFoundError(
            f"expected suggestions in {base.path}, found none; run: merge-nli suggest --run "
            f"{base.path}"
        )
    suggested = read_json(base.suggested)
    config = Config.read(base.config).overlaid(ablation, settings)
    out = base.named(ablation) if ablation else base
    out.manifest.unlink(missing_ok=True)
    eligible_pairs = _eligible_pairs(base) if ablation else None

    tagger = Tagger.load(config.tagger)
    problems = _tag_problems(read_problems(base.problems), tagger, config.word_classes)
    funnel = Funnel()
    found = _find_replacements(problems, _stores(base, config, suggested), tagger, config, funnel)
    if config.scramble:
        found = _scrambled(found, config.rng_seed)
    if not found:
        raise ValueError(
            f"{base.path}: no word of {len(problems.seeds)} problems has a replacement; the "
            f"funnel:\n{funnel.rows()}"
        )
    write_table(out.replacements, replacement_table(found))
    kept, too_few = _select(found, config, eligible_pairs)
    excluded = [
        *unlabelled(suggested["problems"]["unlabelled"], config.source),
        *without_replacement(problems.seeds, problems.words, found),
        *too_few,
    ]
    write_table(out.exclusions, exclusion_table(excluded))
    if not kept:
        most = max((e.replacements or 0 for e in too_few), default=0)
        raise ValueError(
            f"{base.path}: no seed has {config.min_replacements} replacements per "
            f"{config.min_replacements_scope}, the most is {most}; add masked LMs or problems, "
            "or lower min_replacements"
        )
    variants = _write_variants(out, problems, kept, config)
    if ablation:
        write_text(out.config, config.to_toml())
    manifest = manifest_of(
        out, config, suggested, tagger=tagger.name, funnel=funnel, kept=kept, variants=variants
    )
    write_json(out.manifest, manifest)
    return out


def _select(
    found: Sequence[Replacement], config: Config, pairs: Collection[tuple[str, str]] | None
) -> tuple[list[Replacement], list[Exclusion]]:
    """The replacements of eligible seeds (D9), or in an ablation of the (seed, class) given."""
    if pairs is not None:
        return [r for r in found if (r.seed_id, r.word_class) in pairs], []
    return eligible(found, minimum=config.min_replacements, scope=config.min_replacements_scope)


def _stores(
    base: RunFolder, config: Config, suggested: Mapping[str, Any]
) -> dict[str, SuggestionStore]:
    """The stores that `suggest` filled, by MLM.

    Raises:
        ValueError: the settings ask for other suggestions than there are.
    """
    wanted = {
        "masking": config.masking,
        "suggestions_per_occurrence": config.suggestions_per_occurrence,
    }
    for record in suggested["mlms"]:
        there = {key: record[key] for key in wanted}
        if there != wanted:
            raise ValueError(
                f"{base.path}: expected suggestions made with {wanted}, found {there}; run: "
                "merge-nli suggest with these settings"
            )
    root = store_root(base, config)
    return {
        record["name"]: SuggestionStore.open(root, record["store"]) for record in suggested["mlms"]
    }


def _tag_problems(
    seeds: list[Seed], tagger: Tagger, word_classes: Sequence[str]
) -> _TaggedProblems:
    texts = sorted({text for seed in seeds for text in (seed.premise, seed.hypothesis)})
    tagged = tqdm(tagger.tag(texts), total=len(texts), desc="tagging", unit="sentence")
    sentences = {sentence.text: sentence for sentence in tagged}
    words = {
        seed.seed_id: shared_words(
            sentences[seed.premise], sentences[seed.hypothesis], word_classes=word_classes
        )
        for seed in seeds
    }
    return _TaggedProblems(seeds, sentences, words, tagger.name)


def _find_replacements(
    problems: _TaggedProblems,
    stores: Mapping[str, SuggestionStore],
    tagger: Tagger,
    config: Config,
    funnel: Funnel,
) -> list[Replacement]:
    """R_M(⟨p, h⟩, o) for every seed and shared word, in the order of the seeds."""
    queries = problems.queries(config.masking)
    candidates = {
        mlm: Candidates.read(store, queries, probability_filter=config.probability_filter)
        for mlm, store in stores.items()
    }
    batches = (
        [
            propose(seed, word, problems.pair(seed), candidates, config=config, funnel=funnel)
            for seed in problems.seeds[start : start + _SEEDS_PER_BATCH]
            for word in problems.words[seed.seed_id]
        ]
        for start in range(0, len(problems.seeds), _SEEDS_PER_BATCH)
    )
    found: list[Replacement] = []
    with tqdm(total=len(problems.seeds), desc="filtering", unit="problem") as bar:
        for proposals, tags in tag_in_order(batches, tagger, config):
            for proposal, found_tags in zip(proposals, tags, strict=True):
                found += settle(proposal, found_tags, config=config, funnel=funnel)
            bar.update(min(_SEEDS_PER_BATCH, len(problems.seeds) - bar.n))
    return found


def _scrambled(replacements: Iterable[Replacement], rng_seed: int) -> list[Replacement]:
    """The same replacements with their letters shuffled (D13), each outcome once."""
    import dataclasses

    from generation.filters import match_case

    unique: dict[tuple[str, ...], Replacement] = {}
    for r in replacements:
        word = match_case(scramble(r.replacement.lower(), f"{rng_seed}\n{r.seed_id}"), r.word)
        unique.setdefault(
            (r.seed_id, r.word_class, r.word, word), dataclasses.replace(r, replacement=word)
        )
    return list(unique.values())


def _eligible_pairs(base: RunFolder) -> set[tuple[str, str]]:
    """(seed_id, class) of the build without an ablation.

    Raises:
        FileNotFoundError: there is none yet.
    """
    if not base.manifest.is_file():
        raise FileNotFoundError(
            f"an ablation keeps the seeds that are eligible without it: expected a build in "
            f"{base.path}, found none; run: merge-nli build --run {base.path}"
        )
    settings = read_json(base.manifest)["config"]
    kept, _ = eligible(
        read_replacements(base.replacements),
        minimum=settings["min_replacements"],
        scope=settings["min_replacements_scope"],
    )
    return {(r.seed_id, r.word_class) for r in kept}


def _write_variants(
    out: RunFolder, problems: _TaggedProblems, kept: Sequence[Replacement], config: Config
) -> int:
    """Sample (D10) and write seeds and variants; how many variants there are."""
    variants = draw(
        kept,
        subsamples=config.subsamples,
        size=config.variants_per_class,
        rng_seed=config.rng_seed,
    )
    ids = {r.seed_id for r in kept}
    seeds = {seed.seed_id: seed for seed in problems.seeds if seed.seed_id in ids}
    spans = {
        (seed.seed_id, word.word): word_spans(*problems.pair(seed), word)
        for seed in seeds.values()
        for word in problems.words[seed.seed_id]
    }
    write_table(out.seeds, seed_rows(seeds.values()))
    write_table(out.variants, variant_rows(variants, seeds, spans))
    return len(variants)
