"""Formats of files, in PyFlink's modules."""
