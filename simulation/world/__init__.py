"""Simulates the environment of processes: a clock, chance, stores, disks, places, brokers, and the trace of what
happens."""
