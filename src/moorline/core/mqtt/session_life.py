"""Room: core/mqtt. How long a session outlives its connections, and when its will is published.

    CONNECTED ──disconnected──► AWAY ──expiry──► ENDED
        └────────connected────────┘
    will     ARMED with the connection ──lost──► WAITING for its delay ──or the session's end──► published
             ──DISCONNECT 0x00──► dropped       WAITING ──connected──► dropped

Invariants, looked at by `check`:

    S1  a will is published at most once, and only of a client that is not connected
    S2  a session that is away ends, or never does; a will of it is due not after it
"""

from enum import Enum

from moorline.core.effects import CancelTimer, Effect, SetTimer
from moorline.core.mqtt.effects import EndSession, ForgetWill, KeepWill, PublishWill
from moorline.core.mqtt.packets import Will
from moorline.limits import PROOF_TIMER_MS_MAX

NEVER = 0xFFFF_FFFF
"""A session expiry that is none."""


class LifeState(Enum):
    CONNECTED = "connected"
    AWAY = "away"
    ENDED = "ended"


class SessionLife:
    """One for each client id that has a session. Times are of a clock that goes on through restarts."""

    __slots__ = ("_expiry_s", "_will", "ends_ms", "state", "will_due_ms")

    def __init__(self) -> None:
        self.state = LifeState.ENDED
        self._expiry_s = 0
        self._will: Will | None = None
        self.ends_ms: int | None = None
        """When it ends, of a session that is away; None for never."""
        self.will_due_ms: int | None = None

    def connected(
        self, expiry_s: int, will: Will | None, clean_start: bool, now_ms: int
    ) -> list[Effect]:
        """Also of a take-over, after `disconnected` of the other connection. With `clean_start` the old
        session ends first (`EndSession`), which publishes a will that waits."""
        effects: list[Effect] = []
        if self.state is LifeState.CONNECTED:
            effects += self.disconnected(False, self._expiry_s, now_ms)
        if self.state is LifeState.AWAY:
            effects += self._come_back(clean_start)
        self.state = LifeState.CONNECTED
        self._expiry_s, self._will, self.ends_ms = expiry_s, will, None
        if will is not None:
            effects.append(KeepWill(will, None))
        return effects

    def _come_back(self, clean_start: bool) -> list[Effect]:
        if clean_start:
            return self._end()
        effects: list[Effect] = [CancelTimer("session")]
        if self._will is not None:
            # Back in time: nobody is to hear that it was away (3.1.3.2.2).
            self._will, self.will_due_ms = None, None
            effects += [CancelTimer("will"), ForgetWill()]
        return effects

    def disconnected(self, is_normal: bool, expiry_s: int, now_ms: int) -> list[Effect]:
        """What `EndConnection` says."""
        assert self.state is LifeState.CONNECTED, f"it is {self.state.value}"
        self.state, self._expiry_s = LifeState.AWAY, expiry_s
        self.ends_ms = None if expiry_s == NEVER else now_ms + expiry_s * 1_000
        effects: list[Effect] = []
        if self._will is not None and is_normal:
            self._will = None
            effects.append(ForgetWill())
        if self.ends_ms == now_ms:
            return effects + self._end()
        if self._will is not None:
            delay_s = self._will.properties.will_delay_s or 0
            due_ms = now_ms + delay_s * 1_000
            self.will_due_ms = due_ms if self.ends_ms is None else min(due_ms, self.ends_ms)
            effects += self._look_at_will(now_ms, is_new=True)
        return effects + self._look_at_end(now_ms)

    def _look_at_will(self, now_ms: int, is_new: bool) -> list[Effect]:
        will, due_ms = self._will, self.will_due_ms
        assert will is not None, "a will that is gone has no timer"
        assert due_ms is not None, "it waits"
        if due_ms <= now_ms:
            return self._publish(will)
        # Kept before its timer: the node may be gone when it is due.
        kept: list[Effect] = [KeepWill(will, due_ms)] if is_new else []
        return [*kept, SetTimer("will", min(due_ms - now_ms, PROOF_TIMER_MS_MAX))]

    def _look_at_end(self, now_ms: int) -> list[Effect]:
        if self.ends_ms is None:
            return []
        if self.ends_ms <= now_ms:
            return self._end()
        # It may be weeks: no timer waits for that long.
        return [SetTimer("session", min(self.ends_ms - now_ms, PROOF_TIMER_MS_MAX))]

    def _publish(self, will: Will) -> list[Effect]:
        self._will, self.will_due_ms = None, None
        # Forgotten after it is published: a crash between may publish it twice, and not never.
        return [PublishWill(will), ForgetWill()]

    def _end(self) -> list[Effect]:
        effects: list[Effect] = []
        if self._will is not None:
            effects += [CancelTimer("will"), *self._publish(self._will)]
        self.state, self.ends_ms = LifeState.ENDED, None
        return [*effects, CancelTimer("session"), EndSession()]

    def timer(self, name: str, now_ms: int) -> list[Effect]:
        # One that was cancelled may have been on its way already.
        if self.state is not LifeState.AWAY:
            return []
        if name == "will":
            return self._look_at_will(now_ms, is_new=False) if self._will is not None else []
        assert name == "session", f"no timer {name!r}"
        return self._look_at_end(now_ms)

    def ended(self, now_ms: int) -> list[Effect]:
        """The session is ended by an operator: a will that waits is published."""
        if self.state is LifeState.ENDED:
            return []
        if self.state is LifeState.CONNECTED:
            return self.disconnected(False, 0, now_ms)
        return self._end()

    @classmethod
    def restored(
        cls, expiry_s: int, will: Will | None, due_ms: int | None, away_since_ms: int, now_ms: int
    ) -> "tuple[SessionLife, list[Effect]]":
        """Of a session that was kept; one that was connected when its node died has been away since."""
        life = cls()
        life.state, life._expiry_s, life._will = LifeState.CONNECTED, expiry_s, will
        if due_ms is None:
            effects = life.disconnected(False, expiry_s, away_since_ms)
            # It was away meanwhile: what was due then is due now.
            return life, effects + life._catch_up(now_ms)
        life.state = LifeState.AWAY
        life.ends_ms = None if expiry_s == NEVER else away_since_ms + expiry_s * 1_000
        life.will_due_ms = due_ms
        effects = life._look_at_will(now_ms, is_new=False) if will is not None else []
        return life, effects + life._look_at_end(now_ms)

    def _catch_up(self, now_ms: int) -> list[Effect]:
        if self.state is LifeState.ENDED:
            return []
        effects: list[Effect] = []
        if self._will is not None:
            effects += self._look_at_will(now_ms, is_new=False)
        return effects + self._look_at_end(now_ms)

    def check(self) -> None:
        """Asserts the invariants."""
        if self.state is not LifeState.AWAY:
            assert self.will_due_ms is None, f"S1: a will is due of one that is {self.state.value}"
            assert self.ends_ms is None, f"S2: it ends, and is {self.state.value}"
        if self.state is LifeState.ENDED:
            assert self._will is None, "S1: a will of a session that is over"
        if self.will_due_ms is not None:
            assert self._will is not None, "S1: no will is due"
            assert self.ends_ms is None or self.will_due_ms <= self.ends_ms, "S2: a will is late"
