"""Implements the public streams; nothing here is for programs to import."""
