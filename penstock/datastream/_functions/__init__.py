"""The definitions behind `penstock.datastream.functions`; programs import them from there."""
