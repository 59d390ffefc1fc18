"""Room: net/http. What a client has sent and h11 has not taken yet.

h11 is given a head when it is whole, and of a body a piece at a time. So what a connection holds is counted
here, and a head is looked at as it was written: h11 reads some that other programs read otherwise (a line
that ends without CR, or goes on in the next one), and two that read one head in two ways can be played off
against each other by whoever writes it (RFC 9112, 2.2, 5.2 and 11.2).
"""

import re
from typing import Any, Final

import h11

from moorline.limits import HTTP_REQUEST_BYTES_MAX

_BREAK: Final = re.compile(rb"\r\n\r\n|(?<!\r)\n|\r\n[ \t]|\r[^\n]")
"""The end of a head, or what may not stand before it."""
_END: Final = b"\r\n\r\n"


class Intake:
    """Of one connection. What is wrong raises h11.RemoteProtocolError, as h11 does."""

    def __init__(self) -> None:
        self.h11 = _fresh()
        self._behind = bytearray()
        self._searched = 0
        """As far as no end of a head was found."""

    def __len__(self) -> int:
        return len(self._behind)

    def receive(self, data: bytes) -> None:
        self._behind += data

    def next_event(self) -> Any:
        """As h11 has it: an event, NEED_DATA or PAUSED."""
        if self.h11.their_state is h11.IDLE:
            head = self._head()
            if head is None:
                return h11.NEED_DATA
            self.h11.receive_data(head)
            return self.h11.next_event()
        event = self.h11.next_event()
        while event is h11.NEED_DATA and self._behind:
            self.h11.receive_data(self._taken(HTTP_REQUEST_BYTES_MAX))
            event = self.h11.next_event()
        return event

    def next_cycle(self) -> None:
        """The request is answered. What h11 has taken beyond its body is of the next one."""
        beyond, _ = self.h11.trailing_data
        if beyond:
            self._behind[:0] = beyond
            self.h11 = _fresh()
        else:
            self.h11.start_next_cycle()

    def rest(self) -> bytes:
        """All that came behind the request: it is no HTTP any more."""
        return self.h11.trailing_data[0] + self._taken(len(self._behind))

    def _head(self) -> bytes | None:
        """A whole one, if it has come."""
        if self._behind and self._behind[0] <= 0x20:
            # TLS, for one: no line will ever end in it.
            raise h11.RemoteProtocolError("illegal request line")
        found = _BREAK.search(self._behind, self._searched)
        size = len(self._behind) if found is None else found.end()
        if size > HTTP_REQUEST_BYTES_MAX:
            raise h11.RemoteProtocolError("the head is too long", error_status_hint=431)
        if found is None:
            self._searched = max(0, size - len(_END) + 1)
            return None
        if found[0] != _END:
            raise h11.RemoteProtocolError("a line of the head ends or goes on as none may")
        return self._taken(size)

    def _taken(self, size: int) -> bytes:
        taken = bytes(self._behind[:size])
        del self._behind[:size]
        self._searched = 0
        return taken


def _fresh() -> h11.Connection:
    return h11.Connection(h11.SERVER, max_incomplete_event_size=HTTP_REQUEST_BYTES_MAX)
