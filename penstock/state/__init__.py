"""Keeps keyed state: backends, codecs, and snapshots that do not stop the stream."""
