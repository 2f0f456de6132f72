"""What makes a dataset folder good."""
