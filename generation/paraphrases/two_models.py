"""The two models of a run: looked at before it begins, opened where something is asked of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from generation.paraphrases.config import ParaphraseConfig
from merge_dataset.executors.plan import Distribution
from merge_dataset.files import draw_rank, read_table
from merge_dataset.schema import LABELS
from merge_metric.models.heads import CAUSAL_LM, CLASSIFIER, TEXT_GENERATOR
from merge_metric.models.label_order import ASKED_SEEDS
from merge_metric.models.opening import open_model
from merge_metric.models.pair_model import ModelRequest, Pair, PairModel
from merge_metric.models.readiness import Wanted, look_at, machine_for, require_all, wanted_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from generation.paraphrases.rewriting import TextGenerator


def look_at_models(config: ParaphraseConfig, distribution: Distribution | None = None) -> None:
    """Look at both models of a new run, before it makes anything.

    Args:
        config: The settings.
        distribution: Where tasks open them; by default they are opened here.

    Raises:
        ValueError: with all that is wrong with either.
    """
    if (Path(config.run) / "generator.json").is_file():
        return  # a run that goes on opens a model only where it has to
    generator = Wanted(model=config.generator, head=TEXT_GENERATOR, gguf_file=config.gguf_file,
                       dtype=config.dtype)  # fmt: skip
    kinds = {"classifier": (CLASSIFIER,), "lm": (CAUSAL_LM,), None: (CLASSIFIER, CAUSAL_LM)}
    judge = wanted_of(config.model, kinds[config.model_kind], revision=config.model_revision,
                      label_order=config.label_order)  # fmt: skip
    machine = machine_for(distribution, config.device)
    require_all(look_at([generator, judge], machine), machine)


def open_generator(config: ParaphraseConfig) -> TextGenerator:
    """Load the text generator."""
    from generation.paraphrases.text_generator import Generator

    return Generator.load(
        config.generator,
        gguf_file=config.gguf_file,
        device=config.device,
        dtype=config.dtype,
        decoding=config.decoding,
        prompt=config.prompt,
        batch_size=config.batch_size,
    )


def open_judge(config: ParaphraseConfig, problems: Path) -> PairModel:
    """Open the NLI model; some of the problems may tell what its classes mean."""
    request = ModelRequest(
        model=config.model,
        kind=config.model_kind,
        revision=config.model_revision,
        device=config.device,
        label_order=config.label_order,
    )
    return open_model(request, sources=[config.source], seeds=partial(sample_of_problems, problems))


def sample_of_problems(problems: Path) -> tuple[list[Pair], NDArray[np.int64]]:
    """Draw problems by whose gold labels an NLI model's classes may be told.

    Args:
        problems: The file of a run's problems.

    Returns:
        Premises and hypotheses, and positions of the gold labels in `LABELS`.
    """
    table = read_table(problems, ["seed_id", "premise", "hypothesis", "label"])
    drawn = sorted(table["seed_id"].to_pylist(), key=partial(draw_rank, 0))[:ASKED_SEEDS]
    table = table.filter(pc.is_in(table["seed_id"], value_set=pa.array(drawn, pa.string())))
    gold = pc.index_in(table["label"], value_set=pa.array(LABELS)).to_numpy()
    pairs = zip(table["premise"].to_pylist(), table["hypothesis"].to_pylist(), strict=True)
    return list(pairs), gold.astype(np.int64)
