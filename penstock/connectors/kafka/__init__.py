"""Implements Kafka as a source and a sink, which `penstock.datastream.connectors.kafka` offers."""
