"""The one road from predictions files to counts, on which all figures are based.

`predictions` is the file, `join` puts it beside a dataset folder, `run` makes a `Run` of each model
and configuration.
"""
