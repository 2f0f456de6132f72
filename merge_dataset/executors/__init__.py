"""Executors: run work in this process, in several, on Ray or on Slurm.

They are below `generation` and `merge_metric`, as both deal work to tasks. `calls.run_units`
deals units of work to tasks, which an executor of `plan.EXECUTORS` runs (`worker`, `clusters`);
`calls.call_tasks` keeps what the tasks say until a command has made use of it; `calls.map_blocks`
maps a function over blocks of problems on this machine.
"""
