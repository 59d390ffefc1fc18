"""A node behind a door: connections go through a port that stays, while the node behind it comes and goes.

What passes is counted, so that a test can let a node die in the middle of what Spark reads or writes.
"""

import contextlib
import socket
import threading
from collections.abc import Callable

PIECE_BYTES = 16_384


class Door:
    """Passes bytes on to the node at `address`; without one, connections end at once."""

    def __init__(self, address: str) -> None:
        self.accepted = 0
        """Connections that came, whether or not they got through."""
        self._target: tuple[str, int] | None = None
        self.open(address)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._left = 0
        self._then: Callable[[], None] | None = None
        self._is_counting_in = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"

    def open(self, address: str) -> None:
        host, _, port = address.partition("://")[2].rpartition(":")
        self._target = host, int(port)

    def shut(self) -> None:
        self._target = None

    def after(self, count: int, then: Callable[[], None], *, towards_node: bool = False) -> None:
        """Once, when so many more bytes have come that way, and before the last of them goes on."""
        with self._lock:
            self._left, self._then, self._is_counting_in = count, then, towards_node

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                target = self._target
                try:
                    if target is None:
                        raise ConnectionRefusedError
                    node = socket.create_connection(target)
                except OSError:
                    client.close()
                    continue
                for ends in ((client, node), (node, client)):
                    arguments = (*ends, ends[1] is node)
                    threading.Thread(target=self._pass_on, args=arguments, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_in: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                self._count(len(data), is_in=is_in)
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _count(self, count: int, *, is_in: bool) -> None:
        with self._lock:
            if self._then is None or is_in != self._is_counting_in:
                return
            self._left -= count
            if self._left > 0:
                return
            then, self._then = self._then, None
        then()

    def close(self) -> None:
        self.shut()
        # A thread that waits in accept keeps the port; a shutdown wakes it.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
