"""The two phases and the order of their steps.

`suggest` asks the masked LMs and fills the suggestion store: slow, wants a GPU. `build`
does everything else and is quick. `generate` is both.
"""

from __future__ import annotations

import logging
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from tqdm import tqdm

from generation.asking import (
    ask_all,
    ask_what_matters,
    asked_record,
    require_asked,
)
from generation.build_tasks import Inputs, block_results
from generation.config import Config
from generation.morphology import require_library
from generation.problems.on_disk import block_sizes, read_block, sorted_problems
from generation.problems.shared_words import tag_problems
from generation.problems.sources import Problems, load_problems, require_labels, require_source
from generation.problems.tagging import Tagger
from generation.reasons import Reason
from generation.records import EXCLUSIONS, MaskedQuery, exclusion_table, replacement_schema
from generation.run_folder import RunFolder, manifest_of
from generation.signals.nonce_answers import NonceAnswers
from generation.signals.quality import shipped
from generation.signals.signal_columns import CAUSAL, PllChanges, cure
from generation.suggestions.ask import (
    collect,
    mlm_names,
    unchanged_questions,
    wanted_mlms,
)
from generation.suggestions.asked import Asked
from generation.suggestions.questions import Questions, questions_about
from generation.variants.adaptation import Fate
from generation.variants.builder import BlockResult
from generation.variants.funnel import Funnel, most_frequent_reasons, unlabelled
from generation.variants.optional_columns import OF_DICTIONARY
from merge_dataset.executors.plan import Distribution
from merge_dataset.files import (
    RowGroupWriter,
    atomic,
    digest_of,
    digest_of_file,
    digests,
    read_record,
    write_record,
    write_text,
)
from merge_dataset.provenance import differences
from merge_dataset.schema import arrow_schema
from merge_dataset.settings import check_members, parse_toml
from merge_metric.models.readiness import look_at, machine_for, require_all

log = logging.getLogger(__name__)


def generate(
    config: Config,
    *,
    distribution: Distribution | None = None,
    overwrite: bool = False,
) -> RunFolder:
    """Problems in, variants out: `suggest`, then `build`.

    Args:
        config: The run's settings; `config.run` is the folder to write.
        distribution: As in `suggest`.
        overwrite: Replace a build of other settings, problems or models.

    Returns:
        The run folder, ready for export.

    Raises:
        ValueError, FileNotFoundError, FileExistsError, BlockingIOError: as in the two phases.
    """
    run = RunFolder(Path(config.run))
    with run.locked():
        if not overwrite:
            run.require_same_build(config.output_settings(), made_from=_named(config))
        suggest(config, distribution=distribution, overwrite=overwrite)
        return build(config.run, distribution=distribution, overwrite=overwrite)


def suggest(
    config: Config,
    *,
    distribution: Distribution | None = None,
    overwrite: bool = False,
    problems: Problems | None = None,
) -> RunFolder:
    """Phase 1: ask every masked LM about every occurrence of a shared word.

    Resumes where an earlier run stopped; what the store already holds is not asked again.

    Args:
        config: The run's settings.
        distribution: Where tasks ask the masked LMs; by default this process does.
        overwrite: Replace what was made of other problems or by other models. The masked LMs'
            answers stay in any case.
        problems: What is known of the problems, where they lie in the run folder already.

    Raises:
        BlockingIOError: another command is at work in the folder.
        FileExistsError: the folder has a build of other settings, problems or models.
        ExecutorError: tasks failed; what they finished is kept. Or there is no such executor.
        ValueError: the settings name no MLM or two of the same name, or a model, a
            source or the tagger cannot be loaded.
        FileNotFoundError: the source's file does not exist.
    """
    run, config = RunFolder(Path(config.run)), config.with_absolute_paths()
    if problems is None:
        require_labels(config)
        require_source(config)
    with run.locked():
        _require_ours(run)
        earlier = None if overwrite else _Earlier.of(run)
        if earlier:
            earlier.require_same(run, config, _named(config))
        _look_at_models(config, distribution)
        if problems is None:
            problems = _read_problems(run, config, earlier)
        else:
            _settle_problems(run, config, earlier, problems)
        _suggest(run, config, problems, earlier, distribution)
    return run


