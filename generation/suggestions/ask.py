"""Ask the masked LMs: the part of `suggest` that tasks can share; they fill the same stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tqdm import tqdm

from generation.config import BUNDLED_MLM, Config, bundled_path
from generation.run_folder import RunFolder, slug
from generation.suggestions.questions import Asked, Questions
from generation.suggestions.store import OF_MODEL, OF_SETTINGS, StoreIdentity, SuggestionStore
from merge_dataset.files import read_json, read_record, write_json
from merge_metric.models.inspection import MASKED_LM, Head
from merge_metric.models.odd_answers import warn_of_unknown
from merge_metric.models.pair_model import ModelRequest, Share

if TYPE_CHECKING:
    from generation.suggestions.masked_lm import MaskedLM

_SHARDS_SEEN: Final = 8
"""Number of shards, of some thousand sentences each, that are checked for unknown tokens."""


def mlm_names(mlms: Sequence[str]) -> dict[str, str]:
    """Map each masked LM's name in the provenance columns to the model to load."""
    if not mlms:
        raise ValueError("mlms: expected at least one masked LM, got none; add --mlm DIR_OR_ID")
    names: dict[str, str] = {}
    for model in mlms:
        if model == BUNDLED_MLM and not Path(model).is_dir():
            name, model = BUNDLED_MLM, str(bundled_path(f"demo/{BUNDLED_MLM}"))
        else:
            name = Path(model).resolve().name if Path(model).exists() else model.partition("@")[0]
        if name in names:
            raise ValueError(
                f"mlms: expected different names, got {name!r} for both {names[name]} and {model}"
            )
        names[name] = model
    return names


def wanted_mlms(
    mlms: Sequence[str], *, dtype: Literal["float32", "bfloat16", "float16"]
) -> list[tuple[str, ModelRequest, Head]]:
    """List the models that `suggest` will load, for a check beforehand."""
    return [
        (name, ModelRequest(model=model, dtype=dtype), MASKED_LM)
        for name, model in mlm_names(mlms).items()
    ]


def units_of(config: Config, questions: Questions, *, tasks: int) -> list[str]:
    """List the units of work, each a masked LM and every n-th shard; all tasks get equal shares."""
    n = min(tasks, len(questions.shards))
    return [f"{name} {i}/{n}" for name in mlm_names(config.mlms) for i in range(n)]


def ask(folder: Path, unit: str) -> None:
    """Do a unit of work: add the missing answers to the store."""
    from generation.suggestions.masked_lm import MaskedLM

    run = RunFolder(folder)
    config, asked = Config.read(run.config), Asked(Questions(run.questions), run.asked)
    name, _, text = unit.rpartition(" ")
    share = Share.parse(text)
    shards = asked.questions.shards[share.index :: share.count]
    mlm = MaskedLM.load(
        mlm_names(config.mlms)[name],
        name=name,
        device=config.device,
        dtype=config.dtype,
        batch_tokens=config.batch_tokens,
    )
    identity = StoreIdentity(
        **{each: getattr(mlm, each) for each in OF_MODEL},
        **{each: getattr(config, each) for each in OF_SETTINGS},
    )
    header = _record(run, name)
    if not header.is_file():
        write_json(header, asdict(identity))
    if (there := read_json(header)) != asdict(identity):
        raise ValueError(
            f"{name}: expected the same model, device and dtype in every task, got {there} and "
            f"{asdict(identity)}; name them with --device, --dtype and @revision"
        )
    if mlm.weights is not None:
        write_json(_record(run, name, "weights"), mlm.weights)
    if not _record(run, name, "unknown").is_file():
        _look_for_unknown_tokens(run, mlm, asked.questions)
    store = SuggestionStore.create(store_root(run, config), identity, mlm.vocabulary)
    sizes = asked.sizes()
    with tqdm(total=sum(sizes[shard] for shard in shards), desc=name, unit="mask") as bar:

        def skip(answered: int) -> None:
            if not bar.disable:
                bar.initial += answered  # stored answers do not count for the speed
            bar.update(answered)

        store.fill(
            ((shard, asked.of(shard)) for shard in shards),
            partial(mlm.score, k=config.suggestions_per_occurrence, on_progress=bar.update),
            at_once=mlm.questions_at_once,
            on_answered=skip,
        )


