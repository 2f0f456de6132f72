"""Files of a model at one commit, in a folder or on the Hub; nothing in them is run."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from merge_dataset.engine import causes
from merge_dataset.files import digest_of_file, write_text
from merge_dataset.hub.repository import http_error, refusal
from merge_dataset.redaction import mask_urls

log = logging.getLogger(__name__)

_AGAIN: Final = "it is damaged, half a download, or a pointer of Git LFS; get it again"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model's place and, once listed, its files at one commit."""

    source: str
    """Folder, or id on the Hub."""
    name: str
    """The id, or the name of the folder or GGUF file."""
    revision: str | None = None
    gguf_file: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Name of a file → size in bytes; files in subfolders are left out."""
    commit: str | None = None
    folder: Path | None = None
    """Folder with all files; None where they still lie on the Hub."""

    def __contains__(self, name: str) -> bool:
        return name in self.sizes

    @property
    def asked(self) -> str:
        """The folder, or the id with the revision that was asked for."""
        return f"{self.source}@{self.revision}" if self.revision else self.source

    def where(self, name: str) -> str:
        """Say where a file is, for messages."""
        return f"{self.source}: {name}"

    def local(self, name: str) -> Path | None:
        """Find a file on this machine; None where it has not been downloaded."""
        if self.folder is not None:
            return self.folder / name
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(self.source, name, revision=self.commit)
        return Path(cached) if isinstance(cached, str) else None

    def download(self, names: Iterable[str]) -> Path:
        """Download files if necessary, and return the folder that has them."""
        if self.folder is not None:
            return self.folder
        from huggingface_hub import hf_hub_download

        folder = Path()  # there is at least one name
        for name in names:
            with self.reading("a file of a model", name):
                folder = Path(hf_hub_download(self.source, name, revision=self.commit)).parent
        return folder

    def remember(self) -> None:
        """Record the commit in the Hub's cache, when all files are there, to find it offline."""
        if self.commit in (None, self.revision) or self.folder is not None:
            return
        from huggingface_hub import constants
        from huggingface_hub.file_download import repo_folder_name

        home = repo_folder_name(repo_id=self.source, repo_type="model")
        with suppress(OSError):  # a read-only cache that others fill
            reference = Path(constants.HF_HUB_CACHE, home, "refs", self.revision or "main")
            write_text(reference, str(self.commit))

    @contextmanager
    def reading(self, expected: str, name: str = "", advice: str = "") -> Iterator[None]:
        """Turn any error from reading a file, or the whole model, into one ValueError.

        It names the file, and says what the Hub answered, if that is the cause.
        """
        try:
            yield
        except Exception as error:  # damaged and hostile files raise errors of all kinds
            from huggingface_hub.errors import OfflineModeIsEnabled

            # If a file is not in the cache either, the Hub's answer is the cause of that error.
            chain = [*causes(error)]
            answers = [getattr(cause, "response", None) for cause in chain]
            statuses = [answer.status_code for answer in answers if answer is not None]
            place = self.where(name) if name else self.asked
            if refused := [w for c in chain if (w := refusal(c, "model", self.source))]:
                place, words = self.asked, refused[0]  # it applies to all files
            elif self.folder is not None or not isinstance(error, (OSError, http_error())):
                text = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
                text = textwrap.shorten(text, 300, placeholder=" …") or type(error).__name__
                words = f"expected {expected}, could not load it: {text}{advice and ': '}{advice}"
            elif any(isinstance(cause, OfflineModeIsEnabled) for cause in chain):
                words = "HF_HUB_OFFLINE is set, and it is not in the cache: unset it to download it"
            elif statuses:
                words = f"the Hub answered {statuses[0]}"
            else:
                first = str(chain[-1]).partition("\n")[0] or type(chain[-1]).__name__
                words = (
                    f"the Hub cannot be reached ({first}), and it is not in the cache: try again "
                    "with a network, or give a folder"
                )
            raise ValueError(f"{place}: {words}") from error

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a file with a JSON object."""
        path = self.download([name]) / name
        with self.reading("a JSON object in UTF-8", name, _AGAIN):
            return {**json.loads(path.read_bytes().decode("utf-8-sig"))}

    def digest_of(self, name: str) -> str:
        """Return the SHA-256 of a file."""
        path = (self.download([name]) / name).resolve()
        # In the Hub's cache, a large file is a link to one that has this digest for its name.
        is_blob = re.fullmatch(r"[0-9a-f]{64}", path.name)
        return path.name if is_blob else _digest_at(path, path.stat().st_mtime_ns)

    def digest_of_files(self, names: Iterable[str]) -> str:
        """Return a digest of the names and contents of some files."""
        parts = (name.encode() + bytes.fromhex(self.digest_of(name)) for name in sorted(names))
        return hashlib.sha256(b"".join(parts)).hexdigest()


@lru_cache(maxsize=1024)
def _digest_at(path: Path, changed: int) -> str:
    """Digest a file; cached by its path and the time of its last change, as weights are large."""
    return digest_of_file(path)


def find_files(
    model: str | Path, gguf_file: str | None = None, revision: str | None = None
) -> ModelFiles:
    """Determine whether a model is a folder, a .gguf file or a Hub id, without listing files."""
    path = Path(model)
    if path.suffix == ".gguf" and path.is_file():
        path, gguf_file = path.parent, path.name
    if path.is_dir():
        name = Path(gguf_file).stem if gguf_file else path.resolve().name
        return ModelFiles(str(path), name, gguf_file=gguf_file, folder=path)
    if "://" in str(model) or path.suffix == ".gguf" or path.is_absolute():
        raise ValueError(
            f"{mask_urls(str(model))}: expected a folder, a .gguf file, or an id on the Hub such "
            "as org/name, found none there; of a server, `base_url` is the URL and `model` the name"
        )
    source, _, asked = str(model).partition("@")
    return ModelFiles(source, source, asked or revision or None, gguf_file)


def list_files(model: ModelFiles) -> ModelFiles:
    """Find a model's commit and files; of the Hub, those in the cache if it does not answer."""
    if model.folder is not None:
        paths = [path for path in model.folder.iterdir() if path.is_file()]
        return replace(model, sizes={path.name: path.stat().st_size for path in paths})
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.errors import HFValidationError

    own: dict[str, Any] = {"repo_id": model.source, "revision": model.revision}
    with model.reading("a model"):
        try:
            info = HfApi().model_info(**own, files_metadata=True, timeout=30)
        except (OSError, ValueError, http_error()) as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            if isinstance(error, HFValidationError) or (status or 500) < 500:
                raise
            folder = Path(snapshot_download(**own, local_files_only=True))
            if not constants.HF_HUB_OFFLINE:
                log.warning("%s: the Hub cannot be reached: taken from the cache", model.source)
            return list_files(replace(model, commit=folder.name, folder=folder))
    files = [file for file in info.siblings or () if "/" not in file.rfilename]
    sizes = {file.rfilename: file.size or 0 for file in files}
    return replace(model, sizes=sizes, commit=str(info.sha))


