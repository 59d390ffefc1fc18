"""Some nodes of one catalog, and the net to them, for simulations of the real client of a service.

Each node has a home, and the catalog a part of the service for each of them. A node can be away.

The nodes answer with the functions of `core.sets.asker`. The net loses requests and replies, and
whatever a
step asks for is lost from some call on: so a client dies at any of them.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from moorline.core.sets.answerer import sketch_or_list
from moorline.core.sets.asker import Mode
from moorline.core.sets.digest import Digest
from moorline.core.sets.estimate import ESTIMATE_BYTES, Estimate
from moorline.core.sets.hashing import hash_ids, misfits
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.prefix import Prefix
from moorline.core.sets.sketch import Salt
from moorline.errors import CallFailed, ConnectionLost, Elsewhere, Unreachable
from moorline.wire.link import Welcome
from moorline.wire.message import Answer, Failed, Message
from moorline.wire.service import (
    PAYLOAD_PER_BLOCK,
    AskLists,
    AskRanges,
    Associate,
    Associated,
    Dissociate,
    Dissociated,
    ListServiceParts,
    ListsTold,
    OpenService,
    PartFacts,
    RangesTold,
    ServiceOpened,
    ServicePartsListed,
    ServiceSubscribed,
    SubscribeService,
)
from moorline.wire.service_operator import ListServiceQueues, ServiceQueuesListed

SERVICE = b"S" * 24


class Epochs:
    """Who has the service, at all nodes."""

    def __init__(self) -> None:
        self.epoch = 1
        self.nodes: dict[bytes, Node] = {}
        """By the numbers of their homes."""


class Catalog:
    """One part of one service: its rows, each with the hash that is stored beside its id, and the kept
    digest."""

    def __init__(self, salt: bytes, epochs: Epochs | None = None) -> None:
        self.epochs = epochs or Epochs()
        self.salt = salt
        self.rows: dict[bytes, tuple[int, int]] = {}
        self.kept = Digest.empty()
        self.put_rights = 0

    def stored(self) -> IdSet:
        pairs = np.array(list(self.rows.values()), np.uint64).reshape(-1, 2)
        return IdSet(pairs[:, 0], pairs[:, 1])

    def add(self, queue: bytes) -> None:
        """Membership decides before XOR does."""
        if queue not in self.rows:
            self.rows[queue] = hashed(queue)
            self._mix(self.rows[queue], 1)

    def remove(self, queue: bytes) -> None:
        if queue in self.rows:
            self._mix(self.rows.pop(queue), -1)

    def put_right(self) -> None:
        """What a node does before it tells a SOKS: the ids are the truth."""
        ids = list(self.rows)
        stored = np.array([self.rows[one] for one in ids], np.uint64).reshape(-1, 2)
        hashes, wrong = misfits(ids, stored)
        self.rows = {
            one: (int(high), int(low)) for one, (high, low) in zip(ids, hashes, strict=True)
        }
        true = Digest.of(ids)
        self.put_rights += bool(len(wrong)) or true != self.kept
        self.kept = true

    def named(self, prefixes: Sequence[tuple[int, int]]) -> list[bytes]:
        found: list[bytes] = []
        for prefix in (Prefix(*pair) for pair in prefixes):
            inside = [
                one for one, (high, _) in self.rows.items() if prefix.first <= high <= prefix.last
            ]
            found += inside if prefix.bits == 0 or len(inside) == 1 else []
        return found

    def _mix(self, pair: tuple[int, int], sign: int) -> None:
        high, low = pair
        mixed = int.from_bytes(self.kept.hash, "big") ^ (high << 64 | low)
        self.kept = Digest(self.kept.count + sign, mixed.to_bytes(16, "big"))


class Node:
    """One node: the queues that it has, and those of them that its operator has closed."""

    def __init__(self, name: str, catalog: Catalog) -> None:
        self.name = name
        self.id = name.encode().ljust(24, b"-")
        self.catalog = catalog
        self.home = name.encode().ljust(4, b"-")[:4]
        self.is_away = False
        self.queues: set[bytes] = set()
        self.closed: set[bytes] = set()
        catalog.epochs.nodes[self.home] = self

    def answer(self, message: Message) -> Answer:
        catalog = self.catalog
        match message:
            case OpenService(call):
                kept = catalog.kept
                return ServiceOpened(
                    *(call, SERVICE, catalog.salt, kept.count, kept.hash, self.id),
                    *(self.home, catalog.epochs.epoch),
                )
            case ListServiceParts(call):
                nodes = catalog.epochs.nodes
                facts = tuple(nodes[home].facts() for home in sorted(nodes))
                return ServicePartsListed(call, 0, bytes(16), facts, is_last=True)
            case Associate(call, queues):
                return self._associate(call, queues)
            case Dissociate(call, prefixes):
                named = catalog.named(prefixes)
                for queue in named:
                    catalog.remove(queue)
                return Dissociated(call, len(named), catalog.kept.count, catalog.kept.hash)
            case SubscribeService():
                return self._subscribe(message)
            case AskRanges(call, prefixes):
                wanted = [Prefix(*pair) for pair in prefixes]
                return RangesTold(call, catalog.stored().ranges(wanted))
            case AskLists(call, prefixes):
                own = catalog.stored()
                highs = [own.highs(Prefix(*pair)).astype(">u8").tobytes() for pair in prefixes]
                return ListsTold(call, highs)
            case ListServiceQueues(call, _, after, count):
                return ServiceQueuesListed(call, catalog.kept.count, self._page(after, count))
            case _:
                raise AssertionError(f"nobody asks {message}")

    def facts(self) -> PartFacts:
        kept = self.catalog.kept
        return PartFacts(
            *(self.home, self.name, self.id, self.name, (), not self.is_away),
            *(kept.count, kept.hash),
        )

    def _associate(self, call: int, queues: list[bytes]) -> Answer:
        refused, elsewhere = [], []
        before = len(self.catalog.rows)
        others = [node for node in self.catalog.epochs.nodes.values() if node is not self]
        for queue in queues:
            if queue not in self.queues:
                found = next((node for node in others if queue in node.queues), None)
                if found is not None:
                    elsewhere.append((queue, found.home))
                else:
                    refused.append((queue, "NOT_FOUND"))
            elif queue in self.closed:
                refused.append((queue, "BLOCKED"))
            else:
                self.catalog.add(queue)
        kept = self.catalog.kept
        changed = len(self.catalog.rows) - before
        told = tuple(refused), tuple(elsewhere)
        return Associated(call, changed, kept.count, kept.hash, *told)

    def _subscribe(self, asked: SubscribeService) -> Answer:
        assert asked.home == self.home, "a part is compared with the node that has its home"
        epochs = self.catalog.epochs
        if not asked.epoch:
            epochs.epoch += 1
        elif asked.epoch != epochs.epoch:
            return Failed(asked.call, "TAKEN_OVER", "another one has it")
        self.catalog.put_right()
        own, kept = self.catalog.stored(), self.catalog.kept
        salt = Salt(self.catalog.salt)
        differences = None
        if len(asked.estimate) == ESTIMATE_BYTES:
            differences = own.estimate(salt).differences(Estimate.parse(salt, asked.estimate))
        theirs = Digest(asked.count, asked.hash)
        mode, cells = sketch_or_list(kept, theirs, differences, asked.cells_min)
        payload = b""
        if mode is Mode.SKETCH:
            payload = bytes(own.sketch(salt, cells))
        elif mode is Mode.LIST:
            payload = own.high.astype(">u8").tobytes()
        assert len(payload) <= PAYLOAD_PER_BLOCK, "few queues: one block holds it"
        return ServiceSubscribed(
            *(asked.call, kept.count, kept.hash, mode.value, cells, len(payload), payload),
            absent=len(self.catalog.rows.keys() - self.queues),
            home=self.home,
            epoch=epochs.epoch,
        )

    def _page(self, after: bytes, count: int) -> list[bytes]:
        ordered = sorted(self.catalog.rows, key=lambda one: (self.catalog.rows[one], one))
        start = ordered.index(after) + 1 if after in ordered else 0
        return ordered[start : start + count]


class Link:
    """A connection to one node, in place of a `Caller`. Some call of it is the last one."""

    def __init__(self, node: Node, chance: random.Random, calls_max: int) -> None:
        self.node = Welcome(1, node.name, home=node.name)
        self.lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._node = node
        self._chance = chance
        self._left = calls_max
        self._next = 1

    @property
    def is_open(self) -> bool:
        return not self.lost.done()

    def check_loop(self) -> None:
        pass

    def cast(self, make: Callable[[int], Message]) -> None:
        pass

    async def call(self, make: Callable[[int], Message], reply: type[Any]) -> Any:
        (answer,) = await self.call_all([make])
        if isinstance(answer, Failed):
            raise CallFailed.of(answer.code, answer.text)
        assert isinstance(answer, reply)
        return answer

    async def call_all(self, makes: Sequence[Callable[[int], Message]]) -> list[Answer]:
        answers = []
        for make in makes:
            self._next += 1
            self._left -= 1
            if self._left <= 0 or self._node.is_away:
                # The last one may have reached the node, and its answer is lost.
                if self._chance.random() < 0.5 and self.is_open:
                    self._node.answer(make(self._next))
                error = ConnectionLost("lost")
                if self.is_open:
                    self.lost.set_result(error)
                raise error
            answers.append(self._node.answer(make(self._next)))
        return answers


class Links:
    """The connection of a client to one node, and those to the homes of others, which may be away."""

    def __init__(self, node: Node, chance: random.Random, calls_max: int) -> None:
        self.here = Link(node, chance, calls_max)
        self._nodes = node.catalog.epochs.nodes
        self._chance = chance
        self._others: list[Link] = []

    async def at_home(self, told: Elsewhere) -> Link:
        (node,) = [node for node in self._nodes.values() if node.name == told.home]
        if node.is_away:
            raise Unreachable(f"{node.name} is away")
        calls_max = self._chance.choice([1_000_000, self._chance.randint(1, 8)])
        link = Link(node, self._chance, calls_max)
        self._others.append(link)
        return link


def hashed(queue: bytes) -> tuple[int, int]:
    high, low = hash_ids([queue])[0].tolist()
    return high, low
