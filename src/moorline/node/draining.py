"""Room: node. Draining: a node sends away whoever can be elsewhere, at a bounded rate, before it is stopped.

    clients    those that know another node (`Hello.can_leave`), readers of queues of this home last; MQTT's
    leases     of streams go with the clients that hold them
    groups     when no such client is left: members that went take the next Leader with them

Whoever wants what only this node has, its queues and its shards, stays until the stop. New clients that can
leave are sent on. `/readyz` says no meanwhile. It lasts until the stop, or until an operator ends it.
"""

import asyncio
import logging
from collections.abc import Iterator

from moorline.access.guard import Declarations, needs
from moorline.core.access.principal import Proof, level_of
from moorline.core.access.right import ADMINISTER
from moorline.errors import NotFound
from moorline.groups.leaders import Leaders
from moorline.limits import DRAIN_STEP_MS
from moorline.mqtt.listener import MqttListeners
from moorline.net.listener import Listeners
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.node.access import Entrant
from moorline.node.homes import HomeFinder
from moorline.queues.commands import QueueBroker
from moorline.wire.cluster import DrainNode, NodeDrained

log = logging.getLogger("moorline.node")

DRAINED = "this node is drained before a stop: another one serves you"

CLUSTER = "/admin/cluster"


class Draining:
    """Off until an operator wants it."""

    def __init__(self, home: str, listeners: Listeners, homes: HomeFinder) -> None:
        self.home = home
        self.queues: QueueBroker | None = None
        self.leaders: Leaders | None = None
        self.mqtt: MqttListeners | None = None
        self._listeners = listeners
        self._homes = homes
        self._turns = Turns()
        self._moving: asyncio.Task[None] | None = None
        self._moved = 0
        self._per_s = 1
        self._left: set[int] = set()
        """Readers of the groups whose Leaders were told."""
        self._mqtt_before: set[Entrant] = set()
        """Clients of MQTT of before: later ones know no other node, or they would not have come."""

    def declared(self) -> Declarations:
        return {
            DrainNode: needs(
                ADMINISTER,
                lambda call: (f"{CLUSTER}/nodes/{level_of(call.home or self.home)}",),
                self._turns.later(self._drain),
            )
        }

    def problem(self) -> str:
        return "it is drained before a stop" if self.is_on else ""

    @property
    def is_on(self) -> bool:
        return self._moving is not None

    def close(self) -> None:
        self._turns.close()
        self._end()

    async def _drain(self, session: Session, call: DrainNode) -> NodeDrained:
        if call.home not in ("", self.home):
            raise await self._homes.where(session, call.home)
        if call.is_look and not self.is_on:
            raise NotFound("the node is drained no more: that was undone, or it has started again")
        if call.is_over:
            self._end()
        elif not call.is_look:
            self._per_s = call.per_s
            if not self.is_on:
                self._begin(session)
        going, staying = len(list(self._leaving())), 0
        for one in self._listeners.sessions:
            staying += one.identity.proof is not Proof.NODE and one is not session
        led = len(self.leaders.leaving()) if self.leaders is not None else 0
        staying = max(0, staying - going)
        return NodeDrained(call.call, self.home, self._moved, going, led, staying)

    def _begin(self, session: Session) -> None:
        log.warning(
            "the node is drained", extra={"by": session.identity.principal, "per_s": self._per_s}
        )
        self._moved = 0
        self._left.clear()
        self._mqtt_before = set(self.mqtt.peers) if self.mqtt is not None else set()
        self._listeners.sends_on = DRAINED
        if self.leaders is not None:
            self.leaders.is_draining = True
        self._moving = asyncio.create_task(self._move_on())

    def _end(self) -> None:
        if self._moving is None:
            return
        log.warning("the node is drained no more")
        self._moving.cancel()
        self._moving = None
        self._listeners.sends_on = ""
        if self.leaders is not None:
            self.leaders.is_draining = False

    async def _move_on(self) -> None:
        """Until it is ended: some may have come before the door was shut to them."""
        allowed = 0.0
        while True:
            allowed = min(allowed + self._per_s * DRAIN_STEP_MS / 1_000, max(1.0, self._per_s))
            try:
                moved = self._moved_at_once(int(allowed))
            except Exception:
                # Without this task the operator would wait for ever.
                log.exception("a step of a drain failed")
                moved = 0
            self._moved += moved
            allowed -= moved
            await asyncio.sleep(DRAIN_STEP_MS / 1_000)

    def _moved_at_once(self, count: int) -> int:
        moved = 0
        for one in self._leaving():
            if moved == count:
                return moved
            one.close("STOPPING", DRAINED)
            self._mqtt_before.discard(one)
            moved += 1
        if moved or self.leaders is None:
            return moved
        # Behind the clients: as long as its members are here nobody else would lead a group.
        for host in self.leaders.leaving()[:count]:
            if host.group.reader not in self._left:
                self._left.add(host.group.reader)
                self.leaders.leave(host)
                moved += 1
        return moved

    def _leaving(self) -> Iterator[Entrant]:
        """Those that can be elsewhere: those first that wait for no answer, the readers of queues last, which
        have to come back for them."""
        readers = set()
        if self.queues is not None:
            readers = {held.session for _, held in self.queues.subscriptions.each()}
        going = [one for one in self._listeners.sessions if one.can_leave and one.is_open]
        going.sort(key=lambda one: not one.is_idle)
        yield from [one for one in going if one not in readers]
        yield from [one for one in self._mqtt_before if one.is_open]
        yield from [one for one in going if one in readers]