def file_stamps(model: str | None) -> list[tuple[str, int, int]]:
    """List name, size and time of a local model's files, to detect changes."""
    path = Path(model or "")
    files = [path] if path.is_file() else sorted(path.rglob("*")) if model and path.is_dir() else []
    states = ((file.name, file.stat()) for file in files if file.is_file())
    return [(name, state.st_size, state.st_mtime_ns) for name, state in states]


# --- Weights ---


@dataclass(frozen=True, slots=True)
class Weights:
    """A model's weights in files."""

    format: Literal["safetensors", "pickle", "GGUF"]
    names: tuple[str, ...]
    """Names of the files, in order, without the index."""
    index: str | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Tensor → shape; of safetensors and adapters, as other files must be downloaded first."""


def find_weights(files: ModelFiles, stem: str) -> Weights:
    """Find a model's weights: safetensors if there are any, else pickles; read their headers."""
    pickled = "pytorch_model" if stem == "model" else stem
    for name in (f"{stem}.safetensors", f"{pickled}.bin"):
        index, names = None, [name]
        if name not in files:
            if (index := f"{name}.index.json") not in files:
                continue
            table = files.read_json(index).get("weight_map")
            names = sorted(set(map(str, table.values()))) if isinstance(table, dict) else []
            missing = [shard for shard in names if shard not in files]
            if missing or not names:
                raise ValueError(
                    f"{files.where(index)}: expected weight_map, a table of files beside it, "
                    f"{f'of which {missing[0]!r} is missing' if missing else 'got none'}: {_AGAIN}"
                )
        if name.endswith(".bin"):
            # Of an adapter, nothing else says how many classes there are.
            shapes = read_shapes(files, names) if stem == "adapter_model" else {}
            return Weights("pickle", tuple(names), index, shapes)
        return Weights("safetensors", tuple(names), index, read_shapes(files, names))
    shown = f"only {', '.join(sorted(files.sizes)[:9]) or 'nothing'}"
    if gguf := [name for name in sorted(files.sizes) if name.endswith(".gguf")]:
        shown = f"GGUF files: name one with `gguf_file`, such as {gguf[0]}"
    expected = f"weights as {stem}.safetensors or {pickled}.bin"
    raise ValueError(f"{files.source}: expected {expected}, found {shown}")


