"""The demo's second half: a small NLI classifier over its dataset, scored and reported on."""

import logging
import shlex
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

MODEL: Final = Path(__file__).with_name("bert-tiny-nli")
"""Folder of the bundled classifier; its card states labels, training data and licences."""


def evaluate(dataset: Path, config: str, folder: Path) -> str:
    """Run the bundled classifier over a configuration; write predictions and a report to a folder.

    Returns the table of `merge-nli score`, the report's address, and commands to try next.
    """
    from merge_metric.frame.joined import read_frames
    from merge_metric.models.classifier import Classifier
    from merge_metric.predict.driver import predict
    from merge_metric.predict.problems import read_problems
    from merge_metric.report.evidence import gather_evidence
    from merge_metric.report.write import write_report
    from merge_metric.score import score_all, scores_text
    from merge_metric.seed_variant_accuracy.options import Settings

    predictions, report = folder / f"{MODEL.name}.parquet", folder / "report.html"
    model, problems = Classifier.load(MODEL, device="cpu"), read_problems(str(dataset), [config])
    log.info("Step 2 of 3: the NLI model %s answers them (up to a minute)", MODEL.name)
    predict(model, problems, predictions, overwrite=True)
    log.info("Step 3 of 3: figures and report (some seconds)")
    frames = list(read_frames(predictions, dataset, [config], with_rows=False))
    results = score_all(frames, Settings(), shown=True)
    table = scores_text(results, explain=True)
    write_report(gather_evidence([str(predictions)], dataset, [config]), report)
    of_dataset = f"--dataset {shlex.quote(str(dataset))}"
    then = (
        "Open the report in a browser:",
        f"    {report.resolve().as_uri()}",
        "Next:",
        f"    merge-nli show {shlex.quote(str(dataset))} --config {config}_nouns",
        f"    merge-nli baseline majority {of_dataset} --out majority.parquet",
        f"    merge-nli compare {shlex.quote(str(predictions))} majority.parquet {of_dataset}",
        "    merge-nli generate --source mine --data pairs.csv --recipe try --out mine",
        "pairs.csv is a file of yours with the columns premise, hypothesis and label.",
    )
    return "\n".join((f"{MODEL.name} on {config}:\n\n{table}\n", *then))
