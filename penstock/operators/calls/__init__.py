"""Runs functions that call slow services: many rows at a time, and never in the subtask's own thread."""
