"""Signals: how good a replacement looks by frequency, form, article, grammar and likelihood."""
