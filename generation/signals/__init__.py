"""Signals: how good a replacement looks by frequency, form, article, grammar and likelihood.

`signal_columns` computes, joins and limits signals, and sums them up in `quality`; `grammar` fits
"a" and "an", and answers by tags and a dictionary; `label_flags` says where a label may not hold.
Signals that want a model are made beforehand, by `generation.model_signals`.
"""
