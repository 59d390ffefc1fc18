"""The performer between two sets in memory, over a net that loses, repeats, delays and is cut.

Whatever differs: it ends with two equal sets, or it raises; it never says equal where they are not; and what
travels is in proportion to the difference. The same performer against a real node is in tests/services.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawing import examples

from moorline.core.sets.answerer import Answerer, InMemory
from moorline.core.sets.asker import Answered, Mode
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.memory_set import MemorySet
from moorline.core.sets.prefix import Prefix, RangeDigest
from moorline.core.sets.sketch import Salt, Words
from moorline.errors import ConnectionLost, Drifting, Malformed
from moorline.limits import RECONCILE_STARTS_MAX
from moorline.net.reconcile import Comparison, Exchange, reconcile
from moorline.testing import HandClock, UnreliableNet

SALT = Salt(bytes(range(16)))
TIMEOUT_MS = 1_000
TRIES_MAX = 60
ENCODER = msgspec.msgpack.Encoder()


class Request(NamedTuple):
    number: int
    name: str
    values: tuple[Any, ...]


class Reply(NamedTuple):
    number: int
    value: Any


class FarSet:
    """The other side: a set in memory, its answerer, and what it is asked to change."""

    def __init__(self, ids: set[bytes]) -> None:
        self.own = MemorySet(SALT, ids)
        self.answerer = Answerer(InMemory(self.own))
        self.digests: set[Digest] = set()
        """All that it ever had when it was asked something."""
        self.disturb: Callable[[], None] = lambda: None

    async def answer(self, request: Request) -> Any:
        self.disturb()
        calls: dict[str, Callable[..., Awaitable[Any]]] = {
            "verify": self.answerer.verify,
            "ranges": self.answerer.ranges,
            "lists": self.answerer.lists,
            "change": self._change,
            "named": self._named,
        }
        value = await calls[request.name](*request.values)
        self.digests.add(self.own.digest())
        return value

    async def _change(self, added: list[bytes], removed: list[Prefix]) -> Digest:
        self.own.remove(self.own.named(removed))
        self.own.add(added)
        return self.own.digest()

    async def _named(self, prefixes: list[Prefix]) -> list[bytes]:
        return self.own.named(prefixes)


class Wire:
    """An exchange over the simulated net. A call that stays without an answer ends the connection."""

    def __init__(self, far: FarSet, net: UnreliableNet) -> None:
        self.net = net
        self.bytes = 0
        self.calls = 0
        self._far = far
        self._clock = HandClock()
        self._number = 0

    async def call(self, name: str, *values: Any) -> Any:
        self._number += 1
        self.calls += 1
        request = Request(self._number, name, values)
        self._send("near", "far", request)
        until_ms = self._clock.now_ms() + TIMEOUT_MS
        while (due_ms := self.net.next_due_ms()) is not None and due_ms <= until_ms:
            self._clock.advance(max(0, due_ms - self._clock.now_ms()))
            delivery = self.net.take(self._clock.now_ms())
            assert delivery is not None
            if isinstance(delivery.message, Request):
                value = await self._far.answer(delivery.message)
                self._send("far", "near", Reply(delivery.message.number, value))
            elif delivery.message.number == self._number:
                return delivery.message.value
        self._clock.advance(max(0, until_ms - self._clock.now_ms()))
        raise ConnectionLost("no answer came")

    def _send(self, source: str, target: str, message: Request | Reply) -> None:
        self.bytes += len(ENCODER.encode(message[1:]))
        self.net.send(source, target, message, self._clock.now_ms())

    async def verify(self, digest: Digest, estimate: bytes, cells_min: int) -> Answered:
        answered: Answered = await self.call("verify", digest, estimate, cells_min)
        return answered

    async def ranges(self, prefixes: list[Prefix]) -> list[RangeDigest]:
        told: list[RangeDigest] = await self.call("ranges", prefixes)
        return told

    async def lists(self, prefixes: list[Prefix]) -> list[bytes]:
        told: list[bytes] = await self.call("lists", prefixes)
        return told


class Pusher:
    """As a publisher does: the other side is to have what we have."""

    def __init__(self, own: MemorySet, wire: Wire) -> None:
        self.own, self.wire = own, wire

    async def own_set(self) -> IdSet:
        return self.own.frozen()

    async def repair(self, own: IdSet, missing: Words, extra: list[Prefix]) -> Digest | None:
        assert own.digest() == self.own.digest()
        digest: Digest = await self.wire.call("change", self.own.having(missing), extra)
        return digest


class Puller(Pusher):
    """As a client of records does: we are to have what the other side has."""

    async def repair(self, own: IdSet, missing: Words, extra: list[Prefix]) -> Digest | None:
        del own
        self.own.remove(self.own.having(missing))
        if extra:
            self.own.add(await self.wire.call("named", extra))
        return None


def ids_of(count: int, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(24) for _ in range(count)]


class Case(NamedTuple):
    """Ids of one side, of the other, of both; and what the net does."""

    near: int
    far: int
    both: int
    loss: float
    repeat: float
    cut: float
    seed: int


cases = st.builds(
    Case,
    near=st.integers(0, 60),
    far=st.integers(0, 60),
    both=st.integers(0, 400),
    loss=st.sampled_from([0.0, 0.05, 0.3]),
    repeat=st.sampled_from([0.0, 0.3]),
    cut=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 9_999),
)


def sides(case: Case) -> tuple[MemorySet, FarSet, Wire]:
    ids = ids_of(case.near + case.far + case.both, case.seed)
    near, far = ids[: case.near + case.both], ids[case.near :]
    net = UnreliableNet(
        random.Random(case.seed), loss=case.loss, repeat=case.repeat, delay_ms=(1, 400)
    )
    other = FarSet(set(far))
    return MemorySet(SALT, near), other, Wire(other, net)


async def settle(case: Case, repairer: Pusher, far: FarSet, wire: Wire) -> None:
    """Again and again, as one does whose connection is lost; what is proven is looked at each time."""
    chance = random.Random(case.seed)
    for attempt in range(TRIES_MAX):
        if attempt > TRIES_MAX // 2:
            wire.net.calm()
        elif chance.random() < case.cut:
            wire.net.cut("near", "far")
        else:
            wire.net.heal_all()
        try:
            digest = await reconcile("test", wire, repairer, SALT, far.own.digest())
        except (ConnectionLost, Drifting):
            continue
        assert digest == repairer.own.digest() == Digest.of(repairer.own)
        assert digest in far.digests, "equal at one moment, and not only said so"
        return
    raise AssertionError("a whole net, and no agreement")


@pytest.mark.parametrize("kind", [Pusher, Puller])
@settings(max_examples=examples(60), deadline=None)
@given(case=cases)
async def test_any_difference_ends_in_equal_sets(kind: type[Pusher], case: Case) -> None:
    near, far, wire = sides(case)
    wanted = set(near) if kind is Pusher else set(far.own)
    await settle(case, kind(near, wire), far, wire)
    assert set(near) == set(far.own) == wanted


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(case=cases, rate=st.sampled_from([0.05, 0.5, 1.0]))
async def test_a_set_that_changes_meanwhile_is_never_called_equal_falsely(
    case: Case, rate: float
) -> None:
    near, far, wire = sides(case)
    chance, fresh = random.Random(case.seed), iter(ids_of(2_000, case.seed + 1))

    def disturb() -> None:
        if chance.random() < rate:
            far.own.add([next(fresh)])

    far.disturb = disturb
    proven = None
    for _ in range(5):
        try:
            proven = await reconcile("test", wire, Pusher(near, wire), SALT, far.own.digest())
        except (ConnectionLost, Drifting):
            continue
        assert proven == near.digest()
        assert proven in far.digests
    # And in the end, when nothing changes any more, it is found.
    far.disturb = lambda: None
    await settle(case, Pusher(near, wire), far, wire)
    assert set(near) == set(far.own)


@pytest.mark.parametrize("both", [1_000, 20_000])
@pytest.mark.parametrize("apart", [1, 10, 100, 1_000])
@pytest.mark.parametrize("kind", [Pusher, Puller])
async def test_what_travels_is_in_proportion_to_the_difference(
    kind: type[Pusher], apart: int, both: int
) -> None:
    near, far, wire = sides(Case(apart // 2, apart - apart // 2, both, 0, 0, 0, 5))
    await reconcile("test", wire, kind(near, wire), SALT, far.own.digest())
    assert set(near) == set(far.own)
    # Per difference its share of the sketch, and the id or its prefix; never the set.
    assert wire.bytes < 1_200 + 45 * apart


async def test_equal_sets_cost_one_exchange() -> None:
    near, far, wire = sides(Case(0, 0, 5_000, 0, 0, 0, 1))
    assert (
        await reconcile("test", wire, Pusher(near, wire), SALT, far.own.digest()) == near.digest()
    )
    assert wire.calls == 1
    assert wire.bytes < 150


async def test_a_difference_is_found_and_nothing_is_changed() -> None:
    near, far, wire = sides(Case(3, 4, 800, 0, 0, 0, 2))
    before = far.own.digest()
    found = await Comparison("test", wire, near.frozen(), SALT, before).begin()
    shared = set(near) & set(far.own)
    assert set(near.having(found.missing)) == set(near) - shared  # type: ignore[union-attr]
    assert set(far.own.named(found.extra)) == set(far.own) - shared  # type: ignore[union-attr]
    assert far.own.digest() == before


async def test_an_own_set_that_never_rests_is_given_up() -> None:
    near, far, wire = sides(Case(3, 3, 50, 0, 0, 0, 2))
    fresh = iter(ids_of(2 * RECONCILE_STARTS_MAX, 9))

    class Restless(Puller):
        async def repair(self, own: IdSet, missing: Words, extra: list[Prefix]) -> Digest | None:
            await super().repair(own, missing, extra)
            self.own.add([next(fresh)])
            return None

    with pytest.raises(Drifting, match="our own set has changed 16 times"):
        await reconcile("test", wire, Restless(near, wire), SALT, far.own.digest())


class Lying:
    """Another side that breaks the rules, one after the other."""

    def __init__(self, answer: Answered, ranges: int, lists: list[bytes]) -> None:
        self._answer, self._ranges, self._lists = answer, ranges, lists

    async def verify(self, digest: Digest, estimate: bytes, cells_min: int) -> Answered:
        del digest, estimate, cells_min
        return self._answer

    async def ranges(self, prefixes: list[Prefix]) -> list[RangeDigest]:
        return [RangeDigest(1, 1)] * (len(prefixes) + self._ranges)

    async def lists(self, prefixes: list[Prefix]) -> list[bytes]:
        return self._lists * len(prefixes)


OTHER = Digest(3, b"o" * 16)


@pytest.mark.parametrize(
    "exchange",
    [
        Lying(Answered(OTHER, Mode.SKETCH, 10, b"short"), 0, []),
        Lying(Answered(OTHER, Mode.SKETCH, 0, b""), 0, []),
        Lying(Answered(OTHER, Mode.LIST, 0, b"odd"), 0, []),
        Lying(Answered(OTHER, Mode.EMPTY, 0, b"something"), 0, []),
        Lying(Answered(OTHER, Mode.EQUAL), -1, []),
        Lying(Answered(OTHER, Mode.EQUAL), 0, []),
        Lying(Answered(OTHER, Mode.EQUAL), 0, [b"odd"]),
    ],
)
async def test_an_answer_that_cannot_be_one_is_refused(exchange: Exchange) -> None:
    """Equal is not taken from the other side: the digests say it."""
    own = MemorySet(SALT, ids_of(20, 1)).frozen()
    with pytest.raises(Malformed):
        await Comparison("test", exchange, own, SALT, OTHER).begin()


async def test_hashes_name_ids_on_both_sides() -> None:
    """What the difference is given as, a repairer can look up."""
    near, _, _ = sides(Case(0, 0, 30, 0, 0, 0, 3))
    (one,) = near.having(hash_ids(list(near)[:1])[:, 0])
    assert one == next(iter(near))
