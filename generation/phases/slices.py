"""Slices: a source too large for one run is split into several runs, with joint results.

The problems, sorted by id, are cut into runs in `slices/`. The rows of these runs, one after the
other, are the rows that a single run of all problems would make.
"""

import json
import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from generation.config import Config, ProblemSettings
from generation.model_signals.pll_changes import NEIGHBOURS, write_changes
from generation.phases.build import build_run, build_settings
from generation.phases.suggest import named_mlms, suggest_run
from generation.problems.on_disk import divided, sorting
from generation.problems.sources import (
    Problems,
    load_problems,
    require_labels,
    require_source,
    source_files,
)
from generation.run_folder import PACKAGES, SCORED, RunFolder, versions
from generation.variants.optional_columns import require_dictionary
from merge_dataset import provenance
from merge_dataset.executors.plan import Distribution, ExecutorError
from merge_dataset.files import (
    changed_files,
    describe_os_error,
    digest_of,
    digest_of_file,
    digests,
    read_record,
    write_record,
    write_text,
)
from merge_dataset.paths import as_path, described
from merge_dataset.settings import require_settings

log = logging.getLogger(__name__)

_Slice = tuple[RunFolder, Problems]
"""A run folder, and its problems, which are already in it."""

_KEYS: Final = ("mlm", "word_class")

_OF_QUESTIONS: Final = ("not_in_vocabulary", "windowed")
"""Counts of a masked LM's questions. A question that two slices ask is counted twice."""

