"""A service's client that dies at any step and moves between nodes, while rows change behind its back.

Its queues are at two homes, and the node of the second is away now and then. The client is the real one:
`Service`, its list and its reconciliation. Whatever happens, what its user has associated is in its list
or was named as lost, entering never says that all is well where messages do not come, the part of a home
that is away is as it was and named, and a cluster that does not have the queues takes nothing from the list.
"""

import asyncio
import random
from collections import Counter

import pytest
from tests.client.service_world import Catalog, Epochs, Links, Node, hashed

from moorline.client.associations import Associations
from moorline.client.service import Service
from moorline.core.sets.digest import Digest
from moorline.errors import ConnectionLost, HomeAway, WrongNode
from moorline.testing import SimulationFailed, Transcript

SEEDS, STEPS, BLOCKS = 64, 30, 4
CALM_MAX = 50
"""Connections to the other home that die one after the other; each does with a chance of one half."""
POOL = 60
CALLS_MAX = 1_000_000


class KeptList(Associations):
    """A list in memory that outlives its client, as a file does."""

    def close(self) -> None:
        pass


class Simulation:
    """One run from one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.transcript = Transcript()
        self.seen: Counter[str] = Counter()
        salt, epochs = self.chance.randbytes(16), Epochs()
        self.nodes = [Node(name, Catalog(salt, epochs)) for name in ("home", "port")]
        self.home, self.port = self.nodes
        self.away = Node("away", Catalog(salt))
        """Of another cluster."""
        for node in self.nodes:
            node.queues = {self.chance.randbytes(20) + node.home for _ in range(POOL)}
        self.listed = KeptList(":memory:")
        self.meant: set[bytes] = set()
        """What the user has asked for and not given up; whatever leaves it was named to the user."""
        self.ever_closed: set[bytes] = set()
        self.steps = 0

    async def run(self) -> "Simulation":
        try:
            for _ in range(STEPS):
                self.steps += 1
                await self._step()
            await self._finish()
        except Exception as error:
            raise SimulationFailed(
                error, seed=self.seed, step=self.steps, transcript=self.transcript, replay=replay
            ) from error
        finally:
            Associations.close(self.listed)
        return self

    async def _step(self) -> None:
        acts = [self._use, self._move, self._operate, self._tamper_node, self._tamper_list]
        await self.chance.choices(acts, [5, 2, 1, 2, 2])[0]()

    # --- what the user does -----------------------------------------------------------------------

    async def _use(self) -> None:
        """Enters at one of the nodes, changes some, and may die at any call; the other may be away."""
        calls_max = self.chance.choice([CALLS_MAX, self.chance.randint(1, 12)])
        entry, other = self.chance.sample(self.nodes, 2)
        other.is_away = self.chance.random() < 0.3
        before = dict(other.catalog.rows)
        try:
            async with self._service(entry, calls_max) as service:
                if other.is_away:
                    self.seen["away"] += 1
                    assert other.catalog.rows == before, "nobody else changes its part"
                self._check_agreed(service)
                for _ in range(self.chance.randint(0, 3)):
                    await self._change(service)
        except ConnectionLost:
            self.seen["died"] += 1
            self._note("died", calls_max)
        finally:
            other.is_away = False

    async def _change(self, service: Service) -> None:
        pool = sorted(self.home.queues | self.port.queues)
        some = self.chance.sample(pool, self.chance.choice([1, 3, 20]))
        try:
            if self.chance.random() < 0.7:
                self._note("associate", len(some))
                # Intent is in the list before the node is asked. Who dies before the answer has asked for it.
                self.meant |= set(some)
                self.meant -= set(await service.associate(some))
            else:
                self._note("dissociate", len(some))
                self.meant -= set(some)
                await service.dissociate(some)
        except HomeAway:
            self.seen["put off"] += 1
            # What the nodes that are there have refused has left the list, and was not told.
            self.meant &= self._ids() | self._open()

    async def _move(self) -> None:
        """Enters at a node of another cluster, which has none of the queues."""
        before, rows = self._ids(), set(self.away.catalog.rows)
        is_empty = self.listed.checked().is_empty or not before
        self.seen["moved"] += 1
        self._note("move", len(before))
        try:
            async with self._service(self.away, self.chance.choice([CALLS_MAX, 2, 3])) as service:
                assert is_empty, "equal proves nothing at a node that does not have the queues"
                assert service.report.lost == []
        except WrongNode:
            self.seen["refused"] += 1
            # A row that can be no id is set aside; nothing else leaves the list.
            assert {one for one in before if len(one) == 24} == self._ids()
        except ConnectionLost:
            pass
        assert set(self.away.catalog.rows) == rows or is_empty

    async def _operate(self) -> None:
        """Blocks or deletes queues, or opens them again."""
        node = self.chance.choice(self.nodes)
        some = set(self.chance.sample(sorted(node.queues), 2))
        if self.chance.random() < 0.4:
            node.closed -= some
            return
        self._note("closed", len(some))
        node.closed |= some
        self.ever_closed |= some
        for queue in some:
            node.catalog.remove(queue)
        self.meant -= some

    # --- behind everybody's back ------------------------------------------------------------------

    async def _tamper_node(self) -> None:
        """What the list still has may go."""
        catalog = self.chance.choice(self.nodes).catalog
        safe = sorted(set(catalog.rows) & self._whole())
        kinds = ["kept"] + (["gone", "id", "hash"] if safe else [])
        kind = self.chance.choice(kinds)
        self._tampered("node", kind)
        if kind == "kept":
            catalog.kept = Digest(self.chance.randrange(9), self.chance.randbytes(16))
            return
        queue = self.chance.choice(safe)
        pair = catalog.rows.pop(queue)
        if kind == "id":
            catalog.rows[self.chance.randbytes(24)] = pair
        elif kind == "hash":
            catalog.rows[queue] = hashed(self.chance.randbytes(24))

    async def _tamper_list(self) -> None:
        """What the node still has may go."""
        true = {
            one
            for node in self.nodes
            for one, pair in node.catalog.rows.items()
            if pair == hashed(one)
        }
        safe = sorted(self._whole() & true)
        kind = self.chance.choice(["digest"] + (["gone", "id", "hash"] if safe else []))
        self._tampered("list", kind)
        queue = self.chance.choice(safe) if safe else b""
        other = self.chance.randbytes(self.chance.choice([24, 24, 5]))
        home = self.chance.choice(self.nodes).home
        statements = {
            "digest": ("update digest set count = 3, low = low + 1 where home = ?", (home,)),
            "gone": ("delete from association where queue = ?", (queue,)),
            "id": ("update association set queue = ? where queue = ?", (other, queue)),
            "hash": ("update association set high = high + 1 where queue = ?", (queue,)),
        }
        self.listed._db.execute(*statements[kind])

    def _tampered(self, side: str, kind: str) -> None:
        self.seen[f"{side} {kind}"] += 1
        self._note("tampered", f"{side} {kind}")

    # --- what must hold ---------------------------------------------------------------------------

    def _service(self, node: Node, calls_max: int) -> Service:
        self._note("enter", f"{node.name}, {calls_max} calls")
        return Service(Links(node, self.chance, calls_max), self.listed)  # type: ignore[arg-type]

    def _check_agreed(self, service: Service) -> None:
        self.seen["agreed"] += 1
        self.seen["mended"] += service.report.mended > 0
        self.seen["restored"] += service.report.restored > 0
        check, ids = self.listed.checked(), self._ids()
        there = [node for node in self.nodes if node.name in service.report.parts]
        assert sorted([node.name for node in there] + service.report.away) == sorted(
            {*service.report.parts, *service.report.away}
        ), "a home is proven or away, and never both"
        proven = Digest.empty()
        for node in there:
            part = check.part(node.home)
            assert (part.is_digest_right, part.is_doubtful) == (True, False)
            listed = self._ids(node.home)
            assert Digest.of(listed) == part.own.digest() == node.catalog.kept
            assert service.report.parts[node.name] == node.catalog.kept
            assert set(node.catalog.rows) == listed <= node.queues, (
                "equal means that the messages come"
            )
            proven = proven.merge(node.catalog.kept)
        assert service.report.digest == proven
        lost = {one for one in service.report.lost if one in self.home.queues | self.port.queues}
        assert lost <= self.ever_closed, "only what the node has closed is lost"
        # A part in doubt whose home is away gets back what it lacks when that is there.
        reached = {one for node in there for one in node.queues}
        kept = self.meant & reached
        assert kept - lost <= ids, "nothing that was asked for is gone without a word"
        self.meant -= lost

    async def _finish(self) -> None:
        """Where the connection to the other home is cut too, it is whole when it is entered again."""
        self._note("calm")
        for _ in range(CALM_MAX):
            async with self._service(self.home, CALLS_MAX) as service:
                self._check_agreed(service)
                if not service.away:
                    assert set(self._ids()) == set(self.home.catalog.rows) | set(
                        self.port.catalog.rows
                    )
                    return
        raise AssertionError("no home is away, and one was never reached")

    def _ids(self, home: bytes | None = None) -> set[bytes]:
        rows = self.listed._db.execute("select queue, home from association").fetchall()
        return {row[0] for row in rows if home in (None, row[1])}

    def _open(self) -> set[bytes]:
        return {one for node in self.nodes for one in node.queues - node.closed}

    def _whole(self) -> set[bytes]:
        """What the list has, under its own hash; nothing while it may be out of step already."""
        rows = self.listed._db.execute("select queue, high, low from association").fetchall()
        mask = (1 << 64) - 1
        return {row[0] for row in rows if (row[1] & mask, row[2] & mask) == hashed(row[0])}

    def _note(self, what: str, detail: object = "") -> None:
        self.transcript.add(self.steps, what, detail)


def replay(seed: int) -> Simulation:
    return asyncio.run(Simulation(seed).run())


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_client_that_dies_and_moves_loses_nothing_in_silence(block: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(block * SEEDS // BLOCKS, (block + 1) * SEEDS // BLOCKS):
        seen += replay(seed).seen
    # A simulation in which something never happens proves nothing about it.
    for kind in ("died", "refused", "agreed", "mended", "restored", "away", "put off"):
        assert seen[kind] > 3, seen
    for side in ("node kept", "node gone", "node id", "node hash"):
        assert seen[side] > 3, seen
    for side in ("list digest", "list gone", "list id", "list hash"):
        assert seen[side] > 3, seen


# --- what seeds have found, made certain ----------------------------------------------------------


@pytest.mark.parametrize("seed", [1010, 1011, 1012, 1330, 1362])
def test_seeds_that_once_failed(seed: int) -> None:
    replay(seed)


async def test_what_was_refused_before_a_death_is_told_by_the_next_report() -> None:
    """Between the refusal and the agreement nobody has read a report."""
    one = Simulation(1)
    closed, other = sorted(one.home.queues)[:2]
    async with one._service(one.home, CALLS_MAX) as service:
        assert await service.associate([closed, other]) == []
    one.home.closed.add(closed)
    one.home.catalog.remove(closed)
    # OpenService, ListServiceParts, SubscribeService, Associate; the next one is lost.
    with pytest.raises(ConnectionLost):
        async with one._service(one.home, 5):
            pass
    assert one._ids() == {other}
    for told in ([closed], []):
        async with one._service(one.home, CALLS_MAX) as service:
            assert service.report.lost == told
    Associations.close(one.listed)


async def test_a_list_that_lost_all_of_its_rows_is_not_an_empty_one() -> None:
    """An empty list may go to any node; one that says it had queues may not."""
    one = Simulation(1)
    queues = sorted(one.home.queues)[:5]
    async with one._service(one.home, CALLS_MAX) as service:
        assert await service.associate(queues) == []
    one.listed._db.execute("delete from association")
    for _ in range(2):
        with pytest.raises(WrongNode):
            async with one._service(one.away, CALLS_MAX):
                pass
    async with one._service(one.home, CALLS_MAX) as service:
        assert service.report.restored == 5
        assert one._ids() == set(queues)
    Associations.close(one.listed)
