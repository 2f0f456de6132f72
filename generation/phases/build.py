"""Phase 2, `build`: all steps after the masked LMs' answers, quick; and `generate`, both phases."""

from __future__ import annotations

import logging
import shutil
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tqdm import tqdm

from generation.config import Config
from generation.phases.suggest import require_asked, suggest
from generation.problems.on_disk import block_sizes
from generation.problems.tagging import TaggedProblems
from generation.records import (
    EXCLUSIONS,
    Exclusion,
    exclusion_table,
    replacement_schema,
    seed_rows,
    sorted_replacements,
    variant_rows,
    with_columns,
)
from generation.run_folder import SCORED, RunFolder, explain, versions
from generation.suggestions.store import OF_SETTINGS, mlm_names, unchanged_questions
from generation.variants import reasons
from generation.variants.further_edits import Fate, adapt
from generation.variants.perturbations import in_full, perturbations_of, shuffle_letters
from generation.variants.signal_columns import (
    CAUSAL,
    FILLERS,
    NEIGHBOURS,
    ONLY,
    BlockRows,
    SignalFile,
    cure,
    judged_variants,
    quality_sources,
    require_columns,
    require_dictionary,
    with_signals_of_no_words,
)
from generation.variants.validation import draw, eligible, find_replacements, of_pairs
from generation.variants.work import BlockResult, BlockWork, work_on_blocks
from merge_dataset import files, provenance
from merge_dataset.executors import Distribution
from merge_dataset.schema import arrow_schema
from merge_dataset.settings import RUNNING, check_members, declared_settings

log = logging.getLogger(__name__)

_PACKAGES: Final = ("datasets", "inflect", "numpy", "pyarrow", "spacy", "tokenizers", "torch",
                    "transformers", "wordfreq")  # fmt: skip
_TABLES: Final = ("replacements", "exclusions", "seeds", "variants")
"""Files of a build, by their names in `RunFolder`."""


Qualities = dict[str, list[float]]
"""Word class → for each seed with enough replacements, the quality that enough of them have."""