_ALIKE: Final = 3
"""Number of first slices; if all of them fail, the others are not tried."""


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
        TypeError: `config` is no `Config`.
        ValueError, FileNotFoundError, FileExistsError, BlockingIOError: as in the two phases.
    """
    require_settings("config", config, Config)
    run = RunFolder(Path(config.run))
    with run.locked():
        if not overwrite and config.slice_problems is None:
            run.require_same_build(config.output_settings(), made_from=named_mlms(config))
        require_dictionary(config)
        suggest(config, distribution=distribution, overwrite=overwrite)
        if config.scored_by:
            parts = [folder for folder, _ in _read(run)] if run.sliced.is_file() else [run]
            for part in parts:
                # Limits apply to words before their letters are shuffled.
                build_run(part.path, into=SCORED, distribution=distribution, overwrite=True,
                          may_be_empty=True, scramble=False)  # fmt: skip
                write_changes(part.path, NEIGHBOURS, of=SCORED, distribution=distribution)
        return build(config.run, distribution=distribution, overwrite=overwrite)


def suggest(
    config: Config, *, distribution: Distribution | None = None, overwrite: bool = False
) -> RunFolder:
    """Phase 1: ask every masked LM about the occurrences of shared words.

    Resumes where an earlier run stopped; questions with answers in the store are not asked again.

    Args:
        config: The run's settings; with `slice_problems`, the run works slice by slice.
        distribution: Where tasks ask the masked LMs; by default this process does.
        overwrite: Replace results of other problems or models. The masked LMs' answers stay in
            any case.

    Returns:
        The run folder.

    Raises:
        BlockingIOError: another command is at work in the folder.
        ExecutorError: tasks or slices failed (others are kept), or there is no such executor.
        FileExistsError: the folder has a build, or slices, of other problems, sizes or models.
        FileNotFoundError: the source's file does not exist.
        TypeError: `config` is no `Config`.
        ValueError: the settings name no MLM or two of the same name, or a model, a
            source or the tagger cannot be loaded.
    """
    require_settings("config", config, Config)
    run = RunFolder(Path(config.run))
    options: dict[str, Any] = {"distribution": distribution, "overwrite": overwrite}
    if config.slice_problems is None:
        if run.sliced.is_file():
            size = read_record(run.sliced, "size")["size"]
            raise FileExistsError(
                f"{run.path}: expected a run without slices, got one with slices of {size:,} "
                f"problems; add --slice-problems {size}, or name another run folder with --run"
            )
        return suggest_run(config, **options)
    require_labels(config)
    require_source(config)
    with run.locked():
        slices = _dealt(run, config, overwrite=overwrite)

        def ask(part: _Slice) -> None:
            # Settings of the whole run, with its masked LMs and store.
            whole = config.with_absolute_paths()
            mine = replace(whole, run=str(part[0].path), slice_problems=None)
            suggest_run(mine, problems=part[1], **options)

        def files(folder: RunFolder) -> list[Path]:
            return [folder.problems, folder.suggested]

        made_from = {**config.output_settings(), "mlms": config.mlms, "store": config.store,
                     "device": config.device, "dtype": config.dtype, "tagger": config.tagger,
                     "ask_all": config.ask_all}  # fmt: skip
        done = _do_each(run, "suggest", slices, ask, files, made_from, again=overwrite)
        require_same_mlms(run, [read_record(folder.suggested) for folder, _ in slices])
        done.unlink(missing_ok=True)
    return run


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
        ablation: One of `config.ablation_names()` (D13): built into a folder of that name
            inside `run`, for the seeds that are eligible without it (paper, A.2).
        into: Name of a folder inside `run` for this build, so that the run's own build stays;
            by default `ablation`, if any.
        distribution: Where tasks work on the problems; by default `workers` processes do here.
        overwrite: Replace a build of other settings, problems or models.
        settings: Fields of `Config` to change for this build alone: the manifest records them,
            and the run's `config.toml` stays.

    Returns:
        The folder with the result.

    Raises:
        BlockingIOError: another command is at work in the folder.
        ExecutorError: tasks or slices failed; what the others finished is kept.
        FileExistsError: the folder has a build of other settings, problems or models.
        FileNotFoundError: `run` holds no suggestions.
        TypeError: `run` is not a path or `RunFolder`, or a name is not a text.
        ValueError: suggestions are missing or were changed since, settings are wrong, or no
            variant is left.
    """
    base = RunFolder(as_path("run", run))
    for key, value in (("ablation", ablation), ("into", into)):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{key}: expected one text, got {described(value)}")
    name = into or ablation
    if name == SCORED:
        raise ValueError(
            f"into: expected a name of your own for the build, got {name!r}, where merge-nli "
            "generate builds what is to be scored; take another"
        )
    options: dict[str, Any] = {
        "ablation": ablation,
        "into": into,
        "distribution": distribution,
        "overwrite": overwrite,
        **settings,
    }
    if not base.sliced.is_file():
        return build_run(base.path, **options)
    out = base.named(name)
    config = build_settings(base, ablation, settings)
    with out.locked():
        slices = _read(base)
        out.manifest.unlink(missing_ok=True)

        def one(part: _Slice) -> None:
            build_run(part[0].path, may_be_empty=True, **options)

        def files(folder: RunFolder) -> list[Path]:
            runs = (folder, folder.named(name))
            signals = (
                path
                for run in (*runs, folder.named(SCORED))
                for path in (run.signals_made, run.neighbours_made)
            )
            return [folder.suggested, *signals, *(run.manifest for run in runs)]

        made_from = config.output_settings() | {"tagger": config.tagger}
        done = _do_each(out, "build", slices, one, files, made_from, again=overwrite)
        parts = [folder.named(name) for folder, _ in slices]
        manifest = _summed(out, parts, read_record(base.sliced))
        if not manifest["variants"]:
            raise ValueError(
                f"{base.path}: no seed of any slice has enough replacements; add masked LMs "
                "or problems, or lower `min_replacements`"
            )
        write_record(out.manifest, manifest)
        done.unlink(missing_ok=True)
    return out


