"""Decides the life of a job: its slots, its generations, and whether it restarts after a failure."""
