"""Room: core/mqtt. How long a session outlives its connections, and when its will is published."""

from moorline.core.effects import Effect
from moorline.core.mqtt.packets import Will

NEVER = 0xFFFF_FFFF
"""A session expiry that is none."""


class SessionLife:
    """One for each client id that has a session. Times are of a clock that goes on through restarts."""

    def connected(
        self, expiry_s: int, will: Will | None, clean_start: bool, now_ms: int
    ) -> list[Effect]:
        """Also of a take-over, after `disconnected` of the other connection. With `clean_start` the old
        session ends first (`EndSession`), which publishes a will that waits."""
        raise NotImplementedError

    def disconnected(self, is_normal: bool, expiry_s: int, now_ms: int) -> list[Effect]:
        """What `EndConnection` says."""
        raise NotImplementedError

    def timer(self, name: str, now_ms: int) -> list[Effect]:
        raise NotImplementedError

    def ended(self, now_ms: int) -> list[Effect]:
        """The session is ended by an operator: a will that waits is published."""
        raise NotImplementedError

    @classmethod
    def restored(
        cls, expiry_s: int, will: Will | None, due_ms: int | None, away_since_ms: int, now_ms: int
    ) -> "tuple[SessionLife, list[Effect]]":
        """Of a session that was kept; one that was connected when its node died has been away since."""
        raise NotImplementedError

    def check(self) -> None:
        raise NotImplementedError
