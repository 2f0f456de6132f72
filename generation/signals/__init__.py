"""Signals: how good a replacement looks by frequency, form, article and likelihood.

`signal_columns` computes, joins and limits them; `articles` fits "a" and "an". Those that want a
model are made beforehand, by `generation.model_signals`.
"""
