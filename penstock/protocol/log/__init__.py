"""Decides about the job's log: its owner, the entries that count, and the objects that may be deleted."""
