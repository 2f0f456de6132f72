"""The command `paraphrase`."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from generation.commands.options import (
    MACHINE,
    Data,
    Dataset,
    DatasetConfig,
    Device,
    DType,
    Format,
    HypothesisColumn,
    IdColumn,
    LabelColumn,
    LabelMap,
    Limit,
    Out,
    PremiseColumn,
    Revision,
    Source,
    Split,
    option,
    read_label_map,
)
from generation.paraphrases.candidates import Decoding
from generation.paraphrases.config import GENERATOR, ParaphraseConfig
from generation.paraphrases.prompts import INSTRUCTION
from merge_dataset.commands.check import OutputFormat, export_run, user_errors

if TYPE_CHECKING:
    from generation.paraphrases.candidates import TextGenerator
    from generation.paraphrases.entailment import Judge

_GENERATOR, _MODEL, _SEARCH = "Text generator", "NLI model M", "Search"
_DECODING: Final = Decoding()


class ModelKind(StrEnum):
    """Kinds of NLI models."""

    classifier = "classifier"
    lm = "lm"


def paraphrase_command(
    model: Annotated[
        str, option("The model to be tested: folder, Hub id, or .gguf file.", group=_MODEL)
    ],
    model_kind: Annotated[ModelKind | None, option("Default: found out.", group=_MODEL)] = None,
    model_revision: Annotated[str | None, option("On the Hub.", group=_MODEL)] = None,
    label_order: Annotated[
        str | None,
        option("What a classifier's classes 0, 1, 2 mean, e.g. c,e,n; or seeds.", group=_MODEL),
    ] = None,
    source: Source = None,
    data: Data = None,
    dataset: Dataset = None,
    dataset_config: DatasetConfig = None,
    split: Split = None,
    revision: Revision = None,
    premise_column: PremiseColumn = None,
    hypothesis_column: HypothesisColumn = None,
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
    label_map: LabelMap = None,
    limit: Limit = None,
    generator: Annotated[
        str,
        option(
            "Seq2seq or chat model: Hub id (optionally id@revision), folder, or .gguf file.",
            group=_GENERATOR,
        ),
    ] = GENERATOR,
    gguf_file: Annotated[
        str | None, option("A GGUF file in that folder or repository.", group=_GENERATOR)
    ] = None,
    prompt: Annotated[
        str, option("What it is asked, with {hypothesis} in it.", group=_GENERATOR)
    ] = INSTRUCTION,
    k: Annotated[int, option("Paraphrases wanted of a hypothesis.", group=_SEARCH, min=1)] = 10,
    max_rounds: Annotated[
        int, option("How often it is rewritten until there are k.", group=_SEARCH, min=1)
    ] = 5,
    temperature: Annotated[
        tuple[float, float],
        option("Drawn from there for each hypothesis and round.", metavar="MIN MAX", group=_SEARCH),
    ] = (0.3, 0.6),
    beams: Annotated[
        int, option("Candidates of a round.", group=_SEARCH, min=1)
    ] = _DECODING.num_beams,
    groups: Annotated[
        int, option("Groups of beams, which avoid each other's words.", group=_SEARCH, min=1)
    ] = _DECODING.num_beam_groups,
    diversity_penalty: Annotated[
        float, option("In nats, for a word of an earlier group.", group=_SEARCH, min=0)
    ] = _DECODING.diversity_penalty,
    sibling_penalty: Annotated[
        float, option("In nats, for each better continuation of a beam.", group=_SEARCH, min=0)
    ] = _DECODING.sibling_penalty,
    max_new_tokens: Annotated[
        int, option("Longest candidate.", group=_SEARCH, min=1)
    ] = _DECODING.max_new_tokens,
    rng_seed: Annotated[int, option("Of the temperatures.", group=_SEARCH)] = 0,
    batch_size: Annotated[
        int | None, option("Hypotheses rewritten at a time.", group=MACHINE, min=1)
    ] = None,
    device: Device = None,
    dtype: Annotated[
        DType | None,
        option("Of the generator. Default: bfloat16 on CUDA, else float32.", group=MACHINE),
    ] = None,
    run: Annotated[
        str | None, option("Folder of the run. Default: runs/SOURCE_paraphrases.")
    ] = None,
    out: Out = Path("merge-nli"),
    replace: Annotated[
        bool, option("Replace paraphrases that another NLI model chose.", "--replace")
    ] = False,
    output: Format = OutputFormat.text,
) -> None:
    """Paraphrase the hypotheses of problems that an NLI model solves.

    A text generator rewrites them. Kept are paraphrases that the hypothesis entails
    and that entail it, as the NLI model finds. They become the configuration
    SOURCE_paraphrases of the dataset.

    An interrupted run goes on where it stopped when given the same command again.

    \b
    Examples:
      merge-nli paraphrase --source snli --data snli_1.0_test.jsonl
        --model FacebookAI/roberta-large-mnli --device cuda

    \b
      merge-nli paraphrase --source anli-r1 --model ./my-classifier
        --label-order c,e,n --generator google/flan-t5-base --k 5

    \b
      merge-nli paraphrase --source mnli-m --model ./my-classifier
        --generator ./SmolLM2-135M-Instruct.gguf
        --prompt "Say this in other words: {hypothesis}"
    """  # \b is a mark of click: keep the lines that follow
    with user_errors(extra="generation,predict"):
        settings: dict[str, Any] = {
            "source": source,
            "data": data,
            "dataset": dataset,
            "dataset_config": dataset_config,
            "split": split,
            "revision": revision,
            "premise_column": premise_column,
            "hypothesis_column": hypothesis_column,
            "label_column": label_column,
            "id_column": id_column,
            "label_map": read_label_map(label_map),
            "limit": limit,
            "generator": generator,
            "gguf_file": gguf_file,
            "prompt": prompt,
            "model": model,
            "model_kind": model_kind and model_kind.value,
            "model_revision": model_revision,
            "label_order": label_order,
            "k": k,
            "max_rounds": max_rounds,
            "temperature_min": temperature[0],
            "temperature_max": temperature[1],
            "num_beams": beams,
            "num_beam_groups": groups,
            "diversity_penalty": diversity_penalty,
            "sibling_penalty": sibling_penalty,
            "max_new_tokens": max_new_tokens,
            "rng_seed": rng_seed,
            "batch_size": batch_size,
            "device": device,
            "dtype": dtype and dtype.value,
            "run": run or f"runs/{source or 'snli'}_paraphrases",
        }
        given = {name: value for name, value in settings.items() if value is not None}
        _paraphrase(ParaphraseConfig(**given), out, replace=replace, output=output)


def _paraphrase(
    config: ParaphraseConfig, out: Path, *, replace: bool, output: OutputFormat
) -> None:
    from generation.paraphrases.pipeline import paraphrase
    from generation.paraphrases.summary import summarise

    folder = paraphrase(
        config, generator=partial(_open_generator, config), judge=partial(_open_judge, config)
    )
    configs = export_run(folder.path, out, replace=replace)
    model = {
        "model": config.model,
        "kind": config.model_kind,
        "revision": config.model_revision,
        "label-order": config.label_order,
    }
    as_json = output is OutputFormat.json
    typer.echo(summarise(folder.path, out, configs, model=model, as_json=as_json))


def _open_generator(config: ParaphraseConfig) -> TextGenerator:
    from generation.paraphrases.generators import Generator

    return Generator.load(
        config.generator,
        gguf_file=config.gguf_file,
        device=config.device,
        dtype=config.dtype,
        decoding=config.decoding,
        prompt=config.prompt,
        batch_size=config.batch_size,
    )


def _open_judge(config: ParaphraseConfig, problems: Path) -> Judge:
    from merge_metric.models.opening import ModelRequest, open_model
    from merge_metric.predict.problems import read_problems

    request = ModelRequest(
        model=config.model,
        kind=config.model_kind,
        revision=config.model_revision,
        device=config.device,
        label_order=config.label_order,
    )
    return open_model(request, read_problems(str(problems)))
