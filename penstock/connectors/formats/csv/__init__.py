"""Implements CSV in files and in messages."""
