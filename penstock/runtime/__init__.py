"""Runs the loops that feed events into the protocol and execute its effects."""
