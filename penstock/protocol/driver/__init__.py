"""Decides for the driver of a job: its life, its checkpoints, its recoveries, its commits and its end."""
