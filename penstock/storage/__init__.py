"""Stores checkpoints: an object store, the layout of a job's directory in it, and the content of its files."""