@dataclass(frozen=True, slots=True)
class _Earlier:
    """Settings and record of an earlier `suggest`, whose build is not replaced without a word."""

    record: Mapping[str, Any]
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, run: RunFolder) -> Self | None:
        """Read it; None where nothing would be replaced."""
        if not (run.manifest.is_file() and run.suggested.is_file() and run.config.is_file()):
            return None
        return cls(read_record(run.suggested), Config.read(run.config).output_settings())

    def require_same(self, run: RunFolder, config: Config, made_from: Mapping[str, Any]) -> None:
        """Raise FileExistsError where something else would come of these settings."""
        there = {**self.record, "config": self.settings}
        coming = {"config": config.output_settings(), **made_from}
        if differing := differences(there, coming):
            problems = self.record["problems"]["kept"]
            raise FileExistsError(
                f"{run.path}: expected no build or one of the same problems and models, found one "
                f"of {problems:,} problems: {'; '.join(differing)}. Name another run folder "
                "with --run, or replace it with --overwrite; the masked LMs' answers stay"
            )


def _suggest(
    run: RunFolder,
    config: Config,
    problems: Problems,
    earlier: _Earlier | None,
    distribution: Distribution | None,
) -> None:
    """Fill the stores and write `suggested.json`; `earlier` is what has to stay."""
    write_text(run.config, config.to_toml())
    questions = _questions(run, config)
    if not len(questions):
        raise ValueError(
            f"{problems.description}: expected a {' or '.join(config.word_classes)} shared by "
            f"{' and '.join(config.shared_fields or config.fields)}, found none in "
            f"{problems.count} problems"
        )
    asked = Asked(questions, run.asked)
    ask_now = partial(ask_all, run, config, questions, distribution)
    ask_what_matters(run, config, asked, ask_now, distribution)
    mlms = collect(run, config)
    if earlier:
        earlier.require_same(run, config, {"mlms": mlms})
    record = {
        "source": config.source,
        "source_data": problems.source_data,
        "problems": {
            **problems.counts,
            "unlabelled": problems.unlabelled,
        },
        "questions": len(questions),
        **asked_record(asked, config),
        "mlms": mlms,
        "files": digests(
            {
                path.relative_to(run.path).as_posix(): path
                for path in (run.config, run.problems, questions.header, run.asked)
                if path.is_file()
            }
        ),
    }
    write_record(run.suggested, record)


def _look_at_models(config: Config, distribution: Distribution | None) -> None:
    """Raise ValueError with all that is wrong with any masked LM, before the long work."""
    wanted = wanted_mlms(config.mlms, dtype=config.dtype)
    machine = machine_for(distribution, config.device)
    require_all(look_at(wanted, machine), machine, "`merge-nli models` shows what is there")


def _named(config: Config) -> dict[str, Any]:
    """Return what is known of the masked LMs before they are loaded."""
    return {"mlms": [{"name": name} for name in mlm_names(config.mlms)]}


def _read_problems(run: RunFolder, config: Config, earlier: _Earlier | None) -> Problems:
    """Read the source into the run folder, and drop what belongs to other settings."""
    with sorted_problems(run.problems, config.problem_format) as add:
        problems = load_problems(config, add, scratch=run.sorting)
        _settle_problems(run, config, earlier, problems)
        problems.list_skipped(run.skipped_rows)
    log.info("%s: %d problems, %d without a label", problems.description, problems.count,
             len(problems.unlabelled))  # fmt: skip
    return problems


def _settle_problems(
    run: RunFolder, config: Config, earlier: _Earlier | None, problems: Problems
) -> None:
    """Require the problems of the build that has to stay, or drop what fits no longer."""
    if earlier:
        earlier.require_same(run, config, {"source_data": problems.source_data})
    else:
        # What an earlier run left no longer fits these settings until both phases are done.
        run.manifest.unlink(missing_ok=True)
        run.suggested.unlink(missing_ok=True)
    shutil.rmtree(run.stores, ignore_errors=True)


