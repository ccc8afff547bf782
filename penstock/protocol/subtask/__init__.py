"""Decides what one subtask does when barriers come."""
