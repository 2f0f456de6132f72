"""MERGE-NLI as a dataset: a run folder → Parquet and card → `load_dataset`.

See `export.export`, `check.check`, `register.register` and `merge_nli.MergeNli`.
"""
