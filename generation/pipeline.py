"""The two phases and the order of their steps.

`suggest` asks the masked LMs and fills the suggestion store: slow, wants a GPU. `build`
does everything else and is quick. `generate` is both.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from generation.artifacts import (
    RunFolder,
    read_json,
    write_json,
    write_table,
    write_text,
)
from generation.candidates import Candidates
from generation.config import BUNDLED_MLM, Config, bundled_path
from generation.exclusions import unlabelled, without_replacement
from generation.funnel import Funnel
from generation.lexicon import Lexicon
from generation.manifest import manifest_of
from generation.parallel import in_order
from generation.problems import TaggedProblems, tag_problems
from generation.records import Exclusion, MaskedQuery
from generation.sampling import draw, eligible, eligible_pairs, of_pairs
from generation.sources import load_problems
from generation.suggestions import StoreIdentity, SuggestionStore
from generation.tables import (
    exclusion_table,
    problem_table,
    read_problems,
    read_replacements,
    sorted_replacements,
)
from generation.tagging import Tagger
from generation.validation import Finder
from generation.variants import seed_rows, variant_rows, word_spans

log = logging.getLogger(__name__)

_SEEDS_PER_BLOCK = 500


def generate(config: Config) -> RunFolder:
    """Problems in, variants out: `suggest`, then `build`.

    Args:
        config: The run's settings; `config.run` is the folder to write.

    Returns:
        The run folder, ready for export.

    Raises:
        ValueError, FileNotFoundError: as in the two phases.
    """
    suggest(config)
    return build(config.run)


def suggest(config: Config) -> RunFolder:
    """Phase 1: ask every masked LM about every occurrence of a shared word.

    Resumes where an earlier run stopped; what the store already holds is not asked again.

    Raises:
        ValueError: the settings name no MLM or two of the same name, or a model, a
            source or the tagger cannot be loaded.
        FileNotFoundError: the source's file does not exist.
    """
    mlms = _mlm_names(config.mlms)
    run = RunFolder(Path(config.run))
    problems = load_problems(config)
    log.info("%s: %d problems, %d without a label", problems.description, len(problems.seeds),
             len(problems.unlabelled))  # fmt: skip
    # What an earlier run left no longer fits these settings until both phases are done.
    run.manifest.unlink(missing_ok=True)
    run.suggested.unlink(missing_ok=True)
    write_text(run.config, config.to_toml())
    write_table(run.problems, problem_table(problems.seeds))
    tagger = Tagger.load(config.tagger)
    queries = tag_problems(problems.seeds, tagger, config.word_classes).queries(config.masking)
    if not queries:
        raise ValueError(
            f"{problems.description}: expected a {' or '.join(config.word_classes)} shared by "
            f"premise and hypothesis, found none in {len(problems.seeds)} problems"
        )
    records = [
        _suggest_with(model, name, queries, config, _store_root(run, config))
        for name, model in mlms.items()
    ]
    write_json(
        run.suggested,
        {
            "source": config.source,
            "source_data": {"description": problems.description, "sha256": problems.sha256},
            "problems": {
                "read": len(problems.seeds) + len(problems.unlabelled),
                "unlabelled": problems.unlabelled,
                "kept": len(problems.seeds),
            },
            "questions": len(queries),
            "mlms": records,
        },
    )
    return run


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
    problems = tag_problems(read_problems(base.problems), tagger, config.word_classes)
    funnel = Funnel()
    found = _find_replacements(problems, _stores(base, config, suggested), tagger, config, funnel)
    if not len(found):
        raise ValueError(
            f"{base.path}: no word of {len(problems.seeds)} problems has a replacement; the "
            f"funnel:\n{funnel.rows()}"
        )
    write_table(out.replacements, found)
    kept, too_few = _select(found, config, eligible_pairs)
    excluded = [
        *unlabelled(suggested["problems"]["unlabelled"], config.source),
        *without_replacement(problems.seeds, problems.words, found),
        *too_few,
    ]
    write_table(out.exclusions, exclusion_table(excluded))
    if not len(kept):
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
    found: pa.Table, config: Config, pairs: pa.Table | None
) -> tuple[pa.Table, list[Exclusion]]:
    """The replacements of eligible seeds (D9), or in an ablation of the (seed, class) given."""
    if pairs is not None:
        return of_pairs(found, pairs), []
    return eligible(found, minimum=config.min_replacements, scope=config.min_replacements_scope)


def _mlm_names(mlms: Sequence[str]) -> dict[str, str]:
    """Name in the provenance columns → what to load.

    Raises:
        ValueError: none given, or two of the same name.
    """
    if not mlms:
        raise ValueError("mlms: expected at least one masked LM, got none; add --mlm DIR_OR_ID")
    names: dict[str, str] = {}
    for model in mlms:
        if model == BUNDLED_MLM and not Path(model).is_dir():
            name, model = BUNDLED_MLM, str(bundled_path(f"demo/{BUNDLED_MLM}"))
        else:
            name = Path(model).resolve().name if Path(model).is_dir() else model.partition("@")[0]
        if name in names:
            raise ValueError(
                f"mlms: expected different names, got {name!r} for both {names[name]} and {model}"
            )
        names[name] = model
    return names


def _store_root(run: RunFolder, config: Config) -> Path:
    return Path(config.store) if config.store else run.store


def _suggest_with(
    model: str, name: str, queries: Sequence[MaskedQuery], config: Config, root: Path
) -> dict[str, Any]:
    """Fill one model's store; what the manifest says of it."""
    from generation.masked_lm import MaskedLM

    mlm = MaskedLM.load(model, name=name, device=config.device, dtype=config.dtype)
    identity = StoreIdentity(
        name=name,
        revision=mlm.revision,
        architecture=mlm.architecture,
        masking=config.masking,
        suggestions_per_occurrence=config.suggestions_per_occurrence,
        dtype=mlm.dtype,
        device=mlm.device,
    )
    store = SuggestionStore.create(root, identity, mlm.vocabulary)
    answered = len(queries) - sum(map(len, store.missing(queries)))
    with tqdm(total=len(queries), initial=answered, desc=name, unit="mask") as bar:
        store.fill(
            queries,
            lambda piece: mlm.score(
                piece,
                k=config.suggestions_per_occurrence,
                batch_tokens=config.batch_tokens,
                on_progress=bar.update,
            ),
        )
    return {**asdict(identity), "store": identity.folder, **store.counts(queries)}


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
    root = _store_root(base, config)
    return {
        record["name"]: SuggestionStore.open(root, record["store"]) for record in suggested["mlms"]
    }


