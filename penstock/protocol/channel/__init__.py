"""Implements a channel between two subtasks: its two ends, how much it may hold, and its event time."""
