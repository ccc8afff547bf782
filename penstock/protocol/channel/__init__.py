"""A channel between two subtasks: its two ends, how much it may hold, and the event time that comes out."""