@dataclass(frozen=True)
class Builder(BlockWork):
    """The inputs of a build, and the work on one block; can be sent to other processes."""

    unablated: Path | None = None
    """Variants of the build whose eligible seeds an ablation keeps."""
    signals: Mapping[str, SignalFile] = field(default_factory=dict)
    """Outputs of `merge-nli signals`: `signals` and `neighbours`."""

    @cached_property
    def kept_pairs(self) -> pa.Table | None:
        """Seeds and classes that an ablation keeps, as they are eligible without it."""
        if self.unablated is None:
            return None
        return files.distinct_rows(self.unablated, ["seed_id", "word_class"])

    def result(self, block: int) -> BlockResult:
        """Find, filter, select and draw a block's replacements; return rows by file, and counts."""
        config, problems = self.config, self.problems(block)
        found, funnel, unsettled = find_replacements(
            problems, self.survivors, self.lexicon, self.tagger, config
        )
        edited, rejected, changes = adapt(problems, found, self.tagger, config)
        whole = self._with_signals(problems, edited)
        everything = np.ones(len(whole), np.bool_)
        numbers = reasons.first_reasons(everything, ("signals",), whole, config)
        reasons.count_rejections(edited, numbers, problems, config.problem_format, funnel)
        is_kept = pa.array(numbers == reasons.NO_REASON)
        refused = reasons.count_words(edited.filter(pc.invert(is_kept)))
        rejected |= {key: (reasons.Reason.REJECTED_BY_SIGNALS, n) for key, n in refused.items()}
        # Computed once: drawn and written rows take these signals from here.
        signals = {name: whole[name] for name in whole.column_names if name in FILLERS}
        kept = with_columns(edited, signals).filter(is_kept)
        if config.scramble:
            kept, ambiguous = shuffle_letters(kept, problems, config.rng_seed)
            for word_class, count in ambiguous.items():
                changes[word_class, reasons.KEPT] -= count
                changes[word_class, reasons.Reason.AMBIGUOUS] += count
        out_of_reach = dict.fromkeys(unsettled, (reasons.Reason.OUT_OF_REACH, None))
        excluded = reasons.excluded_words(problems, kept, {**rejected, **out_of_reach})
        drawn, too_few = self._drawn(kept, whole.filter(is_kept))
        variants, replacements = (self._written(problems, rows) for rows in (drawn, kept))
        if config.changes_more or config.scramble:  # no longer in the order they were found in
            replacements = sorted_replacements(replacements)
        ids = set(variants["seed_id"].unique().to_pylist())
        seeds = {seed.seed_id: seed for seed in problems.seeds if seed.seed_id in ids}
        edits = [one.text_edits() for one in perturbations_of(drawn, problems)]
        tables = {
            "replacements": replacements,
            "exclusions": exclusion_table([*excluded, *too_few]),
            "seeds": seed_rows(seeds.values(), config.problem_format),
            "variants": variant_rows(variants, seeds, edits, config.problem_format),
        }
        eligible_pairs = variants.group_by(["seed_id", "word_class"]).aggregate([])
        counts = {
            "last": problems.seeds[-1].seed_id,
            "is_last": block == len(block_sizes(self.run.problems)) - 1,
            "problems": len(problems.seeds),
            "funnel": [[*key, count] for key, count in funnel.items()],
            "changes": [[*fate, count] for fate, count in (+changes).items()],
            "qualities": self._qualities(whole, numbers),
            "eligible": dict(Counter(eligible_pairs["word_class"].to_pylist())),
            "tagger": self.tagger.name,
        }
        return tables, counts

    def _drawn(self, rows: pa.Table, of_words: pa.Table) -> tuple[pa.Table, list[Exclusion]]:
        """Draw variants of the rows of eligible seeds (D9); return also what has too few.

        An ablation keeps the seeds that are eligible without it. `of_words` are the rows in full,
        before letters are shuffled.
        """
        too_few: list[Exclusion] = []
        if self.kept_pairs is None:
            chosen, too_few = eligible(rows, self.config)
        else:
            mine = pc.is_in(self.kept_pairs["seed_id"], value_set=rows["seed_id"].unique())
            chosen = of_pairs(rows, self.kept_pairs.filter(mine))
        drawn = draw(chosen, self.config)
        if (scores := self.signals.get(self.config.scores)) and ONLY not in scores.made_by:
            # Only replacements of eligible seeds were scored: enough, unless limits are looser.
            pairs = drawn.group_by(["seed_id", "word_class"]).aggregate([])
            scores.of(of_pairs(of_words, pairs), required=True)
        return drawn, too_few

    def _qualities(self, whole: pa.Table, numbers: NDArray[np.int8]) -> Qualities:
        """Find what quality enough replacements of each seed have; `numbers` say why rows drop."""
        found: Qualities = {}
        if self.config.min_quality is None or self.config.min_replacements_scope != "class":
            return found
        good = np.isin(numbers, (reasons.NO_REASON, reasons.Reason.LOW_QUALITY.number))
        of_seeds = whole.filter(good).group_by(["word_class", "seed_id"])
        least = self.config.min_replacements
        for row in of_seeds.aggregate([("quality", "list")]).to_pylist():
            of_seed = sorted(1.0 if q is None else q for q in row["quality_list"])
            if len(of_seed) >= least:
                found.setdefault(row["word_class"], []).append(of_seed[-least])
        return found

    def _with_signals(self, problems: TaggedProblems, rows: pa.Table) -> pa.Table:
        """Return rows in full, with all signals, which are computed."""
        required = self.config.min_pll_change is not None
        whole = self._with_changes(in_full(rows, problems), required=required)
        filled = BlockRows(whole, rows, problems, self.config, self.signals)
        new = {name: filled.column(name) for name in whole.column_names if name in FILLERS}
        return with_columns(whole, {n: x.cast(whole[n].type) for n, x in new.items()})

    def _written(self, problems: TaggedProblems, rows: pa.Table) -> pa.Table:
        """Return rows that have their signals in full, as files have them."""
        whole = self._with_changes(in_full(rows, problems))
        return with_signals_of_no_words(whole) if self.config.scramble else whole

    def _with_changes(self, whole: pa.Table, *, required: bool = False) -> pa.Table:
        changes = self.signals.get("signals")
        return (
            whole if changes is None else with_columns(whole, changes.of(whole, required=required))
        )


