"""Runs the tasks beside this file in lighteval, without loading its own tasks.

Some of those download data when they are loaded, which lighteval's command always does.

    python run.py --model MODEL --task merge_nli_snli
"""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


def main() -> None:
    """Evaluate, print the table, write the results."""
    options = _options()
    from lighteval.logging.evaluation_tracker import EvaluationTracker
    from lighteval.models.transformers.transformers_model import TransformersModelConfig
    from lighteval.pipeline import ParallelismManager, Pipeline, PipelineParameters
    from lighteval.tasks.registry import Registry

    for loader in ("_load_from_files", "_load_from_subdirs"):
        setattr(Registry, loader, staticmethod(lambda *_: {}))
    settings = {
        "model_name": options.model,
        "device": options.device or _device(),
        "dtype": options.dtype,
        "batch_size": options.batch_size,
        "add_special_tokens": options.special_tokens,
    }
    if options.chat_template is not None:  # lighteval does not take its own default
        settings["override_chat_template"] = options.chat_template
    pipeline = Pipeline(
        tasks=",".join(f"{task}|0" for task in options.task),
        pipeline_parameters=PipelineParameters(
            launcher_type=ParallelismManager.ACCELERATE, custom_tasks_directory="merge_nli_tasks"
        ),
        evaluation_tracker=EvaluationTracker(output_dir=options.out, save_details=True),
        model_config=TransformersModelConfig(**settings),
    )
    pipeline.evaluate()
    pipeline.show_results()
    pipeline.save_and_push_results()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="folder or Hub id")
    parser.add_argument("--task", required=True, action="append", help="may be repeated")
    parser.add_argument("--out", default="lighteval-results", help="folder for results")
    parser.add_argument("--device", help="cpu, cuda; by default found out")
    parser.add_argument("--dtype", help="e.g. float32; by default the model's own")
    parser.add_argument("--batch-size", type=int, help="by default found out")
    parser.add_argument(
        "--chat-template",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="by default where the tokenizer has one",
    )
    parser.add_argument(
        "--special-tokens",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="the tokenizer's own before a text; leave out where the prompt has a start",
    )
    return parser.parse_args()


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


if __name__ == "__main__":
    main()
