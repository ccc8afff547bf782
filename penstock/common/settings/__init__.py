"""Reads settings that take more than one option, and options from outside of the program."""
