"""A model's predictions → figures: the predictions file, and its scores against a dataset.

See `predictions.read_predictions`, `score.score_file` and, for the figures themselves,
`seed_variant_accuracy`.
"""
