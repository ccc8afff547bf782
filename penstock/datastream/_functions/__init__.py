"""Defines what `penstock.datastream.functions` offers; programs import it from there."""
