"""Runs one subtask: its steps, its mail, how large a slice it takes, and its life in one generation."""
