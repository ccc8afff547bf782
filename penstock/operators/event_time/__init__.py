"""Event time in a subtask: how far it is, what generates it, and the timers that wait for it."""
