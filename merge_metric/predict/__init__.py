"""Models → predictions files.

A model is anything with the two methods of `run.PairModel`; `run.predict` asks it about
each distinct pair of a table of problems, and writes its answers.
"""
