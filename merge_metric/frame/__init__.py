"""The path from predictions files to counts: read, join to a dataset, check, count."""
