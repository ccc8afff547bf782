"""Implements a subtask's part in checkpoints: what it captures, who writes it, and what a restore returns to it."""
