"""Assigns event times to windows: one file for each kind of window, and the protocol that all of them implement."""
