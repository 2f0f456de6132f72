"""The description of how a collection was made: what the dataset keeps of a run's manifest."""

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
"""Kinds of runs. A description without a `kind` is of replacements."""

MODEL_KEYS: Final = ("name", "revision", "architecture", "dtype", "device")
"""Keys of the description of a masked language model or a generator of paraphrases."""

NLI_MODEL_KEYS: Final = ("kind", "name", "revision")
"""Keys that the description of the model that chooses paraphrases must have."""

_Types = dict[str, type | tuple[type, ...]]

_OF_ALL: Final[_Types] = {
    "packages": dict,
    "fingerprint": str,
    "problems": dict,
    "source_data": dict,
    "funnel": list,
    "eligible": dict,
}

_KEYS: Final[Mapping[str, _Types]] = {
    REPLACEMENTS: {
        "source": str,
        "config": dict,
        "mlms": list,
        "tagger": str,
        **_OF_ALL,
        "ablation": (str, type(None)),
    },
    PARAPHRASES: {
        "kind": str,
        "source": str,
        "config": dict,
        "generator": dict,
        "nli_model": dict,
        "prompt": str,
        **_OF_ALL,
    },
}
"""Kind → what the dataset keeps of a manifest, in this order."""

SLICES: Final = "slices"
"""Optional key of a run's manifest: the folders with its parts; not kept in the dataset."""

EXPLAINED: Final = "explained"
"""Optional key: what `settings` and columns of the `funnel` mean, a sentence each."""

_OPTIONAL: Final[Mapping[str, tuple[str, ...]]] = {
    "draw": (),
    EXPLAINED: ("settings", "funnel"),
    "signals": ("scheme", "windowed"),
    "neighbours": ("mlms", "scheme", "windowed"),
    "asked": ("questions", "of"),
    "nonce": ("model", "nonce_words"),
}
"""Optional keys that the dataset keeps of a run, in this order → the keys that each must have.

All but the first two are of replacements. `signals` says which model said how likely texts are, a
masked LM under `mlm` or a causal one under `lm`; `neighbours` which masked LMs said how much less
expected the words beside replacements are; `asked` how many questions were asked, of how many, and
for which settings, where only those were that could matter; `nonce` which model was asked with
made-up words."""

DRAW: Final = 2
"""Version of how builds choose variants from suggestions; one that draws otherwise has the next."""

_COUNTS: Final = {
    REPLACEMENTS: ("read", "unlabelled", "kept"),
    PARAPHRASES: ("read", "unlabelled", "kept", "answered_right"),
}

_MACHINE_SETTINGS: Final = ("run", "store", "device", "batch_tokens", "workers")
"""Settings that say where and how a run was computed: left out of the dataset."""

_LOCAL_PATH = re.compile(
    r"""(?<![^\s"'(=,\[])(?:file://)?(?:~|\.{1,2}|[A-Za-z]:)?[/\\][^\s"'),;\]]+"""
)
"""A file's path inside a text: absolute, or relative by its leading `~`, `.` or `..`."""


def read(path: Path) -> dict[str, Any]:
    """Read a run's manifest or a collection's provenance, and check what is used of it."""
    value = read_record(path, verify=False)  # `merge-nli check` does
    kind = kind_of(value)
    if not isinstance(kind, str) or kind not in _KEYS:
        raise ValueError(f"{path}: expected a kind out of {', '.join(_KEYS)}, got {kind!r}")
    _require(path, "", value, tuple(_KEYS[kind]))
    for key, types in _KEYS[kind].items():
        if not isinstance(value[key], types):
            several = types if isinstance(types, tuple) else (types,)
            name = " or ".join(each.__name__ for each in several)
            raise ValueError(f"{path}: expected {key} of type {name}, got {value[key]!r}")
    _require(path, "problems", value["problems"], _COUNTS[kind])
    _require(path, "source_data", value["source_data"], ("description", "sha256"))
    if kind == PARAPHRASES:
        _require(path, "generator", value["generator"], MODEL_KEYS)
        _require(path, "nli_model", value["nli_model"], NLI_MODEL_KEYS)
    for mlm in value["mlms"] if kind == REPLACEMENTS else ():
        _require(path, "mlms", mlm, MODEL_KEYS)
    for key, keys in _OPTIONAL.items():
        if keys and key in value:
            _require(path, key, value[key], keys)
    if "signals" in value:
        key = "lm" if "lm" in value["signals"] else "mlm"
        _require(path, "signals", value["signals"], (key,))
        _require(path, f"signals, {key}", value["signals"][key], MODEL_KEYS)
    for row in value["funnel"]:
        stages = ("mlm", "word_class") if kind == REPLACEMENTS else ("round", "generated", "kept")
        _require(path, "funnel", row, stages)
    return value


