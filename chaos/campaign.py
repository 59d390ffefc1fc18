"""A campaign: rounds of faults under load, each followed by calm in which all that is owed must come."""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import asyncpg
import msgspec

import moorline
from chaos import damage, faults, operator_load
from chaos.archiving import ARCHIVE, Archiving
from chaos.checker import Verdict, check
from chaos.history import History, Mishap, Reader, Sent, Stored
from chaos.load import Load, until
from chaos.queue_load import QueueReader, Sender
from chaos.service_load import ServiceClient
from chaos.topic_load import AUDIT, FILTER, QUEUED, SESSION, SHARED, Member, Publisher, audit
from chaos.world import World

QUEUES_PER_NODE = 3
SERVICE_QUEUES, SERVICE_OTHERS = 12, 40
PATIENCE_S = 90
"""For everything to come when all faults are undone. The machine may be busy."""
FLOW_S = 1.5
"""Of load before, between and behind the faults of a round."""


class Options(msgspec.Struct, frozen=True):
    seed: int
    minutes: float
    rounds: int
    """0 is what time allows."""
    archive: bool
    names: tuple[str, ...] = ()
    """Faults to draw from; empty is all."""


class Told(msgspec.Struct, frozen=True):
    """A line of the report while it runs."""

    round: int
    what: str
    seconds: float


class Outcome(msgspec.Struct):
    """What a campaign was, and what it found."""

    seed: int
    rounds: int = 0
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    not_made: dict[str, str] = msgspec.field(default_factory=dict)
    seconds: float = 0.0
    every_byte: str = ""
    """What became of a journal that was harmed at every byte; empty if it was not."""
    verdict: Verdict = msgspec.field(default_factory=Verdict)
    history: History = msgspec.field(default_factory=History)


