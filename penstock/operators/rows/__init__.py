"""Operators that call a function for each row."""
