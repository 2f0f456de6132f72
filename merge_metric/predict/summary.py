"""What `merge-nli predict` and `baseline` say when they are done."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from merge_dataset.files import to_json
from merge_metric.predict.run import Outcome


def as_json(outcomes: Sequence[Outcome], failed: Sequence[str]) -> str:
    """Everything, for programs.

    Args:
        outcomes: What was done, file by file.
        failed: Models that failed, and why.
    """
    files = [_facts(outcome) for outcome in outcomes]
    return to_json({"predictions": files, "failed": failed})


def as_text(outcomes: Sequence[Outcome], dataset: str) -> str:
    """What was done, what was seen, and what to do next.

    Args:
        outcomes: What was done, file by file.
        dataset: As the user named it.
    """
    return "\n\n".join(_tell(outcome, dataset) for outcome in outcomes)


def _facts(outcome: Outcome) -> dict[str, Any]:
    return {
        "file": str(outcome.path),
        "problems": outcome.problems,
        "distinct_pairs": outcome.pairs,
        "inferred": outcome.inferred,
        "seconds": round(outcome.seconds, 3),
        "metadata": outcome.metadata,
    }


def _tell(outcome: Outcome, dataset: str) -> str:
    """What was done, what was seen, and what to do next."""
    metadata = outcome.metadata
    lines = [
        f"{metadata.get('short_name') or metadata['name']}: {outcome.problems:,} problems, "
        f"{outcome.pairs:,} distinct pairs, {_pace(outcome)}"
    ]
    if order := metadata.get("label_order"):
        lines.append(f"  classes: {', '.join(order)} ({metadata['label_order_source']})")
    if truncated := metadata.get("truncated"):
        lines.append(f"  cut to {metadata['max_tokens']} tokens: {truncated:,} pairs")
    if check := metadata.get("label_order_check"):
        lines.append(f"  right on {check['accuracy']:.1%} of {check['seeds']:,} seeds")
    lines.append(f"  {outcome.path}")
    if outcome.problems > (check["seeds"] if check else 0):
        lines.append(f"Next: {_score_command(outcome, dataset)}")
    return "\n".join(lines)


def _pace(outcome: Outcome) -> str:
    if not outcome.inferred:
        return "inferred before"
    pace = outcome.inferred / max(outcome.seconds, 1e-9)
    return f"{outcome.inferred:,} inferred in {outcome.seconds:,.1f} s ({pace:,.0f} per second)"


def _score_command(outcome: Outcome, dataset: str) -> str:
    command = ["merge-nli", "score", str(outcome.path)]
    if Path(dataset).is_dir():
        command += ["--dataset", dataset]
        if "limit_seeds" in outcome.metadata["problems"]:
            command.append("--allow-missing")
    return shlex.join(command)
