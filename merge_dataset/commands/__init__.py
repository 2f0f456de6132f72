"""The commands of this package, one module for each group."""
