"""Which nodes there are, and the secret: as the catalog says, and for a stated time as it said last."""

import asyncio

import pytest

from moorline.access import known_nodes
from moorline.access.known_nodes import KnownNodes
from moorline.core.access.node_proof import ClusterSecrets

STALE_MS = 25_000


class Source:
    def __init__(self) -> None:
        self.homes = frozenset({"a", "b"})
        self.known = ClusterSecrets(b"secret")
        self.failure: type[Exception] | None = None
        self.hangs = False
        self.asked = 0

    async def secrets(self) -> ClusterSecrets:
        await self._reach()
        return self.known

    async def node_homes(self) -> frozenset[str]:
        await self._reach()
        return self.homes

    async def _reach(self) -> None:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure("the catalog is away")


class World:
    def __init__(self) -> None:
        self.now_ms = 1_000
        self.source = Source()
        self.nodes = KnownNodes(
            self.source, revocation_ms=2_000, stale_ms=STALE_MS, now_ms=lambda: self.now_ms
        )


@pytest.fixture
def world() -> World:
    return World()


async def test_with_the_catalog_it_says_what_that_says_now(world: World) -> None:
    assert await world.nodes.homes() == {"a", "b"}
    world.source.homes = frozenset({"a"})
    assert await world.nodes.homes() == {"a"}
    assert (await world.nodes.secrets()).taken() == (b"secret",)


async def test_without_it_what_is_known_goes_on_for_the_stated_time_and_no_longer(
    world: World,
) -> None:
    await world.nodes.look()
    world.source.failure = ConnectionResetError
    world.now_ms += STALE_MS
    assert await world.nodes.homes() == {"a", "b"}
    assert (await world.nodes.secrets()).taken() == (b"secret",)
    world.now_ms += 1
    for ask in (world.nodes.homes, world.nodes.secrets):
        with pytest.raises(ConnectionResetError):
            await ask()
    world.source.failure = None
    assert await world.nodes.homes() == {"a", "b"}


async def test_a_secret_that_was_renewed_ends_also_while_the_catalog_is_away(world: World) -> None:
    world.source.known = ClusterSecrets(b"new", b"old", 5_000)
    await world.nodes.look()
    assert (await world.nodes.secrets()).taken() == (b"old", b"new")
    world.source.failure = ConnectionResetError
    world.now_ms += 4_999
    assert (await world.nodes.secrets()).taken() == (b"old", b"new")
    world.now_ms += 1
    assert (await world.nodes.secrets()).taken() == (b"new",)
    assert "old" not in repr(world.source.known)


async def test_what_was_never_heard_is_not_known(world: World) -> None:
    world.source.failure = ConnectionResetError
    with pytest.raises(ConnectionResetError):
        await world.nodes.homes()


async def test_a_catalog_that_hangs_keeps_one_waiting_and_not_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_nodes, "PROOF_CATALOG_MS_MAX", 10)
    await world.nodes.look()
    world.source.hangs = True
    with pytest.raises(TimeoutError):
        await world.nodes.look()
    asked = world.source.asked
    assert await world.nodes.homes() == {"a", "b"}
    assert world.source.asked == asked, "it was known that nobody answers"


async def test_a_look_tells_of_nodes_that_left_also_behind_a_silence(world: World) -> None:
    await world.nodes.look()
    world.source.failure = ConnectionResetError
    with pytest.raises(ConnectionResetError):
        await world.nodes.look()
    world.source.failure, world.source.homes = None, frozenset({"a"})
    assert await world.nodes.look() == {"a"}
    assert await world.nodes.homes() == {"a"}
