"""Conversion: tensors of a pickle (`pytorch_model.bin`), kept once as safetensors.

A pickle can name any function, which reading it would call. torch's restricted reader builds
tensors only; versions before 2.10 have a known hole in it (CVE-2026-24747), so they are refused
here. What was read is kept under the digest of the pickle, so the same bytes are never read
twice, wherever they lie, and everything that follows is safetensors. transformers' own
conversion, which asks a service on the Hub, plays no part.
"""

from __future__ import annotations

import json
import logging
import os
import re
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from merge_dataset.files import atomic, digest_of_file, write_json
from merge_dataset.locks import working_in
from merge_metric.models.model_files import ModelFiles, digest_of_files
from merge_metric.models.weights import Weights

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

CACHE_VARIABLE: Final = "MERGE_NLI_CACHE"
"""Environment variable with the folder of the cache."""
SAFE_TORCH: Final = (2, 10)
"""First version whose reader of pickles is trusted."""

_ORIGIN: Final = "origin.json"
"""File with the origin of converted weights; it is written last, so it marks complete ones."""
_LARGEST: Final = 8
"""Bytes of tensors per byte of a pickle, at most: parameters may be in it under several names."""


def cache_folder() -> Path:
    """Return the folder that converted weights are kept in."""
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given) / "converted"
    from huggingface_hub.constants import HF_HOME

    return Path(HF_HOME) / "merge-nli" / "converted"


def find_converted(files: ModelFiles, weights: Weights) -> Path | None:
    """Find the folder of a model's converted pickles; None if they have not been converted."""
    if all(name in files.digests or files.local(name) for name in weights.names):
        folder = cache_folder() / digest_of_files(files, weights.names)
        return folder if _is_whole(folder) else None
    return None


def unfit_torch() -> str:
    """Say why this torch may not read pickles; empty where it may."""
    installed = version("torch")
    found = tuple(int(number) for number in re.findall(r"\d+", installed)[:2])
    if found >= SAFE_TORCH:
        return ""
    return (
        f"expected torch {'.'.join(map(str, SAFE_TORCH))} or newer, as older ones can be made to "
        f"run code when they read pickled weights (CVE-2026-24747), got {installed}: "
        f"pip install 'torch>={'.'.join(map(str, SAFE_TORCH))}'"
    )


def convert(files: ModelFiles, weights: Weights, *, stem: str = "model") -> Path:
    """Convert a model's pickles, unless that was done before; return the folder."""
    if (known := find_converted(files, weights)) is not None:
        return known
    if reason := unfit_torch():
        raise ValueError(f"{files.where(weights.names[0])}: {reason}")
    folder = files.download(weights.all_names)
    for name in weights.names:
        path = folder / name
        if files.commit is not None and digest_of_file(path) != files.digest_of(name):
            raise ValueError(
                f"{files.where(name)}: expected the content that the Hub tells of, got another: it "
                f"is damaged, or half a download; delete {path.resolve()} and get it again"
            )
    target = cache_folder() / digest_of_files(files, weights.names)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"{target.parent}: expected a folder that can be made, to keep converted weights in: "
            f"{error}; name another by the environment variable {CACHE_VARIABLE}"
        ) from error
    with working_in(target, wait=True):
        if not _is_whole(target):
            from safetensors.torch import save_file

            table: dict[str, str] = {}
            sizes: dict[str, int] = {}
            for number, name in enumerate(weights.names, 1):
                tensors = read_pickle(folder / name, files.where(name))
                kept = f"{stem}.safetensors"
                if len(weights.names) > 1:
                    kept = f"{stem}-{number:05}-of-{len(weights.names):05}.safetensors"
                with atomic(target / kept) as temporary:
                    save_file(tensors, temporary, metadata={"format": "pt"})
                table |= dict.fromkeys(tensors, kept)
                sizes[kept] = (target / kept).stat().st_size
            if len(weights.names) > 1:
                write_json(
                    target / f"{stem}.safetensors.index.json", {"metadata": {}, "weight_map": table}
                )
            origin = {
                "repository": files.source,
                "commit": files.commit,
                "sha256": {name: files.digest_of(name) for name in weights.names},
                "bytes": sizes,
                "torch": version("torch"),
            }
            write_json(target / _ORIGIN, origin)
            size = sum(files.sizes[name] for name in weights.names)
            log.info(
                "%s: converted %s (%s) to safetensors, once: %s",
                files.source, described_names(weights), in_megabytes(size), target,
            )  # fmt: skip
    return target


def described_names(weights: Weights) -> str:
    """Name a model's files of weights, the first one of many."""
    more = len(weights.names) - 1
    return weights.names[0] + (f" and {more} more" if more else "")


def in_megabytes(size: int) -> str:
    """Write a number of bytes for people, such as `438 MB`.

    >>> in_megabytes(437_960_000), in_megabytes(1200)
    ('438 MB', '0.1 MB')
    """
    return f"{size / 1e6:,.0f} MB" if size >= 10**6 else f"{max(size / 1e6, 0.1):.1f} MB"


def _is_whole(folder: Path) -> bool:
    """Tell whether a folder of converted weights is complete."""
    try:
        sizes = json.loads((folder / _ORIGIN).read_bytes())["bytes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


# --- Pickles ---


def read_pickle(path: Path, where: str) -> dict[str, torch.Tensor]:
    """Read the tensors of a pickle, and give each memory of its own."""
    import warnings

    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on old ways of saving
            found = torch.load(
                path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
            )
    except Exception as error:  # whatever damaged or hostile bytes lead to
        text = str(error)
        named = r"(?:GLOBAL|global|class|function)s?:? ([A-Za-z_][\w.]*\.\w+)"
        if hostile := re.search(named, text):
            raise ValueError(
                f"{where}: expected tensors only, got {hostile[1]}, which could run code: it is "
                f"refused, and nothing of it was run; take the weights from elsewhere"
            ) from error
        text = text.rpartition("WeightsUnpickler error:")[2].partition("This is an internal")[0]
        text = text.partition("Check the documentation")[0]
        first = re.sub(r"\s+", " ", text).strip()[:160] or type(error).__name__
        raise ValueError(
            f"{where}: expected a file that torch saved, could not read it ({first}): it is "
            f"damaged, or half a download; get it again"
        ) from error
    if not isinstance(found, dict):
        raise ValueError(f"{where}: expected tensors by name, got {type(found).__name__}")
    for name, value in found.items():  # what safetensors could not hold
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise ValueError(
                f"{where}: expected tensors by name only, got {name!r:.60}, which is of type "
                f"{type(value).__name__}: save the model by save_pretrained"
            )
        if value.layout != torch.strided or value.is_quantized or value.device.type != "cpu":
            raise ValueError(f"{where}: expected plain tensors, got {name!r:.60}, which is none")
    if not found:
        raise ValueError(f"{where}: expected tensors by name, got none")
    bound = _LARGEST * path.stat().st_size + 2**20
    if (total := sum(each.numel() * each.element_size() for each in found.values())) > bound:
        raise ValueError(
            f"{where}: expected tensors of at most {bound:,} bytes, as the file is so small, got "
            f"{total:,}: it is damaged, or made to fill the memory"
        )
    seen: set[int] = set()  # safetensors want memory of its own for each: tied ones are copied
    apart = {}
    for name, value in found.items():
        tensor = value.detach()
        place = tensor.untyped_storage().data_ptr()
        whole = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
        if place in seen or not whole or not tensor.is_contiguous():
            tensor = tensor.contiguous().clone()
        seen.add(place)
        apart[name] = tensor
    return apart
