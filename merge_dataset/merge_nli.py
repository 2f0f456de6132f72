"""The `datasets` builder of MERGE-NLI: an exported folder's Parquet files, as they are.

A loading script, too: `datasets` 3.6 copies the siblings that it finds by a regular expression,
hence the relative import of `schema`, and no other import of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.core import url_to_fs

from .schema import KNOWN_SOURCES, VARIANT_CLASSES, config_name, content_hash, features, find_files


def builder(folder: str | Path, config: str, **kwargs: Any) -> MergeNli:
    """Make a builder of one configuration of a local dataset folder, whatever its source.

    `datasets` refuses names beside `BUILDER_CONFIGS`, so this makes a subclass that has
    just this one. Its cache entry is keyed by the content of the files.

    Args:
        folder: The dataset folder.
        config: Name of the configuration, for example `anli-r1_nouns`.
        **kwargs: Further arguments of `datasets.DatasetBuilder`.

    Raises:
        FileNotFoundError: the folder has no files for this configuration.
        ValueError: `config` is no configuration name.
    """
    members = {"BUILDER_CONFIGS": [MergeNliConfig(name=config)], "__module__": __name__}
    subclass: type[MergeNli] = type("MergeNli", (MergeNli,), members)
    if "hash" not in kwargs:
        kwargs["hash"] = content_hash(folder, config)
    options = {"base_path": str(Path(folder).resolve())}
    return subclass(config_name=config, **(options | kwargs))


@dataclass
class MergeNliConfig(datasets.BuilderConfig):  # type: ignore[misc]  # datasets is untyped
    """A configuration whose cache entry follows the content of `data_dir`, not its path."""

    def create_config_id(
        self, config_kwargs: dict[str, Any], custom_features: datasets.Features | None = None
    ) -> str:
        """Name the cache entry, as `datasets.BuilderConfig` defines it."""
        data_dir = config_kwargs.get("data_dir")
        if data_dir is not None and "://" not in str(data_dir):
            config_kwargs = {**config_kwargs, "data_dir": content_hash(data_dir, self.name)}
        return str(super().create_config_id(config_kwargs, custom_features))


class MergeNli(datasets.ArrowBasedBuilder):  # type: ignore[misc]  # datasets is untyped
    """MERGE-NLI: splits `seeds` and `variants`, from `data_dir` or beside the script."""

    BUILDER_CONFIG_CLASS = MergeNliConfig
    BUILDER_CONFIGS = [  # noqa: RUF012  # datasets' own declaration is a plain list
        MergeNliConfig(name=config_name(source, variant_class))
        for source in KNOWN_SOURCES
        for variant_class in (None, *VARIANT_CLASSES)
    ]

    def _info(self) -> datasets.DatasetInfo:
        try:
            files = find_files(self._root, self.config.name)
        except FileNotFoundError:  # which is told later
            return datasets.DatasetInfo()
        filesystem, path = url_to_fs(files["seeds"][0])
        with filesystem.open(path) as stream:
            return datasets.DatasetInfo(features=features(pq.read_schema(stream)))

    @property
    def _root(self) -> str:
        return str(self.config.data_dir or self.base_path or ".")

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:
        files = find_files(self._root, self.config.name)
        return [
            datasets.SplitGenerator(name=split, gen_kwargs={"files": dl_manager.download(paths)})
            for split, paths in files.items()
        ]

    def _generate_tables(self, files: list[str]) -> Iterator[tuple[tuple[int, int], pa.Table]]:
        for file_number, file in enumerate(files):
            # For streaming, datasets replaces `open` in this module by one that reads URLs.
            with open(file, "rb") as stream:  # noqa: PTH123
                file = pq.ParquetFile(stream, page_checksum_verification=True)
                for number, batch in enumerate(file.iter_batches()):
                    yield (file_number, number), pa.Table.from_batches([batch])
