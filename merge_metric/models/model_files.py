"""Files of a model at one commit: in a folder, on the Hub, or in the Hub's cache."""

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from merge_dataset.files import digest_of_file, write_text
from merge_dataset.hub.repository import http_error, refusal
from merge_dataset.redaction import mask_urls

log = logging.getLogger(__name__)

_LARGEST_TEXT: Final = 64 * 2**20
"""Largest size, in bytes, of a file that is read as a whole."""
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


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
    digests: Mapping[str, str] = field(default_factory=dict)
    """Name of a file → SHA-256, where the listing has it, as on the Hub for large files."""
    commit: str | None = None
    folder: Path | None = None
    """Folder with all files; None where they still lie on the Hub."""

    def __contains__(self, name: str) -> bool:
        return name in self.sizes

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
            try:
                path = hf_hub_download(self.source, name, revision=self.commit)
            except (OSError, ValueError) as error:
                raise self._unread(name, error) from error
            folder = Path(path).parent
        return folder

    def remember(self) -> None:
        """Record the commit in the Hub's cache, when all files are there, to find it offline."""
        if self.commit in (None, self.revision) or self.folder is not None:
            return
        reference = _cache_of(self.source) / "refs" / (self.revision or "main")
        if not reference.is_file() or reference.read_text(encoding="utf-8") != self.commit:
            with suppress(OSError):  # a read-only cache that others fill
                write_text(reference, str(self.commit))

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Read a range of bytes of a file; only these are fetched from the Hub."""
        if (path := self.local(name)) is not None:
            with path.open("rb") as file:
                file.seek(start)
                return file.read(length)
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status  # type: ignore[attr-defined]

        url = hf_hub_url(self.source, name, revision=self.commit)
        headers = {**build_hf_headers(), "Range": f"bytes={start}-{start + length - 1}"}
        found = bytearray()
        try:
            with get_session().stream("GET", url, headers=headers, timeout=60) as response:
                hf_raise_for_status(response)
                for piece in response.iter_bytes():
                    found += piece
                    if len(found) >= length:  # servers that do not support ranges send everything
                        break
                whole = response.status_code != 206
        except (OSError, http_error()) as error:
            raise self._unread(name, error) from error
        if whole and start:
            raise ValueError(f"{self.where(name)}: expected a Hub that sends parts of a file")
        return bytes(found[:length])

    def _unread(self, name: str, error: BaseException) -> ValueError:
        """Make the error for a file that the Hub does not serve; a refusal applies to all files."""
        place = self.source if refusal(error, "model", self.source) else self.where(name)
        return ValueError(f"{place}: {in_words(self.source, error)}")

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a file with a JSON object."""
        size = self.sizes[name]
        if size > _LARGEST_TEXT:
            raise ValueError(
                f"{self.where(name)}: expected a file of at most {_LARGEST_TEXT:,} bytes, got "
                f"{size:,}"
            )
        path = self.download([name]) / name
        try:
            value = json.loads(path.read_bytes().decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{self.where(name)}: expected JSON in UTF-8, could not read it: {error}: is it "
                f"half a download? Get it again"
            ) from error
        if not isinstance(value, dict):
            raise ValueError(
                f"{self.where(name)}: expected a JSON object, got {type(value).__name__}"
            )
        return value

    def digest_of(self, name: str) -> str:
        """Return the SHA-256 of a file: computed on this machine, or from the Hub's listing."""
        if (listed := self.digests.get(name)) is not None:
            return listed
        path = self.local(name) or self.download([name]) / name
        state = path.stat()
        return _digest_at(path, state.st_size, state.st_mtime_ns)


def find_files(
    model: str | Path, gguf_file: str | None = None, revision: str | None = None
) -> ModelFiles:
    """Determine whether a model is a folder, a .gguf file or a Hub id, without listing files."""
    if "://" in str(model):
        raise ValueError(
            f"{mask_urls(str(model))}: expected a folder, a .gguf file, or an id on the Hub such "
            "as org/name, got a URL; of a server, `base_url` is the URL and `model` the name"
        )
    path = Path(model)
    if path.suffix == ".gguf" and path.is_file():
        path, gguf_file = path.parent, path.name
    if path.is_dir():
        name = Path(gguf_file).stem if gguf_file else path.resolve().name
        return ModelFiles(str(path), name, gguf_file=gguf_file, folder=path)
    source, _, asked = str(model).partition("@")
    return ModelFiles(source, source, asked or revision or None, gguf_file)


