"""Keyed state as Python objects in memory (Flink's `hashmap`)."""
