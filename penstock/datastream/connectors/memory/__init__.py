"""Offers sources and sinks that hold their rows in memory."""
