"""Room: net/http. Who asks on one connection: a login that stays as long as each request brings the same.

A request that brings nothing else than the one before is asked by the same peer, without a new proof. With
anything else that peer ends first, so that never two of them are of one connection.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from moorline.net.http.head import Head
from moorline.net.http.logins import Brought, Facts, Logins
from moorline.net.http.messages import Request, Response
from moorline.net.http.peer import Peer

Entering = Peer | Response | Coroutine[Any, Any, Peer | Response]
"""At once, refused, or only when the proof is checked."""


class Entrance:
    def __init__(self, logins: Logins, ended: Callable[[str, str], None]) -> None:
        """`ended` hears the code and text with which rights or files ended the login."""
        self.facts = Facts("", "", False)
        """Of the transport, once there is one."""
        self._logins = logins
        self._ended = ended
        self._peer: Peer | None = None
        self._brought: tuple[bytes, bool, bool, Facts] | None = None

    def nobody(self) -> Peer:
        """Whoever asks where no login is wanted."""
        return self._logins.nobody(self.facts)

    def asker(self, head: Head) -> Peer:
        """Whoever asks a route that takes a proof by itself."""
        assert head.judged is not None
        assert head.asking is not None
        assert head.facts is not None
        return self._logins.asker(head.facts, head.judged, head.asking)

    def login(self, head: Head, request: Request, *, is_later: bool) -> Entering:
        """The peer of the last request, if this one brings the same; or else a new login."""
        judged, asking, upgrade, facts = head.judged, head.asking, head.upgrade, head.facts
        assert judged is not None
        assert asking is not None
        assert facts is not None
        brought = Brought.by_headers(request.headers, upgrade.token if upgrade is not None else "")
        # A proxy asks for one client and then for another by the same connection.
        mark = brought.mark(), judged.is_page, asking.is_forwarded, facts
        peer = self._peer
        if peer is not None and peer.is_open and peer.is_entered and mark == self._brought:
            return peer
        self.end()
        self._brought = mark
        return self._logins.login(facts, judged, asking, brought, is_later=is_later)

    def keep(self, peer: Peer) -> None:
        self._peer = peer
        peer.cut = self._ended

    def take(self) -> Peer:
        """It is a WebSocket's from now on, which ends it."""
        peer, self._peer = self._peer, None
        assert peer is not None
        return peer

    def end(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.end("DONE")