def _find_replacements(
    problems: TaggedProblems,
    stores: Mapping[str, SuggestionStore],
    tagger: Tagger,
    config: Config,
    funnel: Funnel,
) -> pa.Table:
    """R_M(⟨p, h⟩, o) for every seed and shared word."""
    own_tagger = tagger if config.workers == 1 else None
    open_finder = partial(
        _open_finder, stores, problems.queries(config.masking), config, own_tagger
    )
    blocks = problems.blocks(_SEEDS_PER_BLOCK)
    tables = []
    with tqdm(total=len(problems.seeds), desc="filtering", unit="problem") as bar:
        for table, counts in in_order(blocks, open_finder, workers=config.workers):
            tables.append(table)
            funnel.merge(counts)
            bar.update(min(_SEEDS_PER_BLOCK, len(problems.seeds) - bar.n))
    return sorted_replacements(*tables)


def _open_finder(
    stores: Mapping[str, SuggestionStore],
    queries: Sequence[MaskedQuery],
    config: Config,
    tagger: Tagger | None,
) -> Finder:
    """What works on a block; in a process of its own, which is given no tagger, loads one."""
    candidates = {
        mlm: Candidates.read(store, queries, probability_filter=config.probability_filter)
        for mlm, store in stores.items()
    }
    lexicon = Lexicon.of({mlm: each.vocabulary for mlm, each in candidates.items()})
    tagger = tagger or Tagger.load(config.tagger, spare_torch=True)
    return Finder(candidates, lexicon, tagger, config)


def _eligible_pairs(base: RunFolder) -> pa.Table:
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
    return eligible_pairs(kept)


def _write_variants(
    out: RunFolder, problems: TaggedProblems, kept: pa.Table, config: Config
) -> int:
    """Sample (D10) and write seeds and variants; how many variants there are."""
    variants = draw(
        kept,
        subsamples=config.subsamples,
        size=config.variants_per_class,
        rng_seed=config.rng_seed,
    )
    ids = set(kept["seed_id"].unique().to_pylist())
    seeds = {seed.seed_id: seed for seed in problems.seeds if seed.seed_id in ids}
    spans = {
        (seed.seed_id, word.word): word_spans(*problems.pair(seed), word)
        for seed in seeds.values()
        for word in problems.words[seed.seed_id]
    }
    write_table(out.seeds, seed_rows(seeds.values()))
    write_table(out.variants, variant_rows(variants, seeds, spans))
    return len(variants)
