"""The dataset card."""
