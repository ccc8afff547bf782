"""Joins the rows of two keyed streams."""
