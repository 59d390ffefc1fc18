"""A service's client that dies at any step and moves to another node, while rows change behind its back.

The client is the real one: `Service`, its list and its reconciliation. Whatever happens, what its user has
associated is in its list or was named as lost, entering never says that all is well where messages do not
come, and a node that does not have the queues takes nothing from the list.
"""

import asyncio
import random
from collections import Counter

import pytest
from tests.client.service_world import Catalog, Link, Node, hashed

from moorline.client.associations import Associations
from moorline.client.service import Service
from moorline.core.sets.digest import Digest
from moorline.errors import ConnectionLost, WrongNode
from moorline.testing import SimulationFailed, Transcript

SEEDS, STEPS, BLOCKS = 64, 30, 4
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
        self.catalog = Catalog(self.chance.randbytes(16))
        self.home, self.away = Node("home", self.catalog), Node("away", self.catalog)
        self.home.queues = {self.chance.randbytes(24) for _ in range(POOL)}
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
        """Enters at home, changes some, and may die at any call."""
        calls_max = self.chance.choice([CALLS_MAX, self.chance.randint(1, 8)])
        try:
            async with self._service(self.home, calls_max) as service:
                self._check_agreed(service)
                for _ in range(self.chance.randint(0, 3)):
                    await self._change(service)
        except ConnectionLost:
            self.seen["died"] += 1
            self._note("died", calls_max)

    async def _change(self, service: Service) -> None:
        some = self.chance.sample(sorted(self.home.queues), self.chance.choice([1, 3, 20]))
        if self.chance.random() < 0.7:
            self._note("associate", len(some))
            # Intent is in the list before the node is asked. Who dies before the answer has asked for it.
            self.meant |= set(some)
            self.meant -= set(await service.associate(some))
        else:
            self._note("dissociate", len(some))
            self.meant -= set(some)
            await service.dissociate(some)

    async def _move(self) -> None:
        """Enters at the node that has none of the queues."""
        before, rows = self._ids(), set(self.catalog.rows)
        is_empty = self.listed.checked().is_empty or not (before or rows)
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
        assert set(self.catalog.rows) == rows or is_empty

    async def _operate(self) -> None:
        """Blocks or deletes queues, or opens them again."""
        some = set(self.chance.sample(sorted(self.home.queues), 2))
        if self.chance.random() < 0.4:
            self.home.closed -= some
            return
        self._note("closed", len(some))
        self.home.closed |= some
        self.ever_closed |= some
        for queue in some:
            self.catalog.remove(queue)
        self.meant -= some

    # --- behind everybody's back ------------------------------------------------------------------

    async def _tamper_node(self) -> None:
        """What the list still has may go."""
        safe = sorted(set(self.catalog.rows) & self._whole())
        kinds = ["kept"] + (["gone", "id", "hash"] if safe else [])
        kind = self.chance.choice(kinds)
        self._tampered("node", kind)
        if kind == "kept":
            self.catalog.kept = Digest(self.chance.randrange(9), self.chance.randbytes(16))
            return
        queue = self.chance.choice(safe)
        pair = self.catalog.rows.pop(queue)
        if kind == "id":
            self.catalog.rows[self.chance.randbytes(24)] = pair
        elif kind == "hash":
            self.catalog.rows[queue] = hashed(self.chance.randbytes(24))

    async def _tamper_list(self) -> None:
        """What the node still has may go."""
        true = {one for one, pair in self.catalog.rows.items() if pair == hashed(one)}
        safe = sorted(self._whole() & true)
        kind = self.chance.choice(["digest"] + (["gone", "id", "hash"] if safe else []))
        self._tampered("list", kind)
        queue = self.chance.choice(safe) if safe else b""
        other = self.chance.randbytes(self.chance.choice([24, 24, 5]))
        statements = {
            "digest": ("update digest set count = 3, low = low + 1", ()),
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
        link = Link(node, self.chance, calls_max)
        return Service(link, self.listed, window=1)  # type: ignore[arg-type]

    def _check_agreed(self, service: Service) -> None:
        self.seen["agreed"] += 1
        self.seen["mended"] += service.report.mended > 0
        self.seen["restored"] += service.report.restored > 0
        check, ids = self.listed.checked(), self._ids()
        assert (check.wrong_hashes, check.is_digest_right, check.is_doubtful) == (0, True, False)
        assert check.home == (self.home.id, "home") or not ids
        assert service.report.digest == Digest.of(ids) == self.catalog.kept
        assert set(self.catalog.rows) == ids <= self.home.queues, (
            "equal means that the messages come"
        )
        lost = {one for one in service.report.lost if one in self.home.queues}
        assert lost <= self.ever_closed, "only what the node has closed is lost"
        assert self.meant - lost <= ids, "nothing that was asked for is gone without a word"
        self.meant -= lost

    async def _finish(self) -> None:
        self._note("calm")
        async with self._service(self.home, CALLS_MAX) as service:
            self._check_agreed(service)

    def _ids(self) -> set[bytes]:
        return {row[0] for row in self.listed._db.execute("select queue from association")}

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
    for kind in ("died", "refused", "agreed", "mended", "restored"):
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
    one.catalog.remove(closed)
    # OpenService, SubscribeService, Associate; the next one is lost.
    with pytest.raises(ConnectionLost):
        async with one._service(one.home, 4):
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
