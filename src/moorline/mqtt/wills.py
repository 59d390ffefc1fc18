"""Room: mqtt. Wills: kept with the session, published by whoever finds them due, judged when they are.

A will of a session that the catalog keeps is in the catalog from before CONNACK until it is published or
taken away, so that it outlives the node; others are in memory. Whoever publishes it claims the row first, and
deletes it when the message is durable: a crash in between may publish it twice, and not never.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from moorline.catalog.mqtt_sessions import KeptWill
from moorline.core.access.principal import Proof
from moorline.core.effects import Effect, Event, TimerFired
from moorline.core.mqtt.effects import EndSession, ForgetWill, KeepWill, PublishWill
from moorline.core.mqtt.packets import MQTT_5, Publish, Will
from moorline.core.mqtt.session_life import SessionLife
from moorline.errors import MoorlineError, NodeDiskFull
from moorline.limits import MQTT_WILL_LOOK_MS, SESSION_EXPIRY_S_MIN
from moorline.mqtt.counts import Counts
from moorline.net.clock import wall_ms
from moorline.net.interpreter import Interpreter, nothing_awaited
from moorline.net.session_rights import SessionAllowance, SessionRights
from moorline.topics.producer import producer_number

if TYPE_CHECKING:
    from moorline.mqtt.broker import MqttBroker
    from moorline.mqtt.client import Client

log = logging.getLogger("moorline.mqtt")

_encode = msgspec.msgpack.Encoder().encode
_will_of = msgspec.msgpack.Decoder(Will)


class Testator(msgspec.Struct):
    """Whoever publishes a will: the client as it was."""

    rights: SessionRights
    counts: Counts
    producer: int
    numbered_producer: int
    identity: Any
    peer_address: str = ""
    level: int = MQTT_5
    allowance: SessionAllowance | None = None
    """Of its principal, as it is when the will is published."""


class Life:
    """The life of one client's session. It outlives the connection only while a will waits."""

    def __init__(self, wills: "Wills", name: str, *, is_kept: bool) -> None:
        self.machine = SessionLife()
        self.is_kept = is_kept
        self.waits = False
        """Whether a will waits for its time."""
        self.is_connected = False
        self.expiry_s = 0
        """Of its session: the will does not wait for longer."""
        self.testator: Testator | None = None
        self._wills = wills
        self._name = name
        self._turn = asyncio.Lock()
        self._interpreter = Interpreter(
            {
                PublishWill: self._publish,
                KeepWill: self._keep,
                ForgetWill: self._forget,
                EndSession: _expires,
            },
            self._timer_fired,
            nothing_awaited,
        )

    async def perform(self, effects: Iterable[Effect]) -> None:
        """One list after the other: what a connection leaves is done before what the next one brings."""
        try:
            async with self._turn:
                await self._interpreter.perform_in_turn(effects)
        finally:
            self._wills.look_at(self._name, self)

    def close(self) -> None:
        self._interpreter.close()

    async def _publish(self, effect: PublishWill) -> None:
        self.waits = False
        await self._wills.publish(self, self._name, effect.will)

    async def _keep(self, effect: KeepWill) -> None:
        self.waits = effect.due_ms is not None
        try:
            await self._wills.keep(self, self._name, effect.will, effect.due_ms)
        except (MoorlineError, OSError) as error:
            if not self.waits:
                raise  # a client whose will nobody keeps is not let in
            # Its timer is here, and the row is known to be ours: only when it is due is not in it.
            log.warning("a will that waits is not in the catalog", extra={"error": str(error)})

    async def _forget(self, effect: ForgetWill) -> None:  # noqa: ARG002
        self.waits = False
        await self._wills.forget(self, self._name)

    def _timer_fired(self, event: Event) -> None:
        assert isinstance(event, TimerFired), f"nothing else is answered: {event}"
        self._wills.spawn(self.perform(self.machine.timer(event.name, wall_ms())))


def _expires(effect: EndSession) -> None:
    """The catalog knows when."""