def _require_ours(run: RunFolder) -> None:
    """Raise ValueError where the folder holds a run of paraphrases."""
    if run.config.is_file() and "generator" in parse_toml(
        run.config.read_text(encoding="utf-8"), str(run.config)
    ):
        raise ValueError(
            f"{run.path}: expected a run folder of replacements or none, got one of paraphrases; "
            "name another with --run"
        )


def _require_libraries(config: Config) -> None:
    """Raise ValueError where an option wants a library that is not there, before the long work."""
    if config.families != "ignore":
        require_library("families")
    if wanting := [name for name in config.optional_columns if name in OF_DICTIONARY]:
        require_library(", ".join(wanting))


def _questions(run: RunFolder, config: Config) -> Questions:
    """The questions about the run's problems; those of an earlier run where they fit."""
    tagger = Tagger.load(config.tagger)
    made_from = digest_of(
        [digest_of_file(run.problems), config.word_classes, config.masking, tagger.name,
         *(config.sharing or ())]
    )  # fmt: skip
    if run.questions.is_dir():
        there = Questions(run.questions)
        if there.made_from == made_from and not there.changed():
            return there
    sizes = block_sizes(run.problems)

    def queries() -> Iterator[MaskedQuery]:
        with tqdm(total=sum(sizes), desc="tagging", unit="problem") as bar:
            for number, size in enumerate(sizes):
                seeds = read_block(run.problems, number)
                problems = tag_problems(seeds, tagger, config.word_classes, config.sharing)
                yield from questions_about(problems, masking=config.masking)
                bar.update(size)

    return Questions.write(run.questions, queries(), problems=sum(sizes), made_from=made_from)


def build(
    run: str | Path,
    *,
    ablation: str | None = None,
    into: str | None = None,
    distribution: Distribution | None = None,
    overwrite: bool = False,
    may_be_empty: bool = False,
    **settings: Any,
) -> RunFolder:
    """Phase 2: filters, eq. 1, eligibility, sampling, variants; no masked LM runs.

    Args:
        run: The folder that `suggest` filled.
        ablation: One of `config.ablation_names()` (D13): built into a folder of that name
            inside `run`, for the seeds that are eligible without it (paper, A.2).
        into: Name of a folder inside `run` for this build, so that the run's own stays;
            by default `ablation`, if any.
        distribution: Where tasks work on the problems; by default `workers` processes do here.
        overwrite: Replace a build of other settings, problems or models.
        may_be_empty: Whether it is fine if nothing is left, as of a slice.
        settings: Fields of `Config` to change for this build alone: the manifest has them,
            the run's `config.toml` stays.

    Returns:
        The folder with the result.

    Raises:
        BlockingIOError: another command is at work in the folder.
        ExecutorError: tasks failed; what they finished is kept.
        FileExistsError: the folder has a build of other settings, problems or models.
        FileNotFoundError: `run` holds no suggestions.
        ValueError: suggestions are missing or were changed since, settings are wrong, or nothing
            is left.
    """
    base, name = RunFolder(Path(run)), into or ablation
    out = base.named(name)
    base.require_suggestions()
    with out.locked():
        options = {"overwrite": overwrite, "may_be_empty": may_be_empty}
        _build(base, out, ablation, settings, distribution, **options)
    return out


