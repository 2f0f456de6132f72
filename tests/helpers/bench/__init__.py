"""Tools of `make bench`: contenders in processes of their own, rows, one table."""
