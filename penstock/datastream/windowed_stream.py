"""Offers WindowedStream, which is defined with the other streams."""

from penstock.datastream.data_stream import WindowedStream

__all__ = ["WindowedStream"]
