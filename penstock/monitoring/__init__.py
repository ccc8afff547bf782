"""Holds what can be seen of a job that runs."""
