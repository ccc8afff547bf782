"""WindowedStream, which is defined beside the other streams."""

from penstock.datastream.data_stream import WindowedStream

__all__ = ["WindowedStream"]
