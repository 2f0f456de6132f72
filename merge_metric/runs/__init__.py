"""From predictions files and datasets to runs, which all figures start from."""
