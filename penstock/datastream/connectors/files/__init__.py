"""Files as sources and sinks: what `penstock.datastream.connectors.file_system` is made of."""
