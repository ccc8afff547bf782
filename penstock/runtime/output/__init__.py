"""Implements a subtask's output: which consumer a row goes to, and what waits until there is credit."""
