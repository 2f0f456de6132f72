"""Export a model's answers and figures in the schema of Every Eval Ever (arXiv 2606.14516)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from merge_dataset.commands.command_line import OF_DATASET, Chosen, Format, input_option, option
from merge_dataset.files import digest_of_file, write_json
from merge_dataset.schema import SPLITS, format_of
from merge_metric.exports.registry import (
    FILES,
    Out,
    Overwrite,
    date_option,
    export,
    filled,
    new_folder,
    read_split,
    tell,
)

if TYPE_CHECKING:
    from merge_metric.frame.joined import Frame

SCHEMA: Final = "0.2.2"
"""Version of both schemas of https://github.com/evaleval/every_eval_ever."""

AGGREGATE, SAMPLES = "results.json", "samples.jsonl"


@export("results", panel=FILES)
def export_results(
    predictions: Annotated[Path, typer.Argument(help="The predictions file.")],
    dataset: Annotated[Path, input_option("The dataset folder or name.", **OF_DATASET)] = Path(
        "merge-nli"
    ),
    out: Out = Path("merge-nli-results"),
    *,
    chosen: Chosen,
    dataset_repo: Annotated[
        str | None, input_option("Where the dataset is published on the Hub, OWNER/NAME.")
    ] = None,
    organization: Annotated[str, option("Who evaluated the model.")] = "unknown",
    relationship: Annotated[
        Literal["first_party", "third_party", "collaborative", "other"],
        option("How they stand to its makers."),
    ] = "other",
    day: Annotated[
        datetime | None, date_option("Date of the evaluation, e.g. 2026-01-31.", "--date")
    ] = None,
    overwrite: Overwrite = False,
    output: Format = "text",
) -> None:
    """A model's figures and every answer in the schema of Every Eval Ever (0.2.2).

    A folder with results.json, the figures with their intervals, and samples.jsonl, a line for
    each seed and variant. The record's time is that of the predictions file.

    \b
    Examples:
      merge-nli export results merge-nli.parquet --dataset merge-nli --organization "My lab"
    """  # \b is a mark of click: keep the lines that follow
    from merge_metric.frame.joined import read_frames
    from merge_metric.frame.predictions import read_metadata
    from merge_metric.score import score_frame
    from merge_metric.seed_variant_accuracy.figures import CATALOGUE, MAIN_FIGURES
    from merge_metric.seed_variant_accuracy.options import USUAL
    from merge_metric.seed_variant_accuracy.resampling import CONFIDENCE
    from merge_metric.seed_variant_accuracy.scoring import VERSION

    description = read_metadata(predictions)
    frames = list(read_frames([predictions], dataset, **chosen.arguments()))
    model = str(description.get("name") or predictions.stem)
    created = int(predictions.stat().st_mtime)
    evaluation = {"schema_version": SCHEMA, "evaluation_id": f"merge-nli/{model}/{created}"}
    with new_folder(out, {"export": "results"}, overwrite=overwrite) as partial:
        samples, count = partial / SAMPLES, 0
        with samples.open("w", encoding="utf-8", newline="\n") as file:
            for sample in chain(*(_samples(frame, dataset) for frame in frames)):
                line = {**evaluation, "model_id": model, **sample}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                count += 1
        results = [(frame, score_frame(frame)) for frame in frames]
        shown = [CATALOGUE[key].at(USUAL.correctness_threshold) for key in MAIN_FIGURES]
        text = filled(
            "every_eval_ever.json.j2",
            schema=SCHEMA,
            evaluation_id=evaluation["evaluation_id"],
            created=created,
            day=day,
            organization=organization,
            relationship=relationship,
            version=VERSION,
            model=model,
            details=_texts(description),
            figures=[
                (frame, result, figure)
                for frame, result in results
                for figure in shown
                if result[figure.key] is not None
            ],
            dataset_repo=dataset_repo,
            confidence=CONFIDENCE,
            method=f"bootstrap over seeds{' of a ' * bool(chosen.cluster)}{chosen.cluster or ''}",
            replicates=USUAL.n_bootstrap,
            samples=samples,
            checksum=digest_of_file(samples),
            count=count,
        )
        write_json(partial / AGGREGATE, json.loads(text))
    configs = [frame.config for frame in frames]
    text = f"{out}: {model} on {', '.join(configs)}: {count:,} answers"
    hint = f"every_eval_ever validate {out / AGGREGATE} {out / SAMPLES}"
    tell(output, out, {"configurations": configs, "samples": count}, text, hint)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Convert every value to text, as the schema requires."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for name, value in values.items()
        if value is not None
    }


def _samples(frame: Frame, folder: Path) -> Iterator[dict[str, Any]]:
    from merge_metric.frame.joined import VARIANT_IDS
    from merge_metric.seed_variant_accuracy.options import NO_LABEL, Merging

    rows, labels = frame.rows, frame.counts.labels
    merging = Merging.parse(frame.counts.merged)
    answers = dict(zip(map(str, frame.values[VARIANT_IDS]), rows.prediction.tolist(), strict=True))
    answers |= dict(zip(map(str, rows.seed_ids), rows.own.tolist(), strict=True))
    for split in SPLITS:
        for table in read_split(folder, frame.config, split):
            fields, names = format_of(table.schema).fields, format_of(table.schema).labels
            for row in table.to_pylist():
                if row["variant_id"] not in answers:
                    continue
                code, gold = answers[row["variant_id"]], names[row["label"]]
                gold = merging.becomes.get(gold, gold)
                answer = "" if code == NO_LABEL else labels[code]
                raw = "\n".join(f"{name.capitalize()}: {row[name]}" for name in fields)
                about = {n: row[n] for n in ("seed_id", "word_class", "original", "replacement")}
                about["subsamples"] = row["subsamples"] or None
                yield {
                    "evaluation_name": frame.config,
                    "evaluation_result_id": f"{frame.config}/{split.removesuffix('s')}_accuracy",
                    "sample_id": row["variant_id"],
                    "sample_hash": hashlib.sha256((raw + gold).encode()).hexdigest(),
                    "interaction_type": "single_turn",
                    "input": {"raw": raw, "reference": [gold], "choices": list(labels)},
                    "output": {"raw": [answer]},
                    "answer_attribution": [
                        {
                            "turn_idx": 0,
                            "source": "output.raw",
                            "extracted_value": answer,
                            "extraction_method": "label",
                            "is_terminal": True,
                        }
                    ],
                    "evaluation": {"score": float(answer == gold), "is_correct": answer == gold},
                    "metadata": _texts(about),
                }
