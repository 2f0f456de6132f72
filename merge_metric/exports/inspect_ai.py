"""Export a task for Inspect: a file for `inspect eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from merge_dataset.files import write_json
from merge_metric.exports.folders import shown
from merge_metric.exports.harness import (
    SETTINGS,
    Hub,
    Revision,
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
    export,
)

MODULE: Final = "merge_nli"

_README: Final = """\
# MERGE-NLI in Inspect

```sh
inspect eval {out}/merge_nli.py -T config={config} --model openai/MODEL
```

Needs `datasets` beside inspect-ai. Configurations: {configs}. The task asks a chat model for the
letter of the label, every example a turn, reads the log-probabilities of the first token, and
reports seed-variant accuracy (`sv@CT`) and its kin, computed in each subsample and averaged, as
`merge-nli score` does.

- The provider must give `top_logprobs` (OpenAI-compatible servers such as llama.cpp's and vLLM, or
  `hf/`). A letter that is not among the 20 most probable tokens has probability 0; where none is,
  the run stops, or with `-T missing_letters=uniform` labels are equally probable.
- A part of the data: `-T limit_seeds=100` takes 100 seeds of each source with all their variants,
  the same as `merge-nli predict --limit-seeds 100`. `--limit` cuts seeds: figures are those of the
  whole ones, and `n_seeds_left_out` counts the others.
- The same model in `merge-nli predict`: `--base-url … --chat-template` for a server,
  `--chat-template` for a local model (Inspect: `--model hf/local -M model_path=…`).
- The model's temperature must leave log-probabilities as they are: do not set one.
- Inspect gives no intervals for these figures, `merge-nli score` does. The metadata of every
  sample's score have a row of a predictions file, called `answer`.

The code here is under Apache-2.0; the texts of the examples are under their source's licence.
"""


@export("inspect", panel=HARNESSES, extra="predict")
def export_inspect(
    folder: Folder = Path("merge-nli"),
    out: Out = Path("merge-nli-inspect"),
    config: Configs = None,
    shots: Shots = "exc",
    ct: Thresholds = None,
    hub: Hub = None,
    revision: Revision = None,
    overwrite: Overwrite = False,
) -> Exported:
    """A task for Inspect (inspect-ai 0.3.285).

    A folder with a task file for inspect eval, which asks chat models, examples as turns,
    and reads the letters' log-probabilities. It needs nothing of this package.

    \b
    Examples:
      merge-nli export inspect merge-nli --config snli --out tasks/inspect
    """  # \b is a mark of click: keep the lines that follow
    tasks = prepare(
        folder, out, config, shots=shots, letters="both", ct=ct, hub=hub, revision=revision
    )
    configs = list(tasks.prompts)
    readme = _README.format(
        out=shown(out), config=configs[0], configs=", ".join(f"`{config}`" for config in configs)
    )
    with task_folder(out, tasks, "inspect", readme, overwrite=overwrite) as partial:
        write_json(partial / SETTINGS, settings_of(tasks))
        text = template("inspect_ai.py")
        (partial / f"{MODULE}.py").write_text(text, encoding="utf-8")
    return Exported(
        out,
        {"configurations": configs},
        f"{out}: a task for the configurations {', '.join(configs)}",
        f"inspect eval {out / MODULE}.py -T config={configs[0]} --model openai/MODEL",
    )
