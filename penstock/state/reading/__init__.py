"""Reads the state in checkpoints and savepoints, as Arrow, without the job's code."""
