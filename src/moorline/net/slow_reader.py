"""Room: net. A slow reader: whether a peer that says nothing takes what waits for it, or is to be cut.

One that takes nothing is silent, and ends as every silent peer does (core/link.py); one that takes some of it
lives. While it has not taken enough, nothing more is read from it (`pause_writing` in net/session.py), and
nothing more is delivered to it (sessions/delivery_host.py).
"""

import asyncio
import socket
import struct
import sys
from typing import Final

# Other systems have the name too, with another struct behind it.
_TCP_INFO: Final = getattr(socket, "TCP_INFO", None) if sys.platform == "linux" else None
_ACKNOWLEDGED_AND_UNSENT: Final = struct.Struct("=120xQ16xI")
"""Of Linux's `struct tcp_info`: tcpi_bytes_acked, and tcpi_notsent_bytes."""


class Outflow:
    """Whether the peer takes what waits for it: a sign of life of one that reads and says nothing.

    A few bytes that leave are no such sign. The peer's kernel takes them for a process that hangs, until
    its buffer is full; so only what moves while more is waiting counts. The kernel is asked, since under
    TLS a transport does not know what waits below it. Where it cannot be asked the transport's own
    buffer must do.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._was_waiting = False
        self._taken_bytes = 0

    def has_moved(self) -> bool:
        """Whether something of what waited at the last look has been taken since."""
        waiting_bytes = self._transport.get_write_buffer_size()
        # As the buffer shrinks, this grows.
        taken_bytes = -waiting_bytes
        found = self._asked_of_kernel()
        if found is not None:
            taken_bytes, unsent_bytes = found
            waiting_bytes += unsent_bytes
        has_moved = self._was_waiting and taken_bytes > self._taken_bytes
        self._was_waiting, self._taken_bytes = waiting_bytes > 0, taken_bytes
        return has_moved

    def _asked_of_kernel(self) -> tuple[int, int] | None:
        """Bytes that the peer has acknowledged, and bytes that it has no room for yet."""
        known = self._transport.get_extra_info("socket")
        if _TCP_INFO is None or known is None:
            return None
        try:
            info = known.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _ACKNOWLEDGED_AND_UNSENT.size)
            acknowledged_bytes, unsent_bytes = _ACKNOWLEDGED_AND_UNSENT.unpack(info)
        except (OSError, struct.error):  # closed, not TCP, or an old kernel with a shorter struct
            return None
        return acknowledged_bytes, unsent_bytes
