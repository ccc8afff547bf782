"""Decides restores at another parallelism: who gets what, and in which order it is read."""
