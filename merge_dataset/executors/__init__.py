"""Executors: run work in this process, in several, on Ray or on Slurm."""
