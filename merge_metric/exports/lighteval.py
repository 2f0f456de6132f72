"""Export tasks for lighteval: a module, the problems, and a script that runs them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from merge_dataset.commands.command_line import LimitSeeds, SampleSeed
from merge_dataset.files import write_json, write_table
from merge_dataset.schema import SPLITS
from merge_metric.exports.folders import read_split, shown
from merge_metric.exports.harness import (
    SETTINGS,
    LettersOption,
    PromptStart,
    Shots,
    Thresholds,
    prepare,
    settings_of,
    task_folder,
    template,
)
from merge_metric.exports.registry import (
    HARNESSES,
    Configs,
    Exported,
    Folder,
    Out,
    Overwrite,
    count,
    export,
)

if TYPE_CHECKING:
    import pyarrow as pa

MODULE: Final = "merge_nli_tasks"
RUNNER: Final = "run.py"

_DIGITS: Final = 16

_README: Final = """\
# MERGE-NLI in lighteval

```sh
python {out}/run.py --model MODEL --task {task}
PYTHONPATH={out} lighteval accelerate "model_name=MODEL" "{task}|0" --custom-tasks merge_nli_tasks
```

The script needs no network; lighteval's own command loads all built-in tasks, of which some
download data. Tasks: {tasks}. Each asks a model for the letter of the label and reports
seed-variant accuracy (`sv@CT`) and its kin, computed in each subsample and averaged, as
`merge-nli score` does.

- The problems are copied into `data/`. A part of them: export again with `--limit-seeds`.
  lighteval's `--max-samples` cuts seeds and is refused at the end.
- Few-shot examples stand before every question; leave the number after `|` at 0. Where the
  tokenizer has a chat template lighteval uses it, with examples and question as one message
  (`--no-chat-template` of the script). `merge-nli predict` gives every example a turn of its own.
- lighteval gives no intervals for these figures, `merge-nli score` does. The details that it writes
  have a row of a predictions file for every problem, in the column `metric` under `merge_nli`.
- `merge-nli predict` counts a letter with and without a space before it, where the tokenizer has
  both after "Answer:". This task counts {letters}. lighteval tokenizes a letter by itself:
  with a tokenizer that puts a space before every text the letters are not those of the prompt.

The code here is under Apache-2.0; problems and examples are under their source's licence.
"""


@export("lighteval", panel=HARNESSES, extra="predict")
def export_lighteval(
    folder: Folder = Path("merge-nli"),
    out: Out = Path("merge-nli-lighteval"),
    config: Configs = None,
    shots: Shots = "exc",
    prompt_start: PromptStart = "",
    letters: LettersOption = "spaced",
    ct: Thresholds = None,
    limit_seeds: LimitSeeds = None,
    rng_seed: SampleSeed = 0,
    overwrite: Overwrite = False,
) -> Exported:
    """Tasks for lighteval (0.13.0).

    A folder with the problems, a module for --custom-tasks, and a script that runs it
    without the network. It needs nothing of this package.

    \b
    Examples:
      merge-nli export lighteval merge-nli --config snli --out tasks/lighteval

    \b
      merge-nli export lighteval merge-nli --shots mix --limit-seeds 500
    """  # \b is a mark of click: keep the lines that follow
    tasks = prepare(
        folder, out, config, shots=shots, prompt_start=prompt_start, letters=letters, ct=ct
    )
    names = [f"merge_nli_{config}" for config in tasks.prompts]
    readme = _README.format(
        out=shown(out),
        task=names[0],
        tasks=", ".join(f"`{name}`" for name in names),
        letters="those after a space" if letters == "spaced" else "both",
    )
    with task_folder(out, tasks, "lighteval", readme, overwrite=overwrite) as partial:
        problems = {
            config: problems_of(folder, config, limit_seeds=limit_seeds, rng_seed=rng_seed)
            for config in tasks.prompts
        }
        settings = settings_of(tasks)
        # A digest of problems and prompts, independent of the dataset's place.
        told = {name: value for name, value in settings.items() if name != "dataset"}
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
        for name, rows in problems.items():
            digest.update(json.dumps([name, rows.to_pydict()]).encode())
        data = f"data/{digest.hexdigest()[:_DIGITS]}"
        _write_data(partial / data, problems)
        write_json(partial / SETTINGS, settings | {"data": data})
        for name, source in ((f"{MODULE}.py", "lighteval_tasks.py"), (RUNNER, "lighteval_run.py")):
            (partial / name).write_text(template(source), encoding="utf-8")
    return Exported(
        out,
        {"module": MODULE, "tasks": names},
        f"{out}: {count(names, 'task')}: {', '.join(names)}",
        f"python {out / RUNNER} --model MODEL --task {names[0]}",
    )


def problems_of(
    folder: Path, config: str, *, limit_seeds: int | None = None, rng_seed: int = 0
) -> pa.Table:
    """Read seeds, then variants, in the columns of `answers.load_problems`."""
    import pyarrow as pa

    from merge_metric.exports.task_answers import COLUMNS, sample_seeds
    from merge_metric.runs.texts import TEXT_DIGEST, text_digests, to_hex

    tables = [
        table.select(COLUMNS) for split in SPLITS for table in read_split(folder, config, split)
    ]
    rows = pa.concat_tables(tables)
    seeds = rows["seed_id"].to_pylist()
    if limit_seeds is not None:
        chosen = sample_seeds(seeds, limit_seeds, rng_seed=rng_seed)
        rows = rows.filter(pa.array([seed in chosen for seed in seeds]))
        seeds = rows["seed_id"].to_pylist()
    counts = Counter(seeds)
    rows = rows.append_column(TEXT_DIGEST, to_hex(text_digests(rows, ("premise", "hypothesis"))))
    return rows.append_column("n_problems", pa.array([counts[seed] for seed in seeds], pa.int64()))


def _write_data(folder: Path, problems: dict[str, pa.Table]) -> None:
    """Write a dataset of one split per configuration, in the form that `load_dataset` reads."""
    import yaml

    folder.mkdir(parents=True)
    configs = []
    for config, rows in problems.items():
        name = f"{config}.parquet"
        write_table(folder / name, rows.replace_schema_metadata(None))
        files = [{"split": "problems", "path": name}]
        configs.append({"config_name": config, "data_files": files})
    header = yaml.safe_dump({"configs": configs}, sort_keys=False)
    (folder / "README.md").write_text(f"---\n{header}---\n", encoding="utf-8")
