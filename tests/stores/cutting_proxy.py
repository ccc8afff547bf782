"""Stands between a client and a server of TCP: it cuts connections whose answer the client then never gets."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class CuttingProxy:
    """Runs the proxy on a free port of the loopback interface."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._mark = b""
        self._left = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self._listener.close()

    @property
    def left(self) -> int:
        """Return how many connections are still to be cut."""
        return self._left

    def cut(self, mark: bytes, times: int) -> None:
        """Let the server get the next `times` requests that contain `mark`, and cut their connections then."""
        self._mark, self._left = mark, times

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target_port))
                is_cut = threading.Event()
                threading.Thread(target=self._to_server, args=(client, server, is_cut), daemon=True).start()
                threading.Thread(target=self._to_client, args=(client, server, is_cut), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket, is_cut: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                with self._lock:
                    if self._left and self._mark in data:
                        self._left -= 1
                        is_cut.set()
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _to_client(self, client: socket.socket, server: socket.socket, is_cut: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while (data := server.recv(65536)) and not is_cut.is_set():
                client.sendall(data)
        for end in (client, server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