def words_at_once(folder: Path, source: str, word_class: str | None = None) -> int:
    """Read how many words a variant of a class replaces; one, where the provenance does not say."""
    made = read_record(folder / collection_name(source, word_class) / PROVENANCE, verify=False)
    return int(made.get("config", {}).get("words_at_once", 1))


def n_problems(folder: Path, source: str, variant_class: str | None = None) -> int | None:
    """Read how many labelled problems a collection was made from; None where nothing says so."""
    path = folder / collection_name(source, variant_class) / PROVENANCE
    if not path.is_file():
        return None
    problems = read_record(path, verify=False).get("problems")
    kept = problems.get("kept") if isinstance(problems, dict) else None
    return kept if isinstance(kept, int) else None


def parts_of(run: Path, manifest: Mapping[str, Any]) -> list[Path]:
    """List the folders with the files of a run: its own or its slices', in order."""
    return [run / name for name in manifest.get(SLICES, ())] or [run]


def kind_of(made: dict[str, Any]) -> Any:
    """Tell the kind that a manifest or provenance describes; by default `REPLACEMENTS`."""
    return made.get("kind", REPLACEMENTS)


def format_of_run(made: dict[str, Any]) -> ProblemFormat:
    """Read the format of the problems that a manifest or provenance is about; by default NLI's."""
    config = made["config"]
    return ProblemFormat(
        tuple(config.get("fields", NLI.fields)), tuple(config.get("labels") or NLI.labels)
    )


def collection_of(made: dict[str, Any]) -> str:
    """Name the collection that a manifest or provenance describes."""
    return collection_name(made["source"], PARAPHRASE if kind_of(made) == PARAPHRASES else None)


def describe(manifest: dict[str, Any]) -> dict[str, Any]:
    """Keep the parts of a manifest that say how the data was made, without local paths.

    >>> manifest = dict.fromkeys(_KEYS[REPLACEMENTS]) | {"finished": "today"}
    >>> describe(manifest | {"config": {"data": "/home/me/dev.jsonl", "run": "a"}})["config"]
    {'data': 'dev.jsonl'}
    """
    kept = {key: manifest[key] for key in _KEYS[kind_of(manifest)]}
    kept |= {key: manifest[key] for key in _OPTIONAL if key in manifest}
    config = {k: v for k, v in kept["config"].items() if k not in _MACHINE_SETTINGS}
    described: dict[str, Any] = _without_paths(kept | {"config": config})
    return described


