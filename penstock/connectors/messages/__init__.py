"""Decodes and encodes single messages, as brokers keep them, in columns."""
