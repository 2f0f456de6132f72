"""Paraphrases of hypotheses: another class of variants, made by text generators."""
