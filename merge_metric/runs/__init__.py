"""The one road from predictions files to counts, on which all figures are based.

`predictions` reads the file, `relations` joins it to a dataset folder in the table engine,
`counting` counts there, and `run` checks what contradicts the dataset and makes a `Run` of each
model and configuration.
"""
