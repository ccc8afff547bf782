"""Decides everything about checkpoints, restores and the life of a job, sans-IO: events in, effects out.

Nothing here knows a clock, thread, socket, file, random number, pyarrow or pyspark. Time arrives in events.
"""
