"""Room: mqtt. What MQTT knows of a durable session, as the catalog keeps it; and its way there, batched.

One statement of exchanges is on its way at a time, and has those of all clients that changed meanwhile. Who
waits for it goes on when it is durable.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from moorline.catalog.mqtt_sessions import MqttSessions
from moorline.core.mqtt.effects import MessagePosition, Sent
from moorline.core.mqtt.packets import Subscription
from moorline.core.stream import Shard
from moorline.errors import MoorlineError
from moorline.limits import PEER_RETRY_MS

log = logging.getLogger("moorline.mqtt")


class KeptFilter(msgspec.Struct, frozen=True, array_like=True):
    """A filter with its options; of a group too."""

    filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    identifier: int | None = None

    @classmethod
    def of(cls, one: Subscription, identifier: int | None) -> "KeptFilter":
        return cls(
            one.filter,
            one.qos,
            one.no_local,
            one.retain_as_published,
            one.retain_handling,
            identifier,
        )

    @property
    def subscription(self) -> Subscription:
        return Subscription(
            self.filter, self.qos, self.no_local, self.retain_as_published, self.retain_handling
        )


class _KeptSent(msgspec.Struct, frozen=True, array_like=True):
    packet_id: int
    source: str
    home: str
    shard: int
    offset: int
    qos: int
    is_released: bool


Lasts = dict[str, dict[int, int]]
"""The last sequence of a client by home and shard."""


class Exchanges(msgspec.Struct, frozen=True, array_like=True):
    """What is unfinished in both directions."""

    received: dict[int, int] = {}
    """Packet id to sequence."""
    sequence: int = 0
    sent: tuple[_KeptSent, ...] = ()
    stored: tuple[int, ...] = ()
    """Packet ids of those received whose messages are stored, at whichever node."""
    lasts: dict[int, Lasts] = {}
    """Of those received and not said again since a restart: what was last in the streams then."""

    @property
    def has_unknown(self) -> bool:
        """Whether only the node of the last connection can tell if something is stored."""
        return bool(self.received.keys() - set(self.stored))

    @classmethod
    def of(
        cls,
        received: dict[int, int],
        sequence: int,
        sent: list[Sent],
        stored: Iterable[int] = (),
        lasts: dict[int, Lasts] | None = None,
    ) -> "Exchanges":
        return cls(
            received,
            sequence,
            tuple(
                _KeptSent(
                    one.packet_id,
                    one.position.source,
                    one.position.shard.home,
                    one.position.shard.number,
                    one.position.offset,
                    one.qos,
                    one.is_released,
                )
                for one in sent
            ),
            tuple(stored),
            lasts or {},
        )

    def unfinished(self) -> list[Sent]:
        return [
            Sent(
                one.packet_id,
                MessagePosition(one.source, Shard(one.home, one.shard), one.offset),
                one.qos,
                one.is_released,
            )
            for one in self.sent
        ]


_filters = msgspec.msgpack.Decoder(list[KeptFilter])
_exchanges = msgspec.msgpack.Decoder(Exchanges)
_encode = msgspec.msgpack.Encoder().encode


def encode_filters(filters: list[KeptFilter]) -> bytes:
    return _encode(filters)


def decode_filters(data: bytes) -> list[KeptFilter]:
    return _filters.decode(data) if data else []


def decode_exchanges(data: bytes) -> Exchanges:
    return _exchanges.decode(data) if data else Exchanges()


class Keeping(Protocol):
    """A durable session, as it is kept."""

    name: str

    @property
    def epoch(self) -> int: ...

    def exchanges(self) -> Exchanges:
        """As they are now."""
        ...

    def taken_over(self) -> None:
        """It is another's: nothing of it was written."""
        ...


class ExchangeCommits:
    """Gathers what changed of all clients of the node."""

    def __init__(self, sessions: MqttSessions) -> None:
        self._sessions = sessions
        self._waiting: dict[Keeping, list[tuple[Callable[[], None], Callable[[], None]]]] = {}
        self._task: asyncio.Task[None] | None = None

    def keep(
        self,
        session: Keeping,
        then: Callable[[], None],
        otherwise: Callable[[], None] = lambda: None,
    ) -> None:
        """Calls back when what there is now is durable; `otherwise`, if the session is another's by then."""
        self._waiting.setdefault(session, []).append((then, otherwise))
        if self._task is None:
            self._task = asyncio.create_task(self._write())

    async def durable(self, session: Keeping) -> None:
        """Returns when it is, or when the session is another's."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def over() -> None:
            if not done.done():
                done.set_result(None)

        self.keep(session, over, over)
        await done

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, {}
                given = [(one.name, one.epoch, _encode(one.exchanges())) for one in batch]
                try:
                    held = await self._sessions.save_exchanges(given)
                except (MoorlineError, OSError) as error:
                    log.warning("exchanges of MQTT wait", extra={"error": str(error)})
                    for one, callbacks in batch.items():
                        self._waiting.setdefault(one, [])[:0] = callbacks
                    await asyncio.sleep(PEER_RETRY_MS / 1_000)
                    continue
                for one, callbacks in batch.items():
                    is_ours = one.name in held
                    if not is_ours:
                        one.taken_over()
                    for then, otherwise in callbacks:
                        (then if is_ours else otherwise)()
        finally:
            self._task = None