def _build(
    base: RunFolder,
    out: RunFolder,
    ablation: str | None,
    settings: Mapping[str, Any],
    distribution: Distribution | None,
    *,
    overwrite: bool,
    may_be_empty: bool,
) -> None:
    """Build from the suggestions of a run, into its own folder or one inside."""
    config = _overlaid(base, ablation, settings)
    _require_libraries(config)
    suggested = read_record(base.suggested)
    if missing := {"mlms", "problems", "questions", "source_data"} - suggested.keys():
        raise ValueError(
            f"{base.suggested}: expected the record of merge-nli suggest, got one without "
            f"{', '.join(sorted(missing))}; run merge-nli suggest again"
        )
    made_from = suggested.copy()
    suggested["mlms"] = _used_mlms(suggested["mlms"], config.without_mlms)
    _require_fitting(base, config, suggested)
    if not overwrite:
        known = {key: suggested[key] for key in ("source_data", "mlms")}
        out.require_same_build(config.output_settings(), made_from=known)
    unchanged_questions(base)
    if not ablation:
        require_asked(base.path, config, suggested)
    pll_changes = _pll_changes(out, base, config)
    _tell_of_quality(config, pll_changes)
    nonce = NonceAnswers.of(out, base) if "hangs_on_word" in config.optional_columns else None
    if ablation and not base.manifest.is_file():
        raise FileNotFoundError(
            f"an ablation keeps the seeds that are eligible without it: expected a build in "
            f"{base.path}, found none; run: merge-nli build --run {base.path}"
        )
    if ablation:
        base.require_unchanged(base.manifest, [base.variants.name], "build")
    unablated = base.variants if ablation else None
    inputs = Inputs(base, config, suggested["mlms"], unablated, pll_changes, nonce)
    read = [made_from, read_record(base.manifest) if ablation else None]
    require_good = partial(_require_good, base, made_from, may_be_empty=may_be_empty)
    with block_results(inputs, out, distribution, made_from=digest_of(read)) as results:
        total = _write_results(results, config, out, suggested, require_good)
    if out.path != base.path:
        write_text(out.config, config.to_toml())
    manifest = manifest_of(
        out,
        config,
        suggested,
        signals=pll_changes.made_by if pll_changes else None,
        nonce=nonce.made_by if nonce else None,
        tagger=total.tagger,
        funnel=total.funnel.rows(),
        changes=total.changes if config.changes_more else None,
        eligible=total.eligible,
        variants=total.variants,
    )
    write_record(out.manifest, manifest)


def _require_good(
    base: RunFolder,
    made_from: Mapping[str, Any],
    total: _Total,
    config: Config,
    *,
    may_be_empty: bool,
) -> None:
    """Raise ValueError where nothing is left, or the suggestions were replaced meanwhile.

    A build inside the run's folder does not hold that folder, so that several can run.
    """
    if not may_be_empty:
        _require_variants(total, base, config)
    if not base.suggested.is_file() or read_record(base.suggested) != made_from:
        raise ValueError(
            f"{base.path}: expected the suggestions to stay during the build, but another command "
            "replaced them; wait until it has ended, and build again"
        )


def _pll_changes(out: RunFolder, base: RunFolder, config: Config) -> PllChanges | None:
    """Find the output of `merge-nli signals`.

    Raises:
        ValueError: a filter wants it, and there is nothing; or it is of other problems.
    """
    # The limit is on words as they were before their letters are shuffled.
    scored = base if config.scramble and config.min_pll_change is not None else out
    found = PllChanges.of(scored, base)
    if found is None and config.min_pll_change is not None:
        raise ValueError(
            f"min_pll_change: expected pseudo-log-likelihoods in {base.signals}, found none; "
            f"{cure(scored, base)}"
        )
    return found


def _tell_of_quality(config: Config, pll_changes: PllChanges | None) -> None:
    """Log by which of its models the column `quality` is estimated."""
    if "quality" not in config.optional_columns:
        return
    if pll_changes is not None and pll_changes.is_causal:
        fitted, name = shipped()["fitted"]["likelihood_by"], pll_changes.made_by[CAUSAL]["name"]
        log.info("quality: by grammar and changes of log-likelihood by %s; fitted with those by %s",
                 name, fitted)  # fmt: skip
    else:
        log.info("quality: by grammar alone; what a causal language model says of the sentences "
                 "tells more: merge-nli signals --lm MODEL, then build again")  # fmt: skip


def _overlaid(base: RunFolder, ablation: str | None, settings: Mapping[str, Any]) -> Config:
    """The settings of a build; those of its problems are what `suggest` had.

    Raises:
        ValueError: problems of another format are asked for.
    """
    suggested = Config.read(base.config)
    config = suggested.overlaid(ablation, settings)
    for name in ("fields", "labels", "shared_fields"):
        if (got := getattr(config, name)) != (there := getattr(suggested, name)):
            wanted, asked = (", ".join(each) or "none" for each in (there, got))
            raise ValueError(
                f"{base.path}: expected {name} {wanted}, which its problems were read with, got "
                f"{asked}; run: merge-nli suggest with these settings"
            )
    return config


