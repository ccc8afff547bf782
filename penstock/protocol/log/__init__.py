"""Decides about the job's log: who may append to it, what counts, and what may be deleted."""