def _look_for_unknown_tokens(run: RunFolder, mlm: MaskedLM, questions: Questions) -> None:
    """Warn if the tokenizer does not know the run's words; all tasks check the same sample."""
    shards = questions.shards[:: -(-len(questions.shards) // _SHARDS_SEEN) or 1]
    sentences = {query.sentence: None for shard in shards for query in questions.of(shard)}
    if unknown := mlm.unknown_tokens(list(sentences)):
        warn_of_unknown(mlm.name, unknown)
        write_json(_record(run, mlm.name, "unknown"), {"unknown_tokens": unknown})


def _record(run: RunFolder, name: str, what: str = "") -> Path:
    """Return the path of a masked LM's record: of its store, "weights" or "unknown" tokens."""
    return run.stores / ".".join(filter(None, (slug(name), what, "json")))


def collect(run: RunFolder, config: Config) -> list[dict[str, Any]]:
    """Summarise each masked LM for the manifest, once all its answers are in the store."""
    asked = Asked(Questions(run.questions), run.asked)
    records = []
    for name, store in stores_asked(run, config).items():
        counts = {"not_in_vocabulary": 0, "windowed": 0}
        for shard, size in asked.sizes().items():
            if size:
                scores = store.answers(shard, asked.of(shard))
                counts["not_in_vocabulary"] += int((~scores.answered).sum())
                counts["windowed"] += int(scores.windowed.sum())
        unknown, weights = _record(run, name, "unknown"), _record(run, name, "weights")
        more = read_json(unknown) if unknown.is_file() else {}
        if weights.is_file():
            more["weights"] = read_json(weights)
        values, folder = asdict(store.identity), store.identity.folder
        records.append({**values, "store": folder, **counts, **more})
    return records


def stores_asked(run: RunFolder, config: Config) -> dict[str, SuggestionStore]:
    """Open the stores that the units of work filled, by masked LM."""
    stores = {}
    for name in mlm_names(config.mlms):
        path = _record(run, name)
        if not path.is_file():
            raise ValueError(f"{name}: expected answers, found none; run the same command again")
        identity = StoreIdentity(**read_json(path))
        stores[name] = SuggestionStore.open(store_root(run, config), identity.folder)
    return stores


def store_root(run: RunFolder, config: Config) -> Path:
    """Return the folder that holds the stores."""
    return Path(config.store) if config.store else run.store


def stores_of(
    run: RunFolder, config: Config, mlms: Iterable[Mapping[str, Any]]
) -> dict[str, SuggestionStore]:
    """Open the stores that `suggest` filled, by MLM."""
    root = store_root(run, config)
    return {record["name"]: SuggestionStore.open(root, record["store"]) for record in mlms}


def unchanged_questions(run: RunFolder) -> Questions:
    """Open the questions of a run, and check that they and their inputs are unchanged."""
    questions = Questions(run.questions)
    paths = [run.config, run.problems, questions.header]
    if "asked" in read_record(run.suggested):
        paths.append(run.asked)
    elif run.asked.is_file():
        raise ValueError(
            f"{run.asked}: expected no such file, as all questions were asked; an interrupted "
            "command left it: run merge-nli suggest again"
        )
    names = [path.relative_to(run.path).as_posix() for path in paths]
    run.require_unchanged(run.suggested, names, "suggest")
    if changed := questions.changed():
        raise ValueError(
            f"{run.questions}: expected {', '.join(changed[:3])} as written, got other contents; "
            f"run: merge-nli suggest --run {run.path}"
        )
    return questions
