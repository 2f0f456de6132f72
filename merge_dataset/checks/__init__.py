"""Checks of a dataset folder: files, columns, rows, and the card.

`run.check_dataset` runs all that registered themselves by the decorator of `registry`.
"""
