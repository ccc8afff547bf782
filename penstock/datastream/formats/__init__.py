"""Offers formats of files in PyFlink's modules."""
