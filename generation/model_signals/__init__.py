"""The command `signals`: what a model says about the texts of a finished build.

`pll_changes` scores them with a masked or causal LM, `nonce_probe` asks a model about seeds with
made-up words. Both work on a `Built`; `generation.signals` reads what they leave for later builds.
"""
