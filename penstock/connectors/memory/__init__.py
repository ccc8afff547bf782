"""Implements sources and sinks that need no other system: their rows are in memory, printed, or dropped."""
