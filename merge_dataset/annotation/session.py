"""The folder of an annotation session: its sample, and a lock for each annotator.

`session.json` says what the sample was drawn from and holds the numbers that figures are
weighted by, `sample.jsonl` the items, `answers/` a file per annotator.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from merge_dataset.annotation.answers import ASKED, EQUIVALENCE, SCORES, JudgementKind, answers_path
from merge_dataset.annotation.sample import PER_CLASS, Item, choose, draw
from merge_dataset.files import (
    digest_of,
    digest_of_file,
    digests,
    naming,
    read_json,
    read_text,
    target_of,
    write_json,
    write_text,
)
from merge_dataset.json_lines import parse_object
from merge_dataset.layout import split_files
from merge_dataset.locks import LOCK, exclusive, working_in
from merge_dataset.schema import PARAPHRASE, parse_config_name

SESSION: Final = "session.json"
SAMPLE: Final = "sample.jsonl"

_KEYS: Final = {"configurations", "dataset", "files", "items", "per_class", "population",
                "rng_seed"}  # fmt: skip
"""Keys that a description must have."""
_SAMPLE_DIGEST: Final = "sample_sha256"
_DIGEST: Final = "sha256"
"""Key of the digest of all other keys."""
_DAMAGED: Final = "got something else: the file is damaged or was edited; restore it from a copy"


@dataclass(frozen=True, slots=True)
class Session:
    """The contents of a session folder."""

    folder: Path
    items: dict[str, Item]
    """Items by variant, in the order of the file."""
    description: dict[str, Any]
    """The contents of `session.json`."""

    @property
    def kind(self) -> JudgementKind:
        """Question that it asks; scores in sessions drawn before there was another."""
        kind: JudgementKind = self.description.get("kind", SCORES)
        return kind


def open_session(
    folder: Path,
    dataset: Path | None = None,
    configs: Sequence[str] = (),
    *,
    per_class: int | None = None,
    per_source: int | None = None,
    rng_seed: int | None = None,
) -> Session:
    """Go on with the session in a folder or, where there is none, draw a sample for one.

    A session that goes on does not need the dataset folder. `configs` are as in `sample.choose`,
    the other options as in `sample.draw`; where none is given, what the session has or else the
    default.
    """
    if (folder / SESSION).is_file():
        session = read_session(folder)
        wanted = {"per_class": per_class, "per_source": per_source, "rng_seed": rng_seed}
        _require_same(session, dataset, configs, wanted)
        return session
    if dataset is None:
        raise FileNotFoundError(
            f"{folder}: expected a session folder with {SESSION}, found none; name the dataset "
            f"folder to draw a sample from, as in `merge-nli annotate merge-nli --out {folder}`"
        )
    # A part of a session that was being written may be there.
    there = {target_of(path) or path for path in folder.iterdir()} if folder.is_dir() else set()
    foreign = {path for path in there if not path.name.startswith(LOCK)}
    foreign -= {folder / SAMPLE, folder / SESSION}
    if foreign or (folder.exists() and not folder.is_dir()):
        raise FileExistsError(
            f"{folder}: expected an annotation session, an empty folder or none, got something "
            f"else; name another --out"
        )
    _kind_of(choose(dataset, configs))
    with working_in(folder):
        if not (folder / SESSION).is_file():  # else another command has drawn it meanwhile
            size = PER_CLASS if per_class is None else per_class
            sample = draw(
                dataset, configs, per_class=size, per_source=per_source, rng_seed=rng_seed or 0
            )
            description = {
                "format": 1,
                "kind": _kind_of(sample.configurations),
                "dataset": dataset.resolve().name,
                "files": _digests(dataset, sample.configurations),
                "configurations": sample.configurations,
                "per_class": None if per_source else size,
                **({"per_source": per_source} if per_source else {}),
                "rng_seed": rng_seed or 0,
                "items": len(sample.items),
                "population": sample.population,
            }
            lines = [json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in sample.items]
            write_text(folder / SAMPLE, "".join(lines))
            description[_SAMPLE_DIGEST] = digest_of_file(folder / SAMPLE)
            # Written last: a folder with a description is complete.
            write_json(folder / SESSION, description | {_DIGEST: digest_of(description)})
    return open_session(
        folder, dataset, configs, per_class=per_class, per_source=per_source, rng_seed=rng_seed
    )


def _kind_of(configs: Sequence[str]) -> JudgementKind:
    """Tell what is asked about the variants of configurations."""
    paraphrases = [name for name in configs if parse_config_name(name)[1] == PARAPHRASE]
    if not paraphrases:
        return SCORES
    if len(paraphrases) < len(configs):
        others = [name for name in configs if name not in paraphrases]
        raise ValueError(
            f"--config: expected paraphrases, which are judged by whether they mean the same, or "
            f"replacements, which are scored, got {', '.join(paraphrases)} and "
            f"{', '.join(others)}; make a session of each"
        )
    return EQUIVALENCE


def read_session(folder: Path) -> Session:
    """Read a session folder."""
    if not (folder / SESSION).is_file():
        raise FileNotFoundError(
            f"{folder}: expected a session folder with {SESSION}, found none; restore it from a "
            f"copy, or name the annotators' files instead of the folder"
        )
    path = folder / SESSION
    description = read_json(path)
    missing = _KEYS - set(description) if isinstance(description, dict) else _KEYS
    if missing:
        raise ValueError(
            f"{path}: expected what a session was drawn from, found nothing under "
            f"{', '.join(sorted(missing))}"
        )
    if (kind := description.get("kind", SCORES)) not in ASKED:
        raise ValueError(f"{path}: expected a kind out of {', '.join(ASKED)}, got {kind!r}")
    given = description.pop(_DIGEST, None)
    if given not in (None, digest_of(description)):
        raise ValueError(f"{path}: expected what was written when the sample was drawn, {_DAMAGED}")
    path = folder / SAMPLE
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected the items of the session, found no file")
    if description.get(_SAMPLE_DIGEST, digest := digest_of_file(path)) != digest:
        raise ValueError(f"{path}: expected the items that were drawn, {_DAMAGED}")
    items: dict[str, Item] = {}
    # At "\n" only: texts have U+2028 and the like, which `str.splitlines` takes for ends of lines.
    *lines, tail = read_text(path).split("\n")
    for number, line in enumerate([*lines, *([tail] if tail else [])], start=1):
        try:
            item = Item(**parse_object(line))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: line {number}: expected an item: {error}") from error
        items[item.variant_id] = item
    return Session(folder, items, description)


@contextmanager
def locked_answers(session: Session, annotator: str) -> Iterator[Path]:
    """Yield an annotator's file, which no other process writes meanwhile."""
    path = answers_path(session.folder, annotator)
    path.parent.mkdir(parents=True, exist_ok=True)
    refusal = (
        f"{session.folder}: expected {annotator} to annotate in one place at a time, got a "
        f"second; go on in the page that is open, or stop the other command first"
    )
    with naming(path), exclusive(path.with_name(f".{path.name}.lock"), refusal):
        yield path


def _digests(dataset: Path, configs: Sequence[str]) -> dict[str, str]:
    """Compute the SHA-256 of each file of variants."""
    names = [name for config in configs for name in split_files(dataset, config)["variants"]]
    return digests({name: dataset / name for name in names})


def _require_same(
    session: Session, dataset: Path | None, configs: Sequence[str], drawn: Mapping[str, int | None]
) -> None:
    """Refuse another sample: there would be answers to variants that are not in it."""
    has = session.description
    wanted: dict[str, object] = {**drawn}
    if dataset is not None:
        chosen = choose(dataset, configs or has["configurations"])
        wanted |= {"configurations": chosen, "files": _digests(dataset, chosen)}
    elif configs:
        raise ValueError("--config: expected the dataset folder with it, got none")
    for name, value in wanted.items():
        if value is not None and value != has.get(name):
            got = "others" if name == "files" else _shown(value)
            raise ValueError(
                f"{session.folder}: expected the `{name}` that its sample was drawn with "
                f"({_shown(has.get(name))}), got {got}; go on without that option, or take another "
                f"--out for another sample"
            )


def _shown(value: object) -> str:
    return ", ".join(value) if isinstance(value, dict | list) else str(value)
