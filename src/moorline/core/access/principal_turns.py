"""Room: core/access. Whose turn it is: principals share the node's time, each one's connections its share.

    turns.wait("mallory", connection)      it has something to do, and stands in line
    principal, connection = turns.next()   whose turn it is; it is out of the line until it waits again
    turns.spent(cost_us)                   behind its turn, and behind its `wait` if it has more to do

Deficit round robin (Shreedhar and Varghese, 1995). The principals that wait stand in a ring. Whoever is in
front has a credit of one round; its connections have turns, one after the other, until the credit is used up;
then the next principal is in front. A turn's cost is known only behind it, so a credit may end below zero:
that is a debt, which is paid with rounds that are sat out.

Bounds, for P principals in the ring, where k is TURNS_PER_ROUND_MAX, since each turn costs TURN_CHARGE_US_MIN
at least:

    a principal that comes into the ring, and owes nothing, has its turn behind at most k · (P - 1) turns of
    others and behind at most (P - 1) · (a round + the longest turn) of time

however many connections the others have. With one principal in the ring there is nothing to share: its
connections have their turns as they came, and it owes nobody anything.

Invariants, looked at by `check`:

    PT1  a principal stands in the ring, once, exactly while a connection of it waits or has its turn
    PT2  a credit is at most a round, and a debt at most TURN_DEBT_ROUNDS_MAX of them; out of the ring there
         are debts only
    PT3  whoever has its turn is in front
"""

from collections import OrderedDict, deque
from typing import Final

from moorline.limits import SESSION_TURN_MS, TURN_CHARGE_US_MIN, TURN_DEBT_ROUNDS_MAX

ROUND_US: Final = SESSION_TURN_MS * 1_000
"""What a principal may use up before the next one is in front: what one connection had so far."""

TURNS_PER_ROUND_MAX: Final = -(-ROUND_US // TURN_CHARGE_US_MIN)

_DEBT_US_MAX: Final = TURN_DEBT_ROUNDS_MAX * ROUND_US


class _Waiting:
    """The connections of one principal that have something to do, and what it may use up."""

    __slots__ = ("connections", "credit_us", "in_ring")

    def __init__(self) -> None:
        self.connections: OrderedDict[int, None] = OrderedDict()
        """In the order in which they came. No plain dict: one that loses its first again and again has to
        look over all that it lost to find the next."""
        self.credit_us = 0
        self.in_ring = False


class PrincipalTurns:
    """Who waits. Of those that do not it knows nothing, but for a debt."""

    def __init__(self) -> None:
        self._ring: deque[str] = deque()
        self._principals: dict[str, _Waiting] = {}
        self._at_work = ""
        """Whose turn is under way. It stays in front: it may have more to do."""

    def __len__(self) -> int:
        """Connections that wait."""
        return sum(len(found.connections) for found in self._principals.values())

    @property
    def principals(self) -> int:
        """Those that something is known of: they wait, or have a debt."""
        return len(self._principals)

    @property
    def is_empty(self) -> bool:
        """Nobody waits, and no turn is under way: who has something to do need not stand in line at all."""
        return not self._ring

    def wait(self, principal: str, connection: int) -> None:
        """It has something to do. To say so twice is harmless, and keeps its place."""
        found = self._principals.get(principal)
        if found is None:
            found = self._principals[principal] = _Waiting()
        # By `setdefault`, which keeps the place: a peer that sends byte by byte says this at each, and must
        # neither gain nor lose by it.
        found.connections.setdefault(connection)
        if not found.in_ring:
            found.in_ring = True
            # A whole round for who comes, less what it owes; credit is not saved up by staying away.
            found.credit_us = min(found.credit_us, 0) + ROUND_US
            self._ring.append(principal)

    def next(self) -> tuple[str, int] | None:
        """Whose turn it is; None if nobody waits."""
        assert not self._at_work, "the turn before has not ended"
        ring = self._ring
        if not ring:
            return None
        if len(ring) > 1:
            # Ends: each time round adds a round to every credit, and debts are bounded.
            while (found := self._principals[ring[0]]).credit_us <= 0:
                found.credit_us += ROUND_US
                ring.rotate(-1)
        principal = ring[0]
        found = self._principals[principal]
        # Out of the line while it works; who has more to do waits again, behind the others of its
        # principal.
        connection, _ = found.connections.popitem(last=False)
        self._at_work = principal
        return principal, connection

    def spent(self, cost_us: int) -> None:
        """The turn is over, and took so long."""
        principal, self._at_work = self._at_work, ""
        found = self._principals[principal]
        # The least that a turn is charged makes many small turns as dear as few large ones: what a turn
        # costs beside its work is not measured.
        found.credit_us -= max(cost_us, TURN_CHARGE_US_MIN)
        # Where nobody else waited it took nothing from anybody.
        found.credit_us = max(found.credit_us, -_DEBT_US_MAX if len(self._ring) > 1 else 0)
        if not found.connections:
            self._out_of_ring(principal, found)

    def leave(self, principal: str, connection: int) -> None:
        """The connection is gone; so is whatever it waited for."""
        found = self._principals.get(principal)
        if found is None or connection not in found.connections:
            return
        del found.connections[connection]
        if not found.connections and principal != self._at_work:
            self._out_of_ring(principal, found)

    def forget(self, principal: str) -> None:
        """Its last connection is gone: a debt is not kept for who may never come again."""
        found = self._principals.get(principal)
        if found is not None and not found.in_ring:
            del self._principals[principal]

    def _out_of_ring(self, principal: str, found: _Waiting) -> None:
        # At the front, or in a ring that is short: principals in it have something to do right now.
        self._ring.remove(principal)
        found.in_ring = False
        # Credit is lost here, a debt is not: else to leave and come again would be a way to get rid of it.
        if found.credit_us >= 0:
            del self._principals[principal]

    # --- what always holds ------------------------------------------------------------------------

    def check(self) -> None:
        """Asserts the invariants."""
        assert len(set(self._ring)) == len(self._ring), f"PT1: {list(self._ring)}"
        waiting = {name for name, found in self._principals.items() if found.in_ring}
        assert waiting == set(self._ring), f"PT1: {sorted(waiting)} wait, in {list(self._ring)}"
        for name, found in self._principals.items():
            has_work = bool(found.connections) or name == self._at_work
            assert has_work == found.in_ring, f"PT1: {name} is in the ring: {found.in_ring}"
            is_within = -_DEBT_US_MAX <= found.credit_us <= ROUND_US
            assert is_within, f"PT2: {name} has {found.credit_us} us"
            assert found.in_ring or found.credit_us < 0, f"PT2: {name} is kept for no debt"
        is_in_front = not self._at_work or self._ring[0] == self._at_work
        assert is_in_front, f"PT3: {self._at_work} works, and {self._ring[0]} is in front"
