"""Signals: how good a replacement looks by frequency, form, article and likelihood.

`signal_columns` computes, joins and limits them; `articles` fits "a" and "an"; `likelihoods` scores
texts with a masked LM and keeps the scores (`generation.pll_changes` is the command).
"""
