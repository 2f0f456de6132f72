"""Variants: candidates, filters, set algebra, sampling, and the rows of the dataset."""
