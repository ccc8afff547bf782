"""Offers ConnectedStreams, which is defined with the other streams."""

from penstock.datastream._streams.connected import Key
from penstock.datastream.data_stream import ConnectedStreams

__all__ = ["ConnectedStreams", "Key"]
