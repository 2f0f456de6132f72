"""Signals: how good a replacement looks by frequency, form, article, grammar and likelihood.

`signal_columns` computes, joins and limits them; `articles` fits "a" and "an", `grammar` answers by
tags and a dictionary, `quality` sums them up; `label_flags` says where a label may not hold. Those
that want a model are made beforehand, by `generation.model_signals`.
"""
