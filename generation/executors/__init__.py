"""Where work runs: this process, several, Ray, Slurm."""