def generate(
    config: Config, *, distribution: Distribution | None = None, overwrite: bool = False
) -> RunFolder:
    """Make variants of problems by `suggest`, then `build`; for `scored_by`, score in between.

    Args:
        config: The run's settings; `config.run` is the folder to write.
        distribution: Where tasks work.
        overwrite: Replace a build of other settings, problems or models.

    Returns:
        The run folder, ready for export.

    Raises:
        ValueError, FileNotFoundError, FileExistsError, BlockingIOError: as in the two phases.
    """
    run = RunFolder(Path(config.run))
    with run.locked():
        if not overwrite:
            names = {"mlms": [{"name": name} for name in mlm_names(config.mlms)]}
            run.require_same_build(config.output_settings(), made_from=names)
        require_dictionary(config)
        suggest(config, distribution=distribution, overwrite=overwrite)
        if config.scored_by:
            from generation.signals.pll_changes import Kind, causal_lm, write_changes  # torch

            kind: Kind = "lm" if config.scored_by == CAUSAL else "neighbours"
            run.named(SCORED).signals_made.unlink(missing_ok=True)
            # The LM reads the last text first: many changes rule out the whole replacement, or its
            # seed, in which too few are left.
            texts = config.problem_format.fields
            for only in [texts[-1:], ()] if kind == "lm" else [()]:
                # Limits apply to words before their letters are shuffled.
                build(run, into=SCORED, distribution=distribution, overwrite=True, scramble=False)
                write_changes(
                    run.path, kind, config.lm or "", of=SCORED, only=only, distribution=distribution
                )
            causal_lm.cache_clear()
        return build(run, distribution=distribution, overwrite=overwrite)


