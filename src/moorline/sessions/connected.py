"""Room: sessions. The connection of a session, whatever it speaks, as the rooms see it that read for it."""

from collections.abc import Callable
from typing import Protocol

from moorline.net.session_rights import SessionAllowance, SessionRights


class Connected(Protocol):
    """A native session (net/session.py), or a client of MQTT (mqtt/client.py)."""

    rights: SessionRights
    name: str
    end_code: str
    """Why it ended: DONE if its client said so."""

    @property
    def allowance(self) -> SessionAllowance | None: ...

    @property
    def is_open(self) -> bool: ...

    def at_end(self, hook: Callable[[], None], /) -> None: ...

    def close(self, code: str, text: str, /) -> None: ...
