"""Checks the invariants of every run."""
