"""Commands of the generation: on runs of the masked LMs, and `paraphrase`."""
