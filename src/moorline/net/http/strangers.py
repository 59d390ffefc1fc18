"""Room: net/http. WebSockets whose client has not said who it is: a part of the places, for all of them.

    opened ──► a stranger ──► in                     it has proven who it is, or is let in without
                    └──────► cut: too many are here, and it has been one for longest

A WebSocket stays at the expense of the node's connections, and a stranger may take its time. So that those
who say nothing keep out nobody who does, whoever has been a stranger for longest makes room for the next one;
but for one whose proof is being looked at, since that takes our time and not its own.
"""

from collections.abc import Callable

from moorline.limits import WEBSOCKET_STRANGERS_DIVISOR
from moorline.net.http.peer import Peer
from moorline.net.http.websocket import WebSocket


class Strangers:
    """Of one port."""

    def __init__(
        self,
        places: Callable[[], int],
        is_proving: Callable[[Peer], bool],
        noted: Callable[[str], None],
    ) -> None:
        """`places` are those at whose expense they stay."""
        self._places = places
        self._is_proving = is_proving
        self._noted = noted
        self._here: dict[WebSocket, None] = {}
        """In the order in which they came."""

    def __len__(self) -> int:
        return len(self._here)

    def came(self, socket: WebSocket) -> None:
        """One that is open, and not in yet."""
        self._here[socket] = None
        socket.peer.at_end(lambda: self.left(socket))
        if len(self._here) <= max(1, self._places() // WEBSOCKET_STRANGERS_DIVISOR):
            return
        oldest = next((one for one in self._here if not self._is_proving(one.peer)), None)
        if oldest is not None:
            self._noted("WebSockets that prove nothing are closed: others want their places")
            oldest.abort()

    def left(self, socket: WebSocket) -> None:
        """It is in, or gone."""
        self._here.pop(socket, None)
