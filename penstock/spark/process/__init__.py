"""Runs the process of a slot: PySpark's daemon, the task, its output and its end."""
