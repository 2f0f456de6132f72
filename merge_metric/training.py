"""Seed-variant accuracy during training: a callback of transformers' `Trainer`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback

from merge_dataset.settings import as_texts
from merge_metric.evaluation import evaluate_model
from merge_metric.tracking import trainer_figures


class SeedVariantCallback(TrainerCallback):
    """Score the model on the same seeds at every evaluation, and log the figures.

    They go where the trainer logs, and into the metrics of the evaluation, so that
    `metric_for_best_model="eval_merge_seed_variant_accuracy"` works. Of several configurations the
    names begin with `eval_merge_<configuration>_`. Undefined figures, such as fooling rates of a
    model that answers no seed right, are not logged.

    Attributes:
        results: (step, configuration → result of `scoring.score`), evaluation by evaluation.
    """

    def __init__(
        self,
        trainer: Trainer,
        dataset: str | Path,
        config: str | Sequence[str] | None = None,
        *,
        limit_seeds: int | None = 200,
        **options: Any,
    ) -> None:
        """Make a callback for `trainer.add_callback`.

        Args:
            trainer: The trainer, with its tokenizer as `processing_class`.
            dataset: The dataset.
            config: One configuration or several.
            limit_seeds: Seeds of each source, the same at every evaluation; None for all.
            options: As `evaluate_model` takes them: `label_order`, `correctness_threshold`, ….
        """
        self._trainer, self._dataset = trainer, Path(dataset)
        self._config = as_texts(config) or None
        usual = {"n_bootstrap": 0, "progress": False, "limit_seeds": limit_seeds}
        self._options: dict[str, Any] = usual | options
        self.results: list[tuple[int, dict[str, dict[str, Any]]]] = []

    def on_evaluate(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Score, log figures and add them to the metrics, in the main process only."""
        if not state.is_world_process_zero:
            return
        evaluation = evaluate_model(self._trainer, self._dataset, self._config, **self._options)
        self.results.append((state.global_step, dict(evaluation.results)))
        figures = trainer_figures(evaluation.results)
        others["metrics"].update(figures)
        self._trainer.log(figures)
