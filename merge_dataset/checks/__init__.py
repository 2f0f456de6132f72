"""Checks of a dataset folder: files, columns, rows, and the card.

`run.check_dataset` runs all that registered themselves (`registry`). To add one, write a
function with a decorator of `registry` in a module here; a new module is imported in `run`.
"""
