"""Keeps keyed state as Python objects in memory (Flink's `hashmap`)."""
