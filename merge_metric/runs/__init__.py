"""The one road from predictions files to counts: read, joined to a dataset, checked, counted."""
