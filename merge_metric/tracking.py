"""Figures in experiment trackers, under the names used by a `SeedVariantCallback`."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

from merge_dataset.settings import check_members

Tracker = Literal["wandb", "mlflow", "tensorboard"]

PREFIX: Final = "eval_merge_"
"""Prefix of names in a Trainer's log; in W&B and TensorBoard they become `eval/merge_…`."""


def trainer_figures(results: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Map a Trainer's names, with configurations if several, to the figures that are defined."""
    from merge_metric.seed_variant_accuracy.figures import MAIN_FIGURES

    several = len(results) > 1
    return {
        f"{PREFIX}{f'{config}_' if several else ''}{key}": float(result[key])
        for config, result in results.items()
        for key in MAIN_FIGURES
        if result[key] is not None
    }


def require_tracker(tracker: str) -> None:
    """Raise ValueError for another tracker, ModuleNotFoundError without its package."""
    check_members("log_to", [tracker], TRACKERS)
    spec = find_spec(tracker)
    if spec is None or spec.origin is None:  # a folder of this name is no package
        raise ModuleNotFoundError(
            f"logging to {tracker} needs {tracker}; run: pip install 'merge-nli[{tracker}]'",
            name=tracker,
        )


def log_results(
    tracker: str,
    results: Mapping[str, Mapping[str, Any]],
    *,
    model: str,
    dataset: str,
    step: int | None = None,
) -> str:
    """Log the figures of a model; return where they are, or raise ConnectionError."""
    require_tracker(tracker)
    about = {"model": model, "dataset": dataset}
    about |= {f"signature_{config}": of["signature"] for config, of in results.items()}
    log, cure = TRACKERS[tracker]
    try:
        with redirect_stdout(sys.stderr):  # stdout is for results
            return log(trainer_figures(results), about, step)
    except Exception as error:  # trackers may raise anything
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ConnectionError(
            f"{tracker}: the figures were not logged: {reason}; {cure}"
        ) from error


def _to_wandb(figures: Mapping[str, float], about: Mapping[str, str], step: int | None) -> str:
    import wandb

    name, project = about["model"], os.environ.get("WANDB_PROJECT", "merge-nli")
    with nullcontext(wandb.run) if wandb.run else wandb.init(project=project, name=name) as run:
        run.config.update({"merge": dict(about)}, allow_val_change=True)
        # As a Trainer does: W&B's own steps only grow, and it drops values of earlier ones.
        slashed = {name.replace("eval_", "eval/", 1): value for name, value in figures.items()}
        run.log({**slashed, **({} if step is None else {"train/global_step": step})})
        return str(run.url or run.dir)


def _to_mlflow(figures: Mapping[str, float], about: Mapping[str, str], step: int | None) -> str:
    import mlflow

    active = mlflow.active_run()
    with nullcontext(active) if active else mlflow.start_run(run_name=about["model"]) as run:
        mlflow.log_metrics(dict(figures), step=step or 0)
        mlflow.set_tags({f"merge.{key}": value for key, value in about.items()})
    return f"{mlflow.get_tracking_uri()}, run {run.info.run_id}"


def _to_tensorboard(
    figures: Mapping[str, float], about: Mapping[str, str], step: int | None
) -> str:
    from torch.utils.tensorboard import SummaryWriter

    name = re.sub(r"[^\w.-]+", "_", about["model"]).strip("._") or "model"
    folder = Path(os.environ.get("TENSORBOARD_LOGGING_DIR", "tensorboard")).expanduser() / name
    with SummaryWriter(str(folder)) as writer:
        for tag, value in figures.items():
            writer.add_scalar(tag.replace("eval_", "eval/", 1), value, step or 0)
        for key, text in about.items():
            writer.add_text(f"merge/{key}", text, step or 0)
    return str(folder)


TRACKERS: Final[
    Mapping[str, tuple[Callable[[Mapping[str, float], Mapping[str, str], int | None], str], str]]
] = {
    "wandb": (_to_wandb, "log in with `wandb login`, or keep runs here with WANDB_MODE=offline"),
    "mlflow": (
        _to_mlflow,
        "name a server with MLFLOW_TRACKING_URI, or a folder, with MLFLOW_ALLOW_FILE_STORE=true; a "
        "database takes all of mlflow, not mlflow-skinny alone",
    ),
    "tensorboard": (_to_tensorboard, "name a folder with TENSORBOARD_LOGGING_DIR"),
}
"""Tracker → function that logs figures, and what to do where it cannot."""