def differences(there: Mapping[str, Any], coming: Mapping[str, Any]) -> list[str]:
    """List in what the result to come, as far as it is known, differs from the one there."""
    old, new = (
        {k: v for k, v in settings_of(made["config"]).items() if k != "recipe"}
        for made in (there, coming)
    )
    found = [
        f"{name}: {_shown(old.get(name))} there, {_shown(new.get(name))} now"
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]
    data = {made["source_data"]["sha256"] for made in (there, coming) if "source_data" in made}
    if len(data) > 1 and not found:  # else it is the settings' doing
        found.append("the problems that were read: others there")
    for name, keys in (("mlms", MODEL_KEYS), ("generator", MODEL_KEYS),
                       ("nli_model", NLI_MODEL_KEYS)):  # fmt: skip
        if name in there and name in coming and not found:
            # Models are told apart by as much as is known of those to come.
            listed = [
                each if isinstance(each, list) else [each] for each in (there[name], coming[name])
            ]
            known = [key for key in keys if all(key in model for model in listed[1])]
            old_models, new_models = (
                {" ".join(str(model.get(key))[:40] for key in known) for model in models}
                for models in listed
            )
            if old_models != new_models:
                gone, come = old_models - new_models, new_models - old_models
                found.append(
                    f"{name}: {', '.join(sorted(gone)) or 'no other'} there, "
                    f"{', '.join(sorted(come)) or 'no other'} now"
                )
    drawn = [draw_of(made) for made in (there, coming)]
    if None not in drawn and drawn[0] != drawn[1]:
        release = " (merge-nli before 1.0)" if drawn[0] == 1 else ""
        found.append(f"the draw of variants: version {drawn[0]}{release} there, {drawn[1]} now")
    if "tagger" in coming and there.get("tagger", coming["tagger"]) != coming["tagger"]:
        found.append(f"tagger: {there['tagger']} there, {coming['tagger']} now")
    return found


def draw_of(made: Mapping[str, Any]) -> int | None:
    """Return the version by which variants were drawn (`DRAW`), also of manifests without; or None.

    >>> draw_of({"funnel": []}), draw_of({"funnel": [], "explained": {}}), draw_of({})
    (1, 2, None)
    """
    if kind_of({**made}) != REPLACEMENTS or not made.keys() & {"draw", "funnel"}:
        return None
    return int(made.get("draw", 2 if EXPLAINED in made else 1))


def trial_of(made: Mapping[str, Any]) -> str:
    """Return the sentence that marks a trial, of the recipe `try`; empty where there is none."""
    if (made.get("config") or {}).get("recipe") != "try":
        return ""
    return (
        "This dataset is a trial (recipe `try`): one small masked LM made it, of words that need "
        "not be likely; look at its variants, and measure no model by them."
    )


def found_good(made: Mapping[str, Any]) -> str:
    """Return the sentence on how good data of the recipe `clean` were found; empty for others."""
    config = made.get("config") or {}
    if config.get("recipe") != "clean":
        return ""
    return (
        f"Made by the recipe `clean`, with a quality of {config.get('min_quality')} at least. "
        f"{CLEAN_READ}"
    )


CLEAN_READ: Final = (
    "Of 45 such variants by two small masked LMs 51 % [37, 65] read well, of 35 by default 31 % "
    "[19, 48]: a language model's readings, not people's, of problems that quality was not fitted "
    "on."
)
"""How good variants of the recipe `clean` were found, by whom, and how many were read."""


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the settings that say what was made: none of the machine, and no local paths."""
    kept = {k: v for k, v in config.items() if k not in _MACHINE_SETTINGS and v is not None}
    plain: dict[str, Any] = json.loads(json.dumps(_without_paths(kept)))
    return plain


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _require(path: Path, part: str, value: Any, keys: tuple[str, ...]) -> None:
    where = f"{path}, {part}" if part else str(path)
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a JSON object, got {type(value).__name__}")
    if missing := [key for key in keys if key not in value]:
        raise ValueError(f"{where}: expected the keys {missing} too, got {sorted(value)}")


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        # A prompt is what the generator was told, to the letter, whatever looks like a path in it.
        return {k: item if k == "prompt" else _without_paths(item) for k, item in value.items()}
    if isinstance(value, list):
        return [_without_paths(item) for item in value]
    if not isinstance(value, str):
        return value
    if PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute():
        return PureWindowsPath(value).name  # splits at either kind of slash
    return _LOCAL_PATH.sub(lambda path: PureWindowsPath(path.group()).name, value)
