"""Turns a declared program into a job graph."""
