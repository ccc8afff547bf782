"""Decides about checkpoints in the driver: when to trigger one, whether it is complete, how many may fail."""
