"""Implements a subtask's input: its channels, the layers that a restore put before them, and the gate that picks
one.
"""
