"""The Space of the metric, uploaded as it is."""
