"""Implements the source that reads several sources, one after the other."""
