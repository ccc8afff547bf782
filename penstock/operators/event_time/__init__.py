"""Implements event time in a subtask: its progress, its generators, and the timers that wait for it."""
