"""The values that the protocol speaks in: elements, frames, messages, metadata, log entries, keys."""
