"""The checkpoint protocol, sans-IO: events in, effects out.

Nothing here knows a clock, thread, socket, file, random number, pyarrow or pyspark. Time arrives in events.
"""
