"""Runs one plan: starts drivers, connects everything, and decides what follows the end of each."""
