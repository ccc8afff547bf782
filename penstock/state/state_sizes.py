"""Holds the sizes of pieces of state, and the limits up to which changes are tracked, of all backends.

A simulated run makes the sizes smaller by `Limits`.
"""

ENTRIES_PER_BATCH = 2048
"""The number of entries that a snapshot's writer encodes at a time. Between two batches it holds nothing that the
stream waits for."""
RESTORED_ENTRIES_PER_BATCH = 4096
"""The number of restored entries that are loaded into a database at a time."""
BYTES_PER_RANGE = 16 * 1024 * 1024
"""A range that has about this size is closed, and the next one begins, so that a restore reads in bounded pieces."""
CHANGED_KEYS_MAX = 1_000_000
"""If more keys have changed, or were removed, since a checkpoint, the next one stores everything."""
CONSOLIDATED_BYTES_MIN = 16 * 1024 * 1024
"""A chain that begins with less is stored whole by a checkpoint: that takes no longer than a few ranges."""
