"""Keeps keyed state in arrays, for operators that work on whole batches."""
