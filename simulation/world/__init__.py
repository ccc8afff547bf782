"""Simulates what processes run on: a clock, chance, stores, disks, places, brokers, and the trace of what happens."""
