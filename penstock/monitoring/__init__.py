"""Provides what can be seen of a running job."""
