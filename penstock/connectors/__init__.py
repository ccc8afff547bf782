"""Implements sources and sinks. `penstock.datastream.connectors` offers them in PyFlink's modules."""