def list_files(model: ModelFiles) -> ModelFiles:
    """Find a model's commit and files."""
    source = model.source
    if model.folder is not None:
        sizes = {
            path.name: path.stat().st_size for path in model.folder.iterdir() if path.is_file()
        }
        return replace(model, sizes=sizes)
    is_path = source.startswith((".", "/", "~", "\\")) or source.endswith(("/", ".gguf"))
    if model.revision is None and (is_path or "\\" in source):
        raise ValueError(
            f"{source}: expected a folder with a model, a .gguf file, or an id on the "
            f"Hub such as org/name: no such folder or .gguf file is there"
        )
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError

    try:
        info = HfApi().model_info(source, revision=model.revision, files_metadata=True, timeout=30)
    except (OSError, ValueError, http_error()) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        # The Hub did not answer, or has a temporary error.
        is_unreachable = not isinstance(error, HFValidationError) and (status or 500) >= 500
        if is_unreachable and (cached := _list_cached(model)) is not None:
            return cached
        asked = f"@{model.revision}" if model.revision else ""
        raise ValueError(f"{source}{asked}: {in_words(source, error)}") from error
    here = [each for each in info.siblings or () if "/" not in each.rfilename]
    return replace(
        model,
        sizes={each.rfilename: each.size or 0 for each in here},
        digests={each.rfilename: each.lfs.sha256 for each in here if each.lfs},
        commit=str(info.sha),
    )


def digest_of_files(files: ModelFiles, names: Iterable[str]) -> str:
    """Return a digest of the names and contents of some files."""
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(name.encode() + bytes.fromhex(files.digest_of(name)))
    return digest.hexdigest()


def in_words(source: str, error: BaseException) -> str:
    """Say in one line why the Hub did not serve a model."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    if words := refusal(error, "model", source):
        return words
    # If a file is not in the cache either, the Hub's answer is the cause of that error.
    answers = (getattr(each, "response", None) for each in (error, error.__cause__))
    status = next((a.status_code for a in answers if a is not None), None)
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set, and it is not in the cache: unset it once to download it"
    if status is not None:
        return f"the Hub answered {status}"
    first = (str(error).splitlines() or [""])[0]
    return (
        f"the Hub cannot be reached ({first or type(error).__name__}), and it is not in the cache: "
        "try again with a network, or give a folder"
    )


def _list_cached(model: ModelFiles) -> ModelFiles | None:
    """Find the files of a model in the Hub's cache; None where it has none."""
    from huggingface_hub import constants

    home, commit = _cache_of(model.source), model.revision or "main"
    if not _COMMIT.fullmatch(commit):
        reference = home / "refs" / commit
        if not reference.is_file():
            return None
        commit = reference.read_text(encoding="utf-8").strip()
    folder = home / "snapshots" / commit
    if not _COMMIT.fullmatch(commit) or not folder.is_dir():
        return None
    if not constants.HF_HUB_OFFLINE:
        log.warning("%s: the Hub cannot be reached: taken from the cache", model.source)
    # A cached file links to a blob named by its digest, which is SHA-256 for large files.
    blobs = {path.name: path.resolve().name for path in folder.iterdir() if path.is_file()}
    digests = {name: blob for name, blob in blobs.items() if _SHA256.fullmatch(blob)}
    found = replace(model, commit=commit, folder=folder, digests=digests)
    return list_files(found)


@lru_cache(maxsize=1024)
def _digest_at(path: Path, size: int, time: int) -> str:
    """Digest a file; cached by size and time, as weights are large."""
    return digest_of_file(path)


def _cache_of(source: str) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=source, repo_type="model")


def file_stamps(model: str | None) -> list[tuple[str, int, int]]:
    """List name, size and time of a local model's files, to detect changes."""
    path = Path(model or "")
    files = [path] if path.is_file() else sorted(path.rglob("*")) if model and path.is_dir() else []
    states = ((file.name, file.stat()) for file in files if file.is_file())
    return [(name, state.st_size, state.st_mtime_ns) for name, state in states]