@dataclass(slots=True)
class _Total:
    """Counts of a build over all blocks."""

    funnel: Funnel = field(default_factory=Funnel)
    changes: Counter[Fate] = field(default_factory=Counter)
    replacements: int = 0
    variants: int = 0
    eligible: Counter[str] = field(default_factory=Counter)
    """Word class → seeds."""
    tagger: str = ""
    most: int = 0
    """The largest number of replacements that were too few."""


def _write_results(
    results: Iterable[BlockResult],
    config: Config,
    out: RunFolder,
    suggested: Mapping[str, Any],
    require_good: Callable[[_Total, Config], None],
) -> _Total:
    """Write what the blocks come to, one after the other, and sum up.

    Files take their places where `require_good` raises nothing at the end.
    """
    total = _Total()
    problems = suggested["problems"]
    unlabelled_ids = deque(sorted(problems["unlabelled"]))
    problem_format = config.problem_format
    schemas = {
        out.replacements: replacement_schema(problem_format),
        out.exclusions: EXCLUSIONS,
        out.seeds: arrow_schema(problem_format),
        out.variants: arrow_schema(problem_format),
    }
    with ExitStack() as stack:
        bar = stack.enter_context(tqdm(total=problems["kept"], desc="building", unit="problem"))
        replacements, exclusions, seeds, variants = (
            stack.enter_context(RowGroupWriter(stack.enter_context(atomic(path)), schema))
            for path, schema in schemas.items()
        )
        for result in results:
            before = []
            while unlabelled_ids and (result.is_last or unlabelled_ids[0] < result.last):
                before.append(unlabelled_ids.popleft())
            missing = unlabelled(before, config.source)
            replacements.write(result.replacements)
            exclusions.write(exclusion_table([*missing, *result.exclusions]))
            seeds.write(result.seeds)
            variants.write(result.variants)
            total.funnel.merge(result.funnel)
            total.changes.update(result.changes)
            total.eligible.update(result.eligible)
            total.tagger = result.tagger
            few = (e.replacements or 0 for e in result.exclusions if e.reason == Reason.TOO_FEW)
            total.most = max([total.most, *few])
            bar.update(result.problems)
        total.replacements, total.variants = replacements.rows, variants.rows
        require_good(total, config)
        # Till here an earlier build is whole; now its files are replaced.
        out.manifest.unlink(missing_ok=True)
    return total


def _require_variants(total: _Total, base: RunFolder, config: Config) -> None:
    """Raise where nothing is left."""
    if not total.replacements:
        raise ValueError(
            f"{base.path}: no word of its problems has a replacement left; most suggestions were "
            f"dropped as: {most_frequent_reasons(total.funnel.rows())}"
        )
    if not total.variants:
        count = config.words_at_once
        what = f"combinations of {count} replacements" if count > 1 else "replacements"
        raise ValueError(
            f"{base.path}: no seed has {config.min_replacements} {what} per "
            f"{config.min_replacements_scope}, the most is {total.most}; add masked LMs or "
            "problems, or lower `min_replacements`; most suggestions were dropped as: "
            f"{most_frequent_reasons(total.funnel.rows())}"
        )


def _used_mlms(
    records: Sequence[Mapping[str, Any]], without: Sequence[str]
) -> list[Mapping[str, Any]]:
    """Return the records of `suggest` about the masked LMs that a build uses.

    Raises:
        ValueError: there is none that is to be left out, or no other.
    """
    names = [record["name"] for record in records]
    check_members("without_mlms", without, tuple(names))
    used = [record for record in records if record["name"] not in without]
    if not used:
        raise ValueError(
            f"without_mlms: expected to leave one of {', '.join(names)}, got all of them"
        )
    return used


def _require_fitting(base: RunFolder, config: Config, suggested: Mapping[str, Any]) -> None:
    """Raise ValueError where the settings ask for other suggestions than there are."""
    wanted = {
        "masking": config.masking,
        "suggestions_per_occurrence": config.suggestions_per_occurrence,
        "max_pieces": config.max_pieces,
    }
    for record in suggested["mlms"]:
        there = {key: {"max_pieces": 1, **record}[key] for key in wanted}
        if there != wanted:
            raise ValueError(
                f"{base.path}: expected suggestions made with {wanted}, found {there}; run: "
                "merge-nli suggest with these settings"
            )
