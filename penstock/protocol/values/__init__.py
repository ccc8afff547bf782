"""Defines the protocol's values: elements, frames, messages, metadata, log entries, keys."""
