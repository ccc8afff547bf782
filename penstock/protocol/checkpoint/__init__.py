"""What the driver decides about checkpoints: when to trigger one, whether it is complete, how many may fail."""
