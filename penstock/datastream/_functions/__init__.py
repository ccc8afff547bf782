"""Defines the functions of `penstock.datastream.functions`; programs import them from there."""
