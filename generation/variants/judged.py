"""Judgements that filter: the mean F + R of variants, by people or models whose trial went well."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from generation.config import Config
from generation.run_folder import RunFolder
from generation.variants.signal_columns import JUDGED, SignalFile
from merge_dataset.annotation import ANSWERS, TRUSTED, read_answers, read_judge
from merge_dataset.files import digests, write_table


def judged_variants(out: RunFolder, config: Config) -> dict[str, SignalFile]:
    """Write the means of the judgements, if any, to a build's folder; describe who judged.

    Raises:
        ValueError: there are none of variants, or a model's AUC in its trial is below `TRUSTED`.
    """
    if not config.judged:
        return {}
    paths = [Path(path) for path in config.judged]
    answers = read_answers(paths)
    if "fluency" not in answers.column_names or not len(answers):
        raise ValueError(
            f"judged: expected scores of fluency and reasoning in {', '.join(config.judged)}, got "
            "none"
        )
    files = [
        file
        for path in paths
        for file in (sorted(path.glob(f"{ANSWERS}/*")) if path.is_dir() else [path])
    ]
    trials = []
    for judge in (read_judge(file) for file in files if file.suffix == ".parquet"):
        auc = judge["trial"]["figures"]["auc"]
        if (auc["value"] or 0) < TRUSTED and not config.trust_judge:
            raise ValueError(
                f"judged: expected a judge with an AUC of {TRUSTED} or more in its trial, got "
                f"{auc['value']} by {judge['name']}: it hardly tells good variants from others; "
                "take another model, or filter nevertheless with `trust_judge`"
            )
        facts = {name: judge["trial"][name] for name in ("against", "figures")}
        trials.append({"name": judge["name"], "revision": judge["revision"], **facts})
    total = pc.add(*(answers[score].cast(pa.float32()) for score in ("fluency", "reasoning")))
    sums = pa.table({"variant_id": answers["variant_id"], "judged": total})
    means = sums.group_by("variant_id").aggregate([("judged", "mean")])
    means = means.rename_columns({"judged_mean": "judged"})
    file = out.path / "judged.parquet"
    write_table(file, means.set_column(1, "judged", means["judged"].cast(pa.float32())))
    annotators = sorted(answers["annotator"].unique().to_pylist())
    made_by: dict[str, Any] = {"annotators": annotators, "variants": len(means), "trials": trials}
    made_by["files"] = digests({path.name: path for path in files})
    return {JUDGED: SignalFile(file, made_by)}
