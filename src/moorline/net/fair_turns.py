"""Room: net. Whose bytes are handled next, where several principals are connected: the line they stand in.

    bytes come ──► is the node crowded? ──no──► handled at once, as if there were no line
                        │ yes
                        ├─► nobody waits, and little was done since the last poll: at once
                        └─► kept as they came, reading is held, and the connection waits for its turn

`core/access/principal_turns.py` says whose turn it is. Turns are given for CROWDED_POLL_US; then the loop
polls, so that who comes meanwhile is in the line before the next one. Bytes are kept undecoded, since
decoding is a part of what a turn costs, and no more of them than one read gave. Why, and what was
not done: decision 0046.
"""

import asyncio
import logging
import time
from collections import Counter
from typing import Protocol

from moorline.core.access.principal_turns import PrincipalTurns
from moorline.limits import CROWDED_POLL_US, TURN_CHARGE_US_MIN
from moorline.net.thread_turns import hold_quick_turns, release_quick_turns

log = logging.getLogger("moorline.net")


class InLine(Protocol):
    """A connection, as the line sees it."""

    def hear(self, data: bytes) -> None:
        """Has its turn at once, with these bytes."""

    def keep(self, data: bytes) -> None:
        """Holds its reading, and these bytes until its turn."""

    def take_turn(self) -> None:
        """Goes on with what it kept, or with what is left of its last turn; it may wait again."""

    def abort(self) -> None: ...


class FairTurns:
    """One for all listeners of a node."""

    def __init__(self) -> None:
        self.is_crowded = False
        """More than one principal is connected, or somebody waits: looked at for every read."""
        self._turns = PrincipalTurns()
        self._principals: dict[InLine, tuple[str, int]] = {}
        """Whose each connection is, and its number in the line."""
        self._connections: Counter[str] = Counter()
        self._by_number: dict[int, InLine] = {}
        self._entered = 0
        self._at_once_us = CROWDED_POLL_US
        """What may be done without a line before the loop polls again."""
        self._is_due = False
        self._is_polling = False

    def __len__(self) -> int:
        """Connections that wait."""
        return len(self._turns)

    @property
    def principals(self) -> int:
        """Those that are connected."""
        return len(self._connections)

    def enter(self, connection: InLine, principal: str) -> None:
        """From now on it stands in line with the others."""
        self._entered += 1
        self._principals[connection] = (principal, self._entered)
        self._by_number[self._entered] = connection
        self._connections[principal] += 1
        self._look()

    def leave(self, connection: InLine) -> None:
        """It is over; so is whatever it waited for."""
        principal, number = self._principals.pop(connection)
        del self._by_number[number]
        self._turns.leave(principal, number)
        self._connections[principal] -= 1
        if not self._connections[principal]:
            del self._connections[principal]
            self._turns.forget(principal)
        self._look()

    def heard(self, connection: InLine, data: bytes) -> None:
        """Bytes came on a crowded node: handled at once, or behind the others."""
        if self._at_once_us <= 0 or not self._turns.is_empty:
            connection.keep(data)
            self.wait(connection)
            return
        if not self._is_polling:
            self._is_polling = True
            asyncio.get_running_loop().call_soon(self._polled)
        began_ns = time.monotonic_ns()
        try:
            connection.hear(data)
        finally:
            cost_us = (time.monotonic_ns() - began_ns) // 1_000
            self._at_once_us -= max(cost_us, TURN_CHARGE_US_MIN)

    def wait(self, connection: InLine) -> None:
        """It has something to do; to say so twice is harmless."""
        found = self._principals.get(connection)
        if found is None:
            return  # it is over
        self._turns.wait(*found)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._give_turns)

    def _give_turns(self) -> None:
        """Turns for a short time; then the loop polls. What they leave to be done behind them, commits and
        answers, is not in turns, and is the shorter for it."""
        turns, clock = self._turns, time.monotonic_ns
        began_ns = clock()
        ends_ns = began_ns + CROWDED_POLL_US * 1_000
        while began_ns < ends_ns and (found := turns.next()) is not None:
            connection = self._by_number[found[1]]
            try:
                connection.take_turn()
            except Exception:
                # As asyncio does with a protocol that raises: this one is cut, and the others go on.
                log.exception("a connection failed in its turn")
                connection.abort()
            now_ns = clock()
            turns.spent((now_ns - began_ns) // 1_000)
            if found[0] not in self._connections:
                turns.forget(found[0])  # it left in its turn
            began_ns = now_ns
        self._is_due = not turns.is_empty
        if self._is_due:
            asyncio.get_running_loop().call_soon(self._give_turns)
        else:
            self._look()

    def _polled(self) -> None:
        self._is_polling = False
        self._at_once_us = CROWDED_POLL_US

    def _look(self) -> None:
        # As long as somebody waits nobody passes by: bytes that were kept come before those that follow.
        is_crowded = len(self._connections) > 1 or not self._turns.is_empty
        if is_crowded is not self.is_crowded:
            self.is_crowded = is_crowded
            # Commits are shared by all: one principal's load must not make another one's slow.
            (hold_quick_turns if is_crowded else release_quick_turns)()
