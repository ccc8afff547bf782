"""Decides the response of one subtask to barriers."""
