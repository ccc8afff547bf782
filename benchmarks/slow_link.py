"""A TCP proxy that passes so many bytes per second and no more: a store behind a network of that speed."""

from __future__ import annotations

import socket
import threading
import time
from types import TracebackType

_PIECE_BYTES = 256 * 1024
_BURST_S = 0.02
"""So much of a second may pass at once."""


class SlowLink:
    """Listens on a free port of the loopback interface, and connects each client to `target_port`. All connections
    share one rate, in both directions together."""

    def __init__(self, target_port: int, bytes_per_s: float) -> None:
        self._target_port = target_port
        self._bytes_per_s = bytes_per_s
        self._free_at_s = 0.0
        """When all bytes that were let through so far have passed. Under the lock."""
        self._lock = threading.Lock()
        self.passed_bytes = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> SlowLink:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:
                return
            for source, sink in ((client, server), (server, client)):
                sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        piece = memoryview(bytearray(_PIECE_BYTES))
        try:
            while length := source.recv_into(piece):
                self._wait_for(length)
                sink.sendall(piece[:length])
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _wait_for(self, length: int) -> None:
        with self._lock:
            now_s = time.monotonic()
            self._free_at_s = max(self._free_at_s, now_s - _BURST_S) + length / self._bytes_per_s
            self.passed_bytes += length
            pause_s = self._free_at_s - now_s
        if pause_s > 0:
            time.sleep(pause_s)
