"""Variants: from the stores' suggestions to the rows of the dataset.

In the order of the path: `candidates` (filters without a tagger), `set_algebra` (equation 1 on
columns), `context` (D8), `validation` (these together), `perturbations` (all that a row edits),
`adaptation` with `families` (further edits), `sampling`, `combinations` (several words at once),
`rows`, and `builder`, which takes a block of problems through all of it. `words` has casing and
numbers of words, `funnel` the counts and exclusions.
"""
