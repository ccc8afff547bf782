"""Decides what the driver of a job does: its life, its checkpoints, its recoveries, its commits and its end."""
