"""Implements sources that make up their rows."""
