"""Runs one job in the driver: the loop, the log, the terminal, the client that a program gets."""
