"""Room: net. What a node says when it ends a handshake: the alert that tells a client what is wrong.

OpenSSL writes the alert when a handshake fails, and the event loops, asyncio's and uvloop, close the socket
without sending it: a client whose certificate has expired would hear nothing, and take the node for dead.

    HANDSHAKING      the socket of the handshake that a task is about to begin
    AlertingContext  a context whose handshakes send their last words themselves
"""

import contextlib
import socket
import ssl
from contextvars import ContextVar
from typing import Any

HANDSHAKING: ContextVar[socket.socket | None] = ContextVar("handshaking", default=None)
"""Loops make the object of a handshake in the context of whoever accepted the socket."""


class _AlertingObject(ssl.SSLObject):
    outgoing: ssl.MemoryBIO
    accepted: socket.socket | None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.accepted is not None:
                # A few bytes, and nothing before them waits. Who is gone already does not miss them.
                with contextlib.suppress(OSError):
                    self.accepted.send(self.outgoing.read())
            raise
        self.accepted = None


class AlertingContext(ssl.SSLContext):
    sslobject_class = _AlertingObject

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *arguments: Any, **named: Any
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *arguments, **named)
        assert isinstance(made, _AlertingObject), f"{type(made).__name__} sends no alert"
        made.outgoing, made.accepted = outgoing, HANDSHAKING.get()
        return made
