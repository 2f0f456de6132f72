"""Exports of a dataset folder for other programs; `registry` has the decorator for them."""