class Wills:
    def __init__(self, broker: "MqttBroker") -> None:
        self._broker = broker
        self._lives: dict[str, Life] = {}
        self._late: dict[str, bool] = {}
        """Names of what the catalog was not there to hear: True for a will that is due, False for one that is
        over."""
        self.spawn = broker.spawn

    async def connected(
        self, client: "Client", name: str, expiry_s: int, will: Will | None, *, clean_start: bool
    ) -> None:
        """Before CONNACK."""
        is_kept = client.session is not None and client.session.row is not None
        life = self._lives.get(name)
        self._late.pop(name, None)
        if is_kept:
            await self._take_back(name, clean_start=clean_start, is_known=life is not None)
        if life is None:
            if will is None:
                return  # nothing is left to whoever outlives it
            life = self._lives[name] = Life(self, name, is_kept=is_kept)
        life.is_connected = True
        # What waits is the old client's, and has its name.
        effects = life.machine.connected(expiry_s, will, clean_start, wall_ms())
        before = [effect for effect in effects if isinstance(effect, PublishWill)]
        await life.perform(before)
        life.is_kept, life.expiry_s = is_kept, expiry_s
        life.testator = Testator(
            client.rights,
            client.counts,
            client.producer,
            client.numbered_producer,
            client.identity,
            client.peer_address,
        )
        await life.perform([effect for effect in effects if effect not in before])

    def disconnected(self, name: str, *, is_normal: bool, expiry_s: int) -> None:
        """Nothing happens if it was not connected: then what waits is another connection's."""
        life = self._lives.get(name)
        if life is not None and life.is_connected:
            life.is_connected = False
            self.spawn(life.perform(life.machine.disconnected(is_normal, expiry_s, wall_ms())))

    def look_at(self, name: str, life: Life) -> None:
        """Of a session without a client, only a will that waits is remembered."""
        if not life.waits and not life.is_connected and self._lives.get(name) is life:
            life.close()
            del self._lives[name]

    def close(self) -> None:
        for life in self._lives.values():
            life.close()
        self._lives.clear()

    # --- the catalog ------------------------------------------------------------------------------

    async def keep(self, life: Life, name: str, will: Will, due_ms: int | None) -> None:
        if not life.is_kept or life.testator is None:
            return
        sessions, home = self._broker.mqtt_sessions, self._broker.home
        if due_ms is not None:
            await sessions.wait_with_will(name, home, max(0, due_ms - wall_ms()))
            return
        rights = life.testator.rights
        kept = KeptWill(name, rights.principal, rights.proof.value, rights.is_local, _encode(will))
        # As the session's end it is due where its node cannot say so any more.
        await sessions.keep_will(home, kept, min(will.properties.will_delay_s or 0, life.expiry_s))

    async def forget(self, life: Life, name: str) -> None:
        if not life.is_kept or self._late.get(name):
            return  # one that could not be published stays
        try:
            await self._broker.mqtt_sessions.forget_will(name, self._broker.home)
        except (MoorlineError, OSError) as error:
            log.warning("a will that is over is still kept", extra={"error": str(error)})
            # A goodbye that is not told there would be a loss to the next start of the node.
            self._late.setdefault(name, False)

    async def publish(self, life: Life, name: str, will: Will) -> None:
        broker = self._broker
        try:
            if life.is_kept:
                if broker.topics.streams.is_disk_full:
                    raise NodeDiskFull("no messages are taken")
                if not await broker.mqtt_sessions.claim_will(name, broker.home):
                    return  # its client has come to another node, which sees to it
            if life.testator is not None:
                self._say(life.testator, will)
            if life.is_kept:
                await broker.topics.streams.commits.durable()
        except (MoorlineError, OSError) as error:
            log.warning("a will waits", extra={"error": str(error)})
            self._late[name] = True

    async def _take_back(self, name: str, *, clean_start: bool, is_known: bool) -> None:
        """What another connection left in the catalog, at another node or before a restart."""
        if await self._broker.mqtt_sessions.take_back_will(
            name, self._broker.home, ends_session=clean_start, is_known=is_known
        ):
            await self.publish_due()

    async def look_forever(self) -> None:
        is_start = True
        while True:
            try:
                await self._broker.mqtt_sessions.adopt_orphans(
                    self._broker.home, is_start=is_start, silent_s=SESSION_EXPIRY_S_MIN
                )
                is_start = False
                await self._tell_late()
                await self.publish_due()
            except (MoorlineError, OSError) as error:
                log.debug("wills were not looked for", extra={"error": str(error)})
            except Exception:
                log.exception("wills were not looked for")
            await asyncio.sleep(MQTT_WILL_LOOK_MS / 1_000)

    async def _tell_late(self) -> None:
        """What the catalog did not hear when it was to."""
        sessions, home = self._broker.mqtt_sessions, self._broker.home
        for name, is_due in list(self._late.items()):
            await (sessions.end_will if is_due else sessions.forget_will)(name, home)
            if self._late.get(name) is is_due:
                del self._late[name]

    async def publish_due(self) -> None:
        broker = self._broker
        if broker.topics.streams.is_disk_full:
            return  # they wait in the catalog
        found = await broker.mqtt_sessions.take_due(broker.home)
        for kept in found:
            self._publish_kept(kept)
            await asyncio.sleep(0)
        if found:
            await broker.topics.streams.commits.durable()
            await broker.mqtt_sessions.published_wills([one.name for one in found], broker.home)

    def _publish_kept(self, kept: KeptWill) -> None:
        life = self._lives.get(kept.name)
        if life is not None and not life.is_connected:
            life.close()
            del self._lives[kept.name]
        rights = self._broker.rights_of(kept.principal, Proof(kept.proof), kept.is_local)
        try:
            will = _will_of.decode(kept.will)
        except msgspec.MsgspecError as error:
            log.error("a will cannot be read", extra={"name": kept.name, "error": str(error)})
            return
        name = kept.name.removeprefix("mqtt/")
        who = Testator(
            rights,
            Counts(),
            producer_number(kept.principal, name),
            producer_number(kept.principal, f"{name}\0qos2"),
            self._broker.identity_of(kept.principal, Proof(kept.proof)),
        )
        self._say(who, will)

    def _say(self, who: Testator, will: Will) -> None:
        self._broker.counts.wills += 1
        rights = who.rights
        if not rights.is_node:
            who.allowance = self._broker.allowance_of(rights.principal, rights.is_local)
        publish = Publish(
            will.topic, will.payload, will.qos, will.retain, properties=will.properties
        )
        reason = self._broker.publishing.store_alone(who, publish)
        if reason.is_failure:
            log.info("a will was refused", extra={"topic": will.topic, "reason": reason.name})
