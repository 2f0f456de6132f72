"""Models: everything that loads weights or asks an endpoint."""
