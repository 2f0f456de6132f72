"""Signals of how good a replacement looks: frequency, form, article, likelihood."""
