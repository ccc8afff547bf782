"""Represents a connection as the protocol sees it: in order, but urgent frames go ahead of what has not left yet. They
never pass an aligned barrier of their channel, nor each other.
"""

from __future__ import annotations

from penstock.protocol.values.frames import AlignedBarrier, Frame


class Wire:
    def __init__(self) -> None:
        self._frames: list[Frame] = []

    def put(self, frame: Frame) -> None:
        place = len(self._frames)
        if frame.urgent:
            ahead = [
                i
                for i, f in enumerate(self._frames)
                if f.channel == frame.channel and (f.urgent or isinstance(f, AlignedBarrier))
            ]
            place = ahead[-1] + 1 if ahead else 0
        self._frames.insert(place, frame)

    def take(self) -> Frame:
        return self._frames.pop(0)

    def __len__(self) -> int:
        return len(self._frames)
