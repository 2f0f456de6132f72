"""What `make bench` measures with: contenders in processes of their own, rows, one table."""
