"""The provenance of a collection: the part of a run's manifest that the dataset keeps."""

import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

from merge_dataset.files import read_record
from merge_dataset.layout import PROVENANCE
from merge_dataset.schema import NLI, PARAPHRASE, ProblemFormat, collection_name

REPLACEMENTS: Final = "replacements"
PARAPHRASES: Final = "paraphrases"
"""Kinds of runs; a description without a `kind` is of replacements."""

MODEL_KEYS: Final = ("name", "revision", "architecture", "dtype", "device")
"""Keys in the description of a masked LM or a generator of paraphrases."""

EXPLAINED: Final = "explained"
"""Key of a manifest: a sentence on each of the `settings` and columns of the `funnel`."""

_ALL: Final = ("packages", "fingerprint", "problems", "source_data", "funnel", "eligible")

_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    REPLACEMENTS: ("source", "config", "mlms", "tagger", *_ALL, "ablation", "draw", EXPLAINED),
    PARAPHRASES: ("kind", "source", "config", "generator", "nli_model", "prompt", *_ALL, EXPLAINED),
}
"""Kind → keys of a manifest that the dataset keeps, in this order."""

_OPTIONAL: Final = ("signals", "neighbours", "judged", "asked")
"""Further keys of a run of replacements that the dataset keeps if they are there, in this order.

`signals` describes the model that scored texts, a masked LM under `mlm` or a causal one under `lm`;
`neighbours` the masked LMs that scored the words beside replacements; `judged` the people and
models whose judgements filtered, and the models' trials; `asked` gives the numbers of
questions asked and of all questions, and the settings, if only questions that could matter were
asked."""

DRAW: Final = 2
"""Version of the way builds draw variants from suggestions; increased when it changes."""

_MACHINE_SETTINGS: Final = ("run", "store", "device", "batch_tokens", "unpadded", "workers")
"""Settings on where and how a run was computed, which the dataset leaves out."""

_LOCAL_PATH = re.compile(
    r"""(?<![^\s"'(=,\[])(?:file://)?(?:~|\.{1,2}|[A-Za-z]:)?[/\\][^\s"'),;\]]+"""
)
"""Pattern of a path inside a text: absolute, or relative with a leading `~`, `.` or `..`."""


def read(path: Path) -> dict[str, Any]:
    """Read a run's manifest or a collection's provenance, which has the keys of its kind."""
    kind = kind_of(read_record(path, verify=False))  # `merge-nli check` verifies the digest
    return read_record(path, *_KEYS.get(kind, _KEYS), verify=False)


def n_problems(folder: Path, source: str, variant_class: str | None = None) -> int | None:
    """Return the number of labelled problems a collection was made from; None if unknown."""
    path = folder / collection_name(source, variant_class) / PROVENANCE
    if not path.is_file():
        return None
    kept: int | None = read_record(path, verify=False).get("problems", {}).get("kept")
    return kept


def kind_of(made: Mapping[str, Any]) -> Any:
    """Return the kind of a manifest or provenance, by default `REPLACEMENTS`."""
    return made.get("kind", REPLACEMENTS)


def format_of_run(made: dict[str, Any]) -> ProblemFormat:
    """Return the format of problems in a manifest or provenance, by default NLI's."""
    config = made["config"]
    return ProblemFormat(
        tuple(config.get("fields", NLI.fields)), tuple(config.get("labels") or NLI.labels)
    )


def collection_of(made: dict[str, Any]) -> str:
    """Return the name of the collection of a manifest or provenance."""
    return collection_name(made["source"], PARAPHRASE if kind_of(made) == PARAPHRASES else None)


def describe(manifest: dict[str, Any]) -> dict[str, Any]:
    """Take the parts of a manifest on how the data was made, without local paths.

    >>> manifest = dict.fromkeys(_KEYS[REPLACEMENTS]) | {"finished": "today"}
    >>> describe(manifest | {"config": {"data": "/home/me/dev.jsonl", "run": "a"}})["config"]
    {'data': 'dev.jsonl'}
    """
    kept = {key: manifest[key] for key in _KEYS[kind_of(manifest)]}
    kept |= {key: manifest[key] for key in _OPTIONAL if key in manifest}
    config = {k: v for k, v in kept["config"].items() if k not in _MACHINE_SETTINGS}
    described: dict[str, Any] = _without_paths(kept | {"config": config})
    return described


