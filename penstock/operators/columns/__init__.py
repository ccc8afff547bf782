"""Operators that work on whole columns."""
