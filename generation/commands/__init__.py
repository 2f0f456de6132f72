"""Commands of the package generation: of runs with masked LMs, `paraphrase` and `models`."""
