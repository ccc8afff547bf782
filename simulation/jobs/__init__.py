"""Declares random jobs step by step, with their functions, sources and sinks, and computes what has to come out."""
