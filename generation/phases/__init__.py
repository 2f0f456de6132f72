"""The two phases of a run, and the order of their steps."""
