"""The command `signals`: what a model says about the texts of a finished build."""
