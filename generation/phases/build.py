"""Phase 2, `build`: everything but the masked LMs; quick."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from generation.config import Config
from generation.phases.asking import require_asked
from generation.phases.build_tasks import Inputs, block_results
from generation.problems.morphology import require_library
from generation.reasons import Reason
from generation.records import EXCLUSIONS, exclusion_table, replacement_schema
from generation.run_folder import RunFolder, manifest_of
from generation.signals.nonce_answers import NonceAnswers
from generation.signals.quality import shipped
from generation.signals.signal_columns import CAUSAL, PllChanges, cure
from generation.suggestions.ask import unchanged_questions
from generation.variants.adaptation import Fate
from generation.variants.builder import BlockResult
from generation.variants.funnel import Funnel, most_frequent_reasons, unlabelled
from generation.variants.optional_columns import OF_DICTIONARY
from merge_dataset.executors.plan import Distribution
from merge_dataset.files import (
    RowGroupWriter,
    atomic,
    digest_of,
    read_record,
    write_record,
    write_text,
)
from merge_dataset.schema import arrow_schema
from merge_dataset.settings import check_members

log = logging.getLogger(__name__)


def build_run(
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


def _require_libraries(config: Config) -> None:
    """Raise ValueError where an option wants a library that is not there, before the long work."""
    if config.families != "ignore":
        require_library("families")
    if wanting := [name for name in config.optional_columns if name in OF_DICTIONARY]:
        require_library(", ".join(wanting))


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
