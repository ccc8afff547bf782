"""Implements formats: each has a door for files, one for messages, or both."""
