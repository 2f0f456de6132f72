"""A dataset folder → what others read: harnesses' tasks, metadata, flat files.

`flat` and `croissant` write files and metadata; `harness_tasks` writes tasks from `templates/`;
`task_answers` goes with tasks and scores.
`registry` says how an export registers itself, reads datasets and writes exports whole.
"""
