"""Turns what was declared into what will run."""
