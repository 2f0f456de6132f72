"""Predictions files and datasets → runs, which all figures start from."""