def build(
    run: str | Path | RunFolder,
    *,
    ablation: str | None = None,
    into: str | None = None,
    distribution: Distribution | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> RunFolder:
    """Phase 2: make variants by filters, eq. 1, eligibility and sampling; no masked LM runs.

    Args:
        run: The folder that `suggest` filled.
        ablation: Name of one of `recipes/ablations` (D13): built into a folder of that name
            inside `run`, for the seeds that are eligible without it (paper, A.2).
        into: Name of a folder inside `run` for this build, so that the run's own build stays;
            by default `ablation`, if any. Builds in `scored` are for what is to be scored: they
            may have no variants.
        distribution: Where tasks work on the problems; by default `workers` processes do here.
        overwrite: Replace a build of other settings, problems or models.
        settings: Fields of `Config` to change for this build alone: the manifest records them,
            and the run's `config.toml` stays.

    Returns:
        The folder with the result.

    Raises:
        BlockingIOError: another command is at work in the folder.
        ExecutorError: tasks failed.
        FileExistsError: the folder has a build of other settings, problems or models.
        FileNotFoundError: `run` holds no suggestions.
        ValueError: suggestions are missing or were changed since, settings are wrong, or no
            variant is left.
    """
    base = RunFolder(Path(run))
    out = base.named(into or ablation)
    base.require("suggest")
    with out.locked():
        config = build_settings(base, ablation, settings)
        require_dictionary(config)
        keys = ("mlms", "problems", "questions", "source_data")
        suggested = files.read_record(base.suggested, *keys, remedy="Run merge-nli suggest again")
        names = [mlm["name"] for mlm in suggested["mlms"]]
        check_members("without_mlms", config.without_mlms, names)
        mlms = [mlm for mlm in suggested["mlms"] if mlm["name"] not in config.without_mlms]
        if not mlms:
            raise ValueError(
                f"without_mlms: expected to leave one of {', '.join(names)}, got all of them"
            )
        made_from = {"source_data": suggested["source_data"], "mlms": mlms}
        if not overwrite:
            out.require_same_build(config.output_settings(), made_from=made_from)
        unchanged_questions(base)
        if not ablation:
            require_asked(base.path, config, suggested)
        signals = _model_signals(out, base, config, asked=suggested["mlms"], used=mlms)
        signals |= judged_variants(out, config)
        if ablation:  # keeps the seeds that are eligible without it
            base.require("build")
            base.require_unchanged(base.manifest, [base.variants.name], "build")
        builder = Builder(base, config, base.variants if ablation else None, signals)
        with builder.with_candidates(out.candidates) as work:
            results = work_on_blocks(work, "result", out.tasks("build"), distribution)
            totals = _write_results(results, builder, out, suggested)
        shutil.rmtree(out.tasks("build"), ignore_errors=True)
        if out.path != base.path:
            config.write(out.config)
        made_from |= {name: file.made_by for name, file in signals.items()}
        files.write_record(out.manifest, _record(out, config, suggested, made_from, totals))
    return out


def _record(
    out: RunFolder,
    config: Config,
    suggested: Mapping[str, Any],
    made_from: Mapping[str, Any],
    totals: Totals,
) -> dict[str, Any]:
    """Make the manifest of a build, whose tables are written."""
    determined_by = {"config": config.output_settings(), **made_from, "tagger": totals.tagger}
    told_by = [{k: v for k, v in mlm.items() if k != "weights"} for mlm in made_from["mlms"]]
    problems, tables = suggested["problems"], (getattr(out, name) for name in _TABLES)
    return {
        "source": config.source,
        "recipe": config.recipe,
        "ablation": config.ablation,
        "fingerprint": files.digest_of({**determined_by, "mlms": told_by}),
        **determined_by,
        "packages": versions(*_PACKAGES),
        "problems": {**problems, "unlabelled": len(problems["unlabelled"])},
        "questions": suggested["questions"],
        **({"asked": suggested["asked"]} if "asked" in suggested else {}),
        **totals.record(config),
        "draw": provenance.DRAW,
        "files": files.digests({path.name: path for path in tables}),
    }


def _model_signals(
    out: RunFolder,
    base: RunFolder,
    config: Config,
    *,
    asked: Sequence[Mapping[str, Any]],
    used: Sequence[Mapping[str, Any]],
) -> dict[str, SignalFile]:
    """Open what models scored, of which the build's settings may require some."""
    limited = config.min_pll_change is not None or config.scored_by
    # Limits apply to words before their letters are shuffled.
    own, best_case = base if config.scramble and limited else out, base.named(SCORED)
    signals: dict[str, SignalFile] = {}
    for name in ("signals", NEIGHBOURS):
        setting, runs = "min_pll_change", [own, base, best_case]
        if name in (NEIGHBOURS, config.scores):
            setting = "scored_by"
        if name == config.scores:
            # The run's own build has scores only of replacements of the quality wanted.
            runs.sort(key=lambda run: run.path == base.path)
        if records := [path for run in runs if (path := run.path / f"{name}.json").is_file()]:
            remedy = cure(own, base, setting, config)
            signals[name] = SignalFile.read(records[0], base.problems, remedy, setting)
    if config.min_pll_change is not None and "signals" not in signals:
        raise ValueError(
            f"min_pll_change: expected pseudo-log-likelihoods in {base.signals}, found none; "
            f"{cure(own, base, 'min_pll_change', config)}"
        )
    made_by = signals[config.scores].made_by if config.scores in signals else {}
    if out.path == best_case.path:
        log.info("looking for replacements that can have the `quality` wanted, to have them scored")
        if ONLY not in made_by:
            signals.pop(config.scores, None)
        return signals
    if config.scored_by:
        _require_scorers(made_by, config, asked, used, cure(own, base, "scored_by", config))
    if "quality" in config.optional_columns:
        log.info("quality: by %s", quality_sources(config, signals))
    return signals


def _require_scorers(
    made_by: Mapping[str, Any],
    config: Config,
    asked: Sequence[Mapping[str, Any]],
    used: Sequence[Mapping[str, Any]],
    remedy: str,
) -> None:
    """Raise ValueError unless the models that a build's settings name made the scores it reads."""
    if config.lm and config.scored_by == CAUSAL:
        wanted, names = config.lm, {made_by[CAUSAL]["name"]} if CAUSAL in made_by else set()
        is_right = names == {*mlm_names([wanted])}
    else:
        wanted = "the masked LMs, in their revisions"
        scored, of_asked, of_used = (
            {(mlm["name"], mlm["revision"]) for mlm in mlms}
            for mlms in (made_by.get("mlms", ()), asked, used)
        )
        names = {name for name, _ in scored}
        is_right = bool(made_by) and of_used <= scored <= of_asked
    if not is_right:
        raise ValueError(
            f"scored_by: expected scores by {wanted}, found those by "
            f"{', '.join(sorted(names)) or 'none'}; {remedy}"
        )


def build_settings(base: RunFolder, ablation: str | None, settings: Mapping[str, Any]) -> Config:
    """Overlay a run's settings by a build's; require settings of `suggest` alone to be equal."""
    suggested = Config.read(base.config)
    config = suggested.overlaid(ablation, settings)
    require_columns(config, settings.get("with_columns"))
    for one, declared in declared_settings(Config).items():
        commands, name = declared.commands.split(), one.name
        is_of_suggest = "suggest" in commands and "build" not in commands
        if declared.panel == RUNNING or not (is_of_suggest or name in OF_SETTINGS):
            continue
        if (got := getattr(config, name)) != (before := getattr(suggested, name)):
            raise ValueError(
                f"{base.path}: expected {name} {before!r}, which merge-nli suggest had, got "
                f"{got!r}; run: merge-nli suggest with these settings"
            )
    return config


# --- Results of all blocks ---


@dataclass(slots=True)
class Totals:
    """Sums over the blocks of a build."""

    funnel: reasons.Funnel = field(default_factory=Counter)
    changes: Counter[Fate] = field(default_factory=Counter)
    """Fates of replacements that edit more than a word."""
    eligible: Counter[str] = field(default_factory=Counter)
    """Word class → number of seeds with variants."""
    qualities: Qualities = field(default_factory=dict)
    most: int = 0
    """Largest number of replacements that were too few."""
    tagger: str = ""
    variants: int = 0

    def add(self, tables: Mapping[str, pa.Table], counts: Mapping[str, Any]) -> None:
        """Add the result of a block."""
        self.funnel.update({tuple(key): n for *key, n in counts["funnel"]})
        self.changes.update({(of, fate): n for of, fate, n in counts["changes"]})
        self.eligible.update(counts["eligible"])
        for word_class, of_class in counts["qualities"].items():
            self.qualities.setdefault(word_class, []).extend(of_class)
        few = pc.equal(tables["exclusions"]["reason"], reasons.Reason.TOO_FEW.value)
        most = pc.max(tables["exclusions"].filter(few)["replacements"]).as_py()
        self.most, self.tagger = max(self.most, most or 0), counts["tagger"]
        self.variants += len(tables["variants"])

    def record(self, config: Config) -> dict[str, Any]:
        """Return what the manifest says of them."""
        changes: dict[str, dict[str, Any]] = {}
        for (word_class, fate), count in sorted(self.changes.items()):
            first = {"word_class": word_class, reasons.KEPT: 0}
            changes.setdefault(word_class, first)[fate] = count
        thinned = self.thinned()
        explained = explain(Config, config.output_settings(), reasons.FUNNEL_COLUMNS)
        return {
            "funnel": reasons.funnel_rows(self.funnel),
            provenance.EXPLAINED: explained,
            **({"changes": list(changes.values())} if config.changes_more else {}),
            "eligible": {
                word_class: self.eligible[word_class] for word_class in config.word_classes
            },
            **({"thinned": thinned} if thinned else {}),
            "variants": self.variants,
        }

    def thinned(self) -> list[dict[str, Any]]:
        """Describe the classes in which `min_quality` leaves less than half of the seeds."""
        few: list[dict[str, Any]] = []
        for word_class, qualities in sorted(self.qualities.items()):
            seeds, n = self.eligible[word_class], len(qualities)
            if 2 * seeds < n:
                half_at = int(sorted(qualities, reverse=True)[(n - 1) // 2] * 100) / 100
                counts = {"without_limit": n, "seeds": seeds, "half_at": half_at}
                few.append({"word_class": word_class, **counts})
        return few


def _write_results(
    results: Iterable[BlockResult], builder: Builder, out: RunFolder, suggested: Mapping[str, Any]
) -> Totals:
    """Write the tables of all blocks; return their totals."""
    base, config, totals = builder.run, builder.config, Totals()
    unlabelled_ids = deque(sorted(suggested["problems"]["unlabelled"]))
    of_rows, of_all = (make(config.problem_format) for make in (arrow_schema, replacement_schema))
    schemas = dict(zip(_TABLES, (of_all, EXCLUSIONS, of_rows, of_rows), strict=True))
    with ExitStack() as stack:
        total = suggested["problems"]["kept"]
        bar = stack.enter_context(tqdm(total=total, desc="building", unit="problem"))
        writers = {}
        for name, schema in schemas.items():
            path = stack.enter_context(files.atomic(getattr(out, name)))
            writers[name] = stack.enter_context(files.RowGroupWriter(path, schema))
        for tables, counts in results:
            before = []
            while unlabelled_ids and (counts["is_last"] or unlabelled_ids[0] < counts["last"]):
                before.append(unlabelled_ids.popleft())
            without_label = exclusion_table(reasons.unlabelled(before, config.source))
            left_out = pa.concat_tables([without_label, tables["exclusions"]]).sort_by("seed_id")
            for name, writer in writers.items():
                writer.write(left_out if name == "exclusions" else tables[name])
            totals.add(tables, counts)
            bar.update(counts["problems"])
        if not totals.variants and out.path.name != SCORED:
            raise ValueError(
                f"{base.path}: no seed has {config.min_replacements} replacements per "
                f"{config.min_replacements_scope}, the most is {totals.most}; add masked LMs or "
                "problems, or lower `min_replacements`; most suggestions were dropped as: "
                f"{reasons.most_frequent_reasons(totals.funnel)}"
            )
        if not base.suggested.is_file() or files.read_record(base.suggested) != suggested:
            raise ValueError(
                f"{base.path}: expected the suggestions to stay during the build, but another "
                "command replaced them; wait until it has ended, and build again"
            )
        # An earlier build is whole until here; now its files are replaced.
        out.manifest.unlink(missing_ok=True)
    return totals
