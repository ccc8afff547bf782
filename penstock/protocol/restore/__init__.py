"""What a restore at another parallelism decides: who gets what, and in which order it is read."""
