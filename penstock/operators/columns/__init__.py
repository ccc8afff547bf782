"""Implements operators that work on whole columns."""
