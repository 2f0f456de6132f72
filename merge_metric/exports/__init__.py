"""Exports to other harnesses and formats: `merge-nli export`, to which each module adds its own."""

# Importing a module registers its commands, in the order of the help.
# isort: off
from merge_metric.exports import harness_tasks, croissant, flat, every_eval_ever

# isort: on
from merge_metric.exports.registry import app as export_app

__all__ = ["croissant", "every_eval_ever", "export_app", "flat", "harness_tasks"]
