"""Implements messages of Avro, also with schemas of a registry."""