class Campaign:
    """One world, one load, one history; `tell` hears of every fault as it is over."""

    def __init__(self, folder: Path, options: Options, tell: Callable[[Told], None]) -> None:
        self.outcome = Outcome(options.seed)
        self._folder = folder
        self._options = options
        self._tell = tell
        self._began = time.monotonic()
        self._faults = faults.drawn(random.Random(options.seed), options.names)

    async def run(self) -> Outcome:
        history = self.outcome.history
        async with World(self._folder, history) as world:
            if world.disk.why_not:
                self.outcome.not_made["full disk"] = world.disk.why_not
            load = Load(world, history, self._options.seed)
            services = await self._begin(world, load)
            self.say(f"{len(world.nodes)} nodes with one Postgres, and the load")
            scene = faults.Scene(world, load, services)
            try:
                await self._rounds(scene)
                if not self.outcome.verdict.violations:
                    await self._last(scene)
            finally:
                await load.end()
            await world.look()
        self.outcome.verdict = check(history)
        self.outcome.seconds = time.monotonic() - self._began
        return self.outcome

    # --- the load ---------------------------------------------------------------------------------

    async def _begin(self, world: World, load: Load) -> list[ServiceClient]:
        history = load.history
        services = []
        for node in world.nodes.values():
            async with moorline.connect(node.address, reconnect=False) as moor:
                queues = [queue.id for queue in await moor.create_queues(QUEUES_PER_NODE)]
            load.begin(Sender(load, f"send-{node.name}", node, queues))
            for number, queue in enumerate(queues):
                load.begin(QueueReader(load, f"read-{node.name}{number}", node, queue))
            load.begin(Publisher(load, f"once-{node.name}", node, is_numbered=True))
            load.begin(Publisher(load, f"plain-{node.name}", node, is_numbered=False))
        for name in ("a", "b"):
            node, file = world.nodes[name], self._folder / f"service-{name}.sqlite"
            title = f"service-{name}"
            client = ServiceClient(load, title, node, file, world.certificates.service(title))
            await client.found(SERVICE_QUEUES, SERVICE_OTHERS)
            load.begin(client)
            load.begin(Sender(load, f"serve-{name}", node, client.own))
            services.append(client)
        async with moorline.connect(world.nodes["a"].address, reconnect=False) as moor:
            for group in (SHARED, QUEUED):
                await moor.group(group).create(start="beginning", deliveries_max=0)
        history.add_reader(Reader(SHARED, is_ordered=True))
        history.add_reader(Reader(QUEUED, is_ordered=False))
        history.add_reader(Reader(SESSION, is_ordered=True))
        for group, number in itertools.product((SHARED, QUEUED), (1, 2, 3)):
            # Every third one has a session that outlives its connections.
            session = f"{group[1]}-member" if number == 3 else ""
            load.begin(Member(load, f"member-{group[1]}{number}", group, group, session))
        load.begin(Member(load, SESSION, SESSION, FILTER, SESSION))
        load.begin(operator_load.Operator(load))
        return services

    # --- rounds -----------------------------------------------------------------------------------

    async def _rounds(self, scene: faults.Scene) -> None:
        ends = self._began + self._options.minutes * 60
        while not 0 < self._options.rounds <= self.outcome.rounds:
            self.outcome.rounds += 1
            scene.load.resume()
            await self._round(scene)
            await self.settle(scene)
            self.outcome.verdict = check(scene.history)
            if self.outcome.verdict.violations or time.monotonic() > ends:
                return

    async def _round(self, scene: faults.Scene) -> None:
        chance = random.Random(f"{self._options.seed}/{self.outcome.rounds}")
        names = itertools.islice(self._faults, chance.choice((1, 2, 2, 3)))
        await asyncio.sleep(FLOW_S * chance.random())
        async with asyncio.TaskGroup() as together:
            for name in names:
                own = random.Random(chance.random())
                together.create_task(self._fault(scene, name, own))
        await asyncio.sleep(FLOW_S * chance.random())

    async def _fault(self, scene: faults.Scene, name: str, chance: random.Random) -> None:
        await asyncio.sleep(FLOW_S * chance.random())
        told = await faults.FAULTS[name][1](scene, chance)
        if told:
            self.outcome.faults[name] += 1
            self.say(told)

    def say(self, what: str) -> None:
        self._tell(Told(self.outcome.rounds, what, time.monotonic() - self._began))

    # --- calm -------------------------------------------------------------------------------------

    async def settle(self, scene: faults.Scene) -> None:
        """All faults are undone and nothing new is made: what is owed must come, and be stored."""
        history, world = scene.history, scene.world
        await scene.load.pause()
        await self._look(scene)
        for service in scene.services:
            if told := await service.mend():
                self.say(told)
        if not await until(lambda: not self._owed(history), PATIENCE_S / 3):
            # A queue that was set aside as damaged waits for its repair.
            await self._repair(scene)
            await until(lambda: not self._owed(history), PATIENCE_S)
        if await until(lambda: self._is_stored(history, world.dsn), PATIENCE_S):
            history.note(Stored())
        else:
            history.note(Mishap("what was acknowledged is not in the catalog"))
        for service in scene.services:
            await service.prove()
        await operator_load.look(scene.load, world.nodes["a"].address)
        await self._look(scene)
        self.say(f"calm: {history.answered_calls():,} calls answered so far")

    def _owed(self, history: History) -> bool:
        return any(history.unread_messages(queue) for queue in list(history.unread)) or any(
            history.missing(reader) for reader in (SHARED, QUEUED, SESSION)
        )

    async def _look(self, scene: faults.Scene) -> None:
        await scene.world.look()
        for text in scene.load.failed():
            scene.history.note(Mishap(f"an actor ended: {text}"))

    async def _repair(self, scene: faults.Scene) -> None:
        """As an operator would, while the nodes run: each queue whose messages do not come."""
        history = scene.history
        node_of = {one.queue: one.node for one in history.events if isinstance(one, Sent)}
        for queue in [queue for queue in history.unread if history.unread_messages(queue)]:
            node = scene.world.nodes[node_of[queue]]
            problems = await damage.repair_queue(node, queue, history)
            if problems:
                self.say(f"queue {queue} of {node.name} repaired: {'; '.join(problems)}")

    async def _is_stored(self, history: History, dsn: str) -> bool:
        """Whether the catalog has the places of all readers behind what they acknowledged."""
        wanted = history.done_upto()
        catalog = await asyncpg.connect(dsn)
        try:
            rows = await catalog.fetch(
                "select coalesce('$' || g.mode || '/' || g.name || '/' || g.filter, r.session) as reader, "
                "p.node, p.shard, p.offset_low from moorline.progress p "
                "join moorline.reader r on r.number = p.reader "
                "left join moorline.shared_group g on g.number = r.shared_group"
            )
        finally:
            await catalog.close()
        stored = {(row["reader"], row["node"], row["shard"]): row["offset_low"] for row in rows}
        return all(stored.get(place, 0) >= upto for place, upto in wanted.items())

    # --- the end ----------------------------------------------------------------------------------

    async def _last(self, scene: faults.Scene) -> None:
        """Everything is read once more from the beginning, and archived."""
        history = scene.history
        history.add_reader(Reader(AUDIT, is_ordered=True))
        await audit(scene.load, scene.world.nodes["a"].address, PATIENCE_S)
        self.say("audit: all streams read from the beginning")
        if self._options.archive:
            history.add_reader(Reader(ARCHIVE, is_ordered=False, is_exact=True))
            archiving = Archiving(self._folder, history, scene.world.nodes["a"])
            chance = random.Random(f"{self._options.seed}/archive")
            for told in await archiving.run(chance, self.outcome.faults):
                self.say(f"archive: {told}")
