"""Draws, reads, runs, and shrinks plans: a run as data."""
