"""Variants: from the stores' suggestions to the rows of the dataset.

In the order of the path: `candidates` (filters without a tagger), `set_algebra` (equation 1 on
columns), `validation` (these together, and D8), `perturbations` (all that a row edits),
`adaptation` (further edits, families and articles), `optional_columns` and `sampling` (also of
several words at once). `words` has casing and numbers of words, `funnel` the counts and exclusions.
"""
