"""Checks what must hold in every run."""