def _do_each(
    run: RunFolder,
    command: str,
    slices: Sequence[_Slice],
    work: Callable[[_Slice], object],
    files: Callable[[RunFolder], list[Path]],
    made_from: Mapping[str, Any],
    *,
    again: bool,
) -> Path:
    """Do the slices not yet done with `made_from`; return the file that lists the done ones."""
    path = run.slices_done(command)
    made = digest_of([made_from, versions("merge-nli", *PACKAGES)])
    there = read_record(path) if path.is_file() and not again else {}
    done: dict[str, str] = there["slices"] if there.get("made_from") == made else {}

    def digest(folder: RunFolder) -> str:
        return digest_of([digest_of_file(f) if f.is_file() else None for f in files(folder)])

    failed: dict[str, str] = {}
    for number, (folder, problems) in enumerate(slices, start=1):
        name = folder.path.name
        if done.get(name) == digest(folder):
            log.info("slice %s is done already", name)
            continue
        log.info("slice %s", name)
        try:
            work((folder, problems))
            done[name] = digest(folder)
            write_record(path, {"made_from": made, "slices": done})
        except Exception as error:  # of any kind: other slices do not depend on this one
            said = describe_os_error(error) if isinstance(error, OSError) else str(error)
            reason = " ".join(said.split()).removesuffix(".") or type(error).__name__
            log.error("slice %s failed: %s", name, reason)
            failed[name] = reason
            if number == len(failed) >= _ALIKE:
                reason = f"the first {_ALIKE} of {len(slices)} slices failed, the others were left"
                raise ExecutorError(f"{reason}: {_told(failed)}") from error
    if failed:
        raise ExecutorError(
            f"{len(failed)} of {len(slices)} slices failed: {_told(failed)}. What the others did "
            f"is kept; give the same {command} again, and it does what is missing"
        )
    return path


