"""Print the records of trackers in a folder: tracker → run → name → [step, value]s, and texts."""

import json
import struct
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Logged = dict[str, dict[str, Any]]


def tensorboard(folder: Path) -> Logged:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    runs: Logged = {}
    for place in {path.parent for path in folder.rglob("events.out.*")}:
        events = EventAccumulator(str(place)).Reload()
        result: dict[str, Any] = {
            tag: [[item.step, item.value] for item in events.Scalars(tag)]
            for tag in events.Tags()["scalars"]
        }
        for tag in events.Tags()["tensors"]:
            (text,) = events.Tensors(tag)[-1].tensor_proto.string_val
            result[tag.removesuffix("/text_summary")] = text.decode()
        runs[place.relative_to(folder).as_posix()] = result
    return runs


def mlflow(folder: Path) -> Logged:
    from mlflow import MlflowClient

    client, runs = MlflowClient(tracking_uri=folder.as_uri()), {}
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            result: dict[str, Any] = {
                name: [
                    [item.step, item.value]
                    for item in client.get_metric_history(run.info.run_id, name)
                ]
                for name in run.data.metrics
            }
            tags = {k: v for k, v in run.data.tags.items() if k.startswith("merge.")}
            runs[run.info.run_name] = result | tags | {"status": run.info.status}
    return runs


def log_records(content: bytes) -> Iterator[bytes]:
    """Read the records of a LevelDB log, in blocks of 32 KiB, after W&B's header of 7 bytes."""
    block, header = 1 << 15, struct.Struct("<IHB")
    at, record = 7, b""
    while at + header.size <= len(content):
        if block - at % block < header.size:  # the rest of a block is too short for a header
            at += block - at % block
            continue
        _, size, kind = header.unpack_from(content, at)
        record += content[at + header.size : at + header.size + size]
        at += header.size + size
        if kind in (1, 4):  # a whole record, or the last part of one
            yield record
            record = b""


def wandb(folder: Path) -> Logged:
    from wandb.proto import wandb_internal_pb2

    runs: Logged = {}
    for path in folder.glob("offline-run-*/*.wandb"):
        name, result = "", defaultdict[str, Any](list)
        for data in log_records(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            name = record.run.display_name or name
            row = {
                ".".join(entry.nested_key) or entry.key: json.loads(entry.value_json)
                for entry in record.history.item
            }
            for key, value in row.items():
                result[key].append([row.get("train/global_step"), value])
            for entry in (*record.config.update, *record.run.config.update):
                if entry.key == "merge":
                    result["config"] = json.loads(entry.value_json)
        runs[name] = dict(result)
    return runs


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    print(
        json.dumps(
            {
                "tensorboard": tensorboard(place / "tensorboard"),
                "mlflow": mlflow(place / "mlruns"),
                "wandb": wandb(place / "wandb"),
            }
        )
    )
