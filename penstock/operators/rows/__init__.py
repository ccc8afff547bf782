"""Implements operators that call a function for each row."""
