"""Implements the `penstock` command."""
