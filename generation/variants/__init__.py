"""Variants: from the stores' suggestions to the rows of the dataset."""
