"""The paper's tables and figures from predictions files.

Each analysis is a function of runs (see `merge_metric.runs.run`) that gives a table (`tables`),
and a function that draws that table. `catalogue` lists them, `analyse` reads files for them.
"""
