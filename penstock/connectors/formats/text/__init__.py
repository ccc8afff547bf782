"""Implements lines of text in files."""