def differences(existing: Mapping[str, Any], coming: Mapping[str, Any]) -> list[str]:
    """List the known differences of a coming result from an existing one."""
    both = existing, coming
    old, new = (
        # As JSON has them, without settings of the machine and local paths.
        json.loads(json.dumps(_without_paths(made["config"])))
        | dict.fromkeys((*_MACHINE_SETTINGS, "recipe"))
        for made in both
    )
    changed: dict[str, tuple[Any, Any]] = {
        name: (old.get(name), new.get(name)) for name in dict.fromkeys((*old, *new))
    }
    keys_of: dict[str, tuple[str, ...]] = dict.fromkeys(("mlms", "generator"), MODEL_KEYS)
    keys_of["nli_model"] = ("kind", "name", "revision")
    if all(was == now for was, now in changed.values()):  # otherwise the settings are the cause
        data = [made["source_data"]["sha256"] for made in both if "source_data" in made]
        if len({*data}) > 1:
            changed["the problems that were read"] = "others", "these"
        for name in (name for name in keys_of if all(name in made for made in both)):
            old_models, new_models = (
                [made[name]] if isinstance(made[name], dict) else made[name] for made in both
            )
            # Models are compared by what is known of the coming ones.
            known = [key for key in keys_of[name] if all(key in model for model in new_models)]
            before, after = (
                {" ".join(str(model.get(key))[:40] for key in known) for model in models}
                for models in (old_models, new_models)
            )
            changed[name] = sorted(before - after), sorted(after - before)
    changed |= {
        name: (existing[name], coming[name])
        for name in ("draw", "tagger")
        if all(name in made for made in both)
    }
    return [
        f"{name}: {_shown(was)} there, {_shown(now)} now"
        for name, (was, now) in changed.items()
        if was != now
    ]


READ: Final = {
    "mlms": "Of 45 such variants by two small masked LMs 51 % [37, 65] read well, of 35 by default "
    "31 % [19, 48]",
    "lm": "Of 60 such variants by two small masked LMs and gemma-3-270m, with limits of 0.4 to "
    "0.5, 62 % [49, 73] read well, of the better half by default 48 % [35, 61]",
}
"""Scores of `clean`, by masked LMs or a causal one → how well variants read."""

NOTES: Final = {
    "try": "This dataset is a trial (recipe `try`): one small masked LM made it, of words that "
    "need not be likely; look at its variants, and measure no model by them.",
    "clean": "Made by the recipe `clean`, with a quality of {limits} at least. {read}: a language "
    "model's readings, not people's, of problems that quality was not fitted on.",
}
"""Recipe → what readers of its data must know: that it is a trial, how well variants read."""


def note_of(made: Mapping[str, Any], recipe: str) -> str:
    """Return the note on data of a recipe; empty for data of others."""
    config = made.get("config") or {}
    if config.get("recipe") != recipe:
        return ""
    of_classes = (config.get("class_quality") or {}).items()
    limits = [str(config.get("min_quality")), *(f"{limit} ({name}s)" for name, limit in of_classes)]
    read = READ.get(config.get("scored_by", ""), READ["mlms"])
    return NOTES[recipe].format(limits=", ".join(limits), read=read)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        # A prompt is kept literally, whatever looks like a path in it.
        return {k: item if k == "prompt" else _without_paths(item) for k, item in value.items()}
    if isinstance(value, list):
        return [_without_paths(item) for item in value]
    if not isinstance(value, str):
        return value
    if PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute():
        return PureWindowsPath(value).name  # splits at both kinds of slashes
    return _LOCAL_PATH.sub(lambda path: PureWindowsPath(path.group()).name, value)