def read_shapes(files: ModelFiles, names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Read the shapes of tensors from headers: of safetensors on the Hub too, else downloaded."""
    from huggingface_hub import HfApi
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for name in names:
        if name.endswith(".bin"):
            shapes |= _read_pickled_shapes(files.download([name]) / name, files.where(name))
            continue
        with files.reading("safetensors", name, _AGAIN):
            if (path := files.local(name)) is not None:
                with safe_open(path, "pt") as file:  # also checks the size of the file
                    keys = file.keys()
                    shapes |= {key: tuple(file.get_slice(key).get_shape()) for key in keys}
            else:
                header = HfApi().parse_safetensors_file_metadata(
                    files.source, name, revision=files.commit
                )
                shapes |= {key: tuple(tensor.shape) for key, tensor in header.tensors.items()}
    return shapes


def _read_pickled_shapes(path: Path, where: str) -> dict[str, tuple[int, ...]]:
    """Read the shapes of a pickle's tensors; raise ValueError if it has anything else.

    A pickle can name any function, and reading the pickle would call it. torch's restricted reader
    (of 2.10 or newer: CVE-2026-24747), by which transformers and peft read what passes this, builds
    only tensors.
    """
    import torch

    # Of a byte there may be several tensors, as parameters may have several names.
    shapes, most, expected = dict[str, tuple[int, ...]](), 8 * path.stat().st_size, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about old formats
            content = torch.load(path, map_location="meta", weights_only=True)
        for name, value in {**content}.items():
            is_tensor = isinstance(name, str) and isinstance(value, torch.Tensor)
            if is_tensor and value.layout == torch.strided:
                shapes[name], most = tuple(value.shape), most - value.nbytes
            else:
                kind = type(value).__name__
                expected = f"plain tensors by name only, got {name!r:.60} of type {kind}"
        if most < -(2**20):
            expected = "plain tensors, got too many of them in so small a file, to fill the memory"
    except Exception as error:  # damaged or hostile bytes may raise anything
        named = r"(?:GLOBAL|global|class|function)s?:? ([A-Za-z_][\w.]*\.\w+)"
        expected = f"a file that torch saved: {_AGAIN}"
        if hostile := re.search(named, str(error)):
            expected = (
                f"tensors only, got {hostile[1]}, which could run code: it is refused, and nothing "
                "of it was run; take the weights from elsewhere"
            )
    if expected or not shapes:
        raise ValueError(f"{where}: expected {expected or 'tensors, got none'}")
    return shapes
