"""Implements files as sources and sinks, which `penstock.datastream.connectors.file_system` offers."""