def _dealt(run: RunFolder, config: Config, *, overwrite: bool) -> list[_Slice]:
    """Cut the source's problems into slices, unless that was done for these files and settings."""
    size = config.slice_problems
    assert size is not None
    if run.suggested.is_file() and not overwrite:
        raise FileExistsError(
            f"{run.path}: expected slices or an empty folder, got a run without slices; name "
            "another run folder with --run, or leave out --slice-problems"
        )
    made_from = None
    if files := source_files(config):  # all that slices depend on
        settings = {field.name: getattr(config, field.name) for field in fields(ProblemSettings)}
        contents = [[str(file), digest_of_file(file)] for file in files]
        packages = versions("merge-nli", "pyarrow")
        made_from = digest_of([settings, size, contents, packages])
    there = read_record(run.sliced) if run.sliced.is_file() and not overwrite else None
    is_same = there and made_from and there.get("made_from") == made_from
    if there and is_same and not changed_files(run.path, there["files"]):
        log.info("the problems are dealt to slices already")
        write_text(run.config, config.to_toml())
        return _read(run)
    with sorting(run.sorting, config.problem_format) as sorter:
        problems = load_problems(config, sorter.add, streaming=True, scratch=run.sorting)
        record = {
            "size": size,
            "source_data": problems.source_data,
            "problems": {**problems.counts, "unlabelled": sorted(problems.unlabelled)},
        }
        if there and any(there[key] != record[key] for key in ("size", "source_data")):
            raise FileExistsError(
                f"{run.path}: expected no slices or the same ones, found slices of "
                f"{there['size']:,} out of {there['problems']['kept']:,} problems, where there "
                f"are {problems.count:,} now, {size:,} in a slice. Name another "
                "run folder with --run, or replace them with --overwrite"
            )
        problems.list_skipped(run.skipped_rows)
        count = -(-problems.count // size)
        names = [f"slices/{number:05}-of-{count:05}" for number in range(count)]
        parts = [RunFolder(run.path / name).problems for name in names]
        lasts = divided(sorter.seeds(), parts, size, config.problem_format)
    write_text(run.config, config.to_toml())
    listed = [*parts, *([run.skipped_rows] if problems.skipped else [])]
    digests_of_files = digests({path.relative_to(run.path).as_posix(): path for path in listed})
    made = {"made_from": made_from, "files": digests_of_files}
    write_record(run.sliced, {**record, "slices": names, "last": lasts, **made})
    log.info("%s: %d problems in %d slices", problems.description, problems.count, count)
    return _read(run)


def _read(run: RunFolder) -> list[_Slice]:
    record = read_record(run.sliced)
    unlabelled = record["problems"]["unlabelled"]
    found, done, start = [], 0, 0
    for number, (name, last) in enumerate(zip(record["slices"], record["last"], strict=True)):
        is_last = number == len(record["slices"]) - 1
        stop = len(unlabelled) if is_last else bisect_left(unlabelled, last)
        folder = RunFolder(run.path / name)
        count = min(record["size"], record["problems"]["kept"] - done)
        problems = Problems(
            count=count,
            unlabelled=unlabelled[start:stop],
            skipped=[],
            description=f"{record['source_data']['description']}, {Path(name).name}",
            commit=record["source_data"].get("commit"),
            sha256=digest_of_file(folder.problems),
        )
        found.append((folder, problems))
        done, start = done + count, stop
    return found


def require_same_mlms(run: RunFolder, made: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError if a masked LM changed between the slices."""
    told = {
        json.dumps([[mlm[key] for key in ("name", "revision", "dtype", "device")]
                    for mlm in each["mlms"]])
        for each in made
    }  # fmt: skip
    if len(told) > 1:
        raise ValueError(
            f"{run.path}: expected the same masked LMs in all slices, got "
            f"{' and '.join(sorted(told))}; ask all slices again with --overwrite"
        )


def _told(failed: Mapping[str, str]) -> str:
    """List the failed slices, each reason once."""
    names: dict[str, list[str]] = {}
    for name, reason in failed.items():
        names.setdefault(reason.replace(name, "…"), []).append(name)
    return "; ".join(f"{', '.join(each)}: {reason}" for reason, each in names.items())


def _summed(
    out: RunFolder, parts: Sequence[RunFolder], record: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the manifest of the whole run: the slices' common values, and sums of their counts."""
    made = [read_record(part.manifest) for part in parts]
    whole = dict(made[0])
    whole["source_data"] = record["source_data"]
    whole["problems"] = {**record["problems"], "unlabelled": len(record["problems"]["unlabelled"])}
    whole |= _questions(made)
    for key in ("funnel", "changes"):
        if key not in whole:
            continue
        added: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in (row for each in made for row in each[key]):
            there = added.setdefault(tuple(row.get(name) for name in _KEYS), {})
            for name, value in row.items():
                there[name] = there.get(name, 0) + value if isinstance(value, int) else value
        whole[key] = list(added.values())
    whole["variants"] = sum(each["variants"] for each in made)
    whole["eligible"] = {
        word_class: sum(each["eligible"][word_class] for each in made)
        for word_class in whole["eligible"]
    }
    names = [Path(os.path.relpath(part.path, out.path)).as_posix() for part in parts]
    whole["fingerprint"] = digest_of([each["fingerprint"] for each in made])
    whole["files"] = {
        f"{name}/{file}": digest
        for name, each in zip(names, made, strict=True)
        for file, digest in each["files"].items()
    }
    return {**whole, provenance.SLICES: names}


def suggestions_of(run: RunFolder) -> dict[str, Any]:
    """Read the record of `suggest`: questions and masked LMs, summed over any slices."""
    if not run.sliced.is_file():
        return read_record(run.suggested)
    made = [read_record(folder.suggested) for folder, _ in _read(run)]
    return {**read_record(run.sliced), **_questions(made)}


def _questions(made: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum counts over slices: questions, asked ones if some were left out, and by masked LM."""
    count = sum(each["questions"] for each in made)
    found: dict[str, Any] = {"questions": count}
    if some := [each["asked"] for each in made if "asked" in each]:
        asked = sum(each.get("asked", each)["questions"] for each in made)
        found["asked"] = {**some[0], "questions": asked, "of": count}
    found["mlms"] = [
        {**mlm, **{key: sum(each["mlms"][n][key] for each in made) for key in _OF_QUESTIONS}}
        for n, mlm in enumerate(made[0]["mlms"])
    ]
    return found
