"""A run by chance over real processes: writers, nodes that are killed, clients that come and go.

The work is in rounds, not in time. In each round every writer has its transactions, and goes on while the
faults of that round happen; what happens is drawn from the seed, the interleaving is the machine's own.
"""

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal

import asyncpg
from chaos.proxy import LinkProxy
from tests.cluster.running import check_log
from tests.process.nodes import NodeProcess
from tests.records.bed import HIDDEN

import moorline
from moorline.client.records.table import RecordTable
from moorline.core.records.row_hash import digest_of_rows
from moorline.records.registration import Wanted, add

WRITERS = 8
KEYS = 400
WORKSPACES = (0, 1, 2, 3, 4, 5)
STATES = ("NEW", "RUN", "DONE")
PER_ROUND = 20
"""Transactions of a writer in a round, at least."""
PER_ROUND_MAX = 400
"""And at most, however long a node takes to start."""
ROLLED_BACK = 0.1
PATIENCE_S = 90.0
SOON = moorline.RecordSettings(return_ms=30, return_ms_max=300)

THINGS = """
create table things (id bigint primary key, workspace_id integer, state text, note text);
insert into things
select n, nullif(n % 7, 6), (array['NEW', 'RUN', 'DONE'])[1 + n % 3], 'first' from generate_series(1, 300) n;
"""

Held = dict[tuple[str, ...], tuple[int, dict[str, Any]]]


class Control:
    """The reader that trusts the order of numbers: `seq > last`, as often as it can. It must miss rows."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.seen: set[tuple[int, int]] = set()
        self._connection = connection
        self._last = 0

    async def look(self) -> None:
        rows = await self._connection.fetch(
            "select id, moor_seq from things where moor_seq > $1", self._last
        )
        self.seen |= {(row["id"], row["moor_seq"]) for row in rows}
        self._last = max((row["moor_seq"] for row in rows), default=self._last)

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(0.002)


class Writer:
    """Transactions by chance: some sleep in the middle, some are rolled back, whole or to a savepoint."""

    def __init__(self, connection: asyncpg.Connection, seed: str) -> None:
        self.committed = 0
        self.rolled_back = 0
        self._connection = connection
        self._chance = random.Random(seed)

    async def write(self) -> None:
        chance = self._chance
        transaction = self._connection.transaction()
        await transaction.start()
        try:
            # In the order of keys: writers wait for each other, and seldom in a circle.
            for key in sorted(chance.sample(range(1, KEYS), chance.choice((1, 1, 2, 3, 5)))):
                await self._change(key)
                if chance.random() < 0.4:
                    await asyncio.sleep(chance.random() * 0.02)
        except asyncpg.DeadlockDetectedError:
            await transaction.rollback()
            return
        if chance.random() < ROLLED_BACK:
            await transaction.rollback()
            self.rolled_back += 1
        else:
            await transaction.commit()
            self.committed += 1

    async def _change(self, key: int) -> None:
        statement = self._statement(key)
        if self._chance.random() < ROLLED_BACK:
            savepoint = self._connection.transaction()
            await savepoint.start()
            await self._connection.execute(statement)
            await savepoint.rollback()
        else:
            await self._connection.execute(statement)

    def _statement(self, key: int) -> str:
        chance = self._chance
        owner = chance.choice([*map(str, WORKSPACES), "null"])
        state = chance.choice(STATES)
        note = f"{chance.random():.6f}"
        found: str = chance.choice(
            (
                f"insert into things values ({key}, {owner}, '{state}', '{note}') on conflict do nothing",
                f"insert into things values ({key}, {owner}, '{state}', '{note}') on conflict do nothing",
                f"update things set note = '{note}' where id = {key}",
                f"update things set state = '{state}' where id = {key}",
                f"update things set workspace_id = {owner} where id = {key}",
                f"update things set workspace_id = {owner}, state = '{state}' where id = {key}",
                f"update things set note = note where id = {key}",
                f"delete from things where id = {key}",
                f"delete from things where id between {key} and {key + 2}",
            )
        )
        return found


class Client:
    """One copy behind a way that can be cut; `where` as a client says it, `condition` as SQL does."""

    def __init__(
        self,
        name: str,
        where: Mapping[str, Any],
        condition: str,
        owners: set[int] | None,
        cache: Path | None = None,
    ) -> None:
        self.name = name
        self.owners = owners
        """Those it may see; None is everything."""
        self.way = LinkProxy()
        self.heard: Counter[str] = Counter()
        self.hows: Counter[str] = Counter()
        self.story: list[str] = []
        """What it heard besides rows, for whoever looks for a mistake."""
        self.table: RecordTable | None = None
        self._where = where
        self._condition = condition
        self._cache = cache
        self._moor: moorline.Moor | None = None
        self._reading: asyncio.Task[None] | None = None

    async def enter(self, stack: contextlib.AsyncExitStack, node: NodeProcess, token: str) -> None:
        await stack.enter_async_context(self.way)
        self.lead_to(node)
        credentials = moorline.TokenCredentials(token) if token else None
        self._moor = await stack.enter_async_context(
            moorline.connect(f"tcp://127.0.0.1:{self.way.port}", credentials=credentials)
        )
        stack.push_async_callback(self.close)
        await self.open()

    def lead_to(self, node: NodeProcess) -> None:
        self.way.target = int(node.address.rpartition(":")[2])

    def cut(self) -> None:
        self.way.drop()
        self.way.heal()

    async def open(self) -> None:
        assert self._moor is not None
        assert self.table is None
        self.table = self._moor.records(
            "things", where=self._where, cache=self._cache, wait=False, settings=SOON
        )
        await self.table.__aenter__()
        self._reading = asyncio.create_task(self._read(self.table.changes()))

    async def close(self) -> None:
        if self.table is not None:
            table, self.table = self.table, None
            await table.close()
            assert self._reading is not None
            await self._reading

    async def _read(self, changes: Any) -> None:
        async for change in changes:
            self.heard[change.kind.value] += 1
            if change.kind.value not in ("record", "deletion"):
                self.story.append(f"{change.kind.value} {change.how} {change.why}".strip())
            if change.kind.value == "synced":
                self.hows[change.how] += 1

    def condition(self) -> str:
        if self.owners is None:
            return self._condition
        owners = ", ".join(map(str, sorted(self.owners))) or "null"
        return f"({self._condition}) and workspace_id in ({owners})"

    def held(self) -> Held:
        assert self.table is not None
        rows = self.table.rows
        return {(str(key),): (rows.seq(key), rows[key]) for key in rows}


class Trial:
    """One database of users with a table, two nodes that serve it, and everybody else."""

    def __init__(
        self,
        catalog: str,
        users: str,
        folder: Path,
        seed: int,
        capture: Literal["log", "notify"] = "log",
    ) -> None:
        self._capture = capture
        self.chance = random.Random(seed)
        self.seed = seed
        self.nodes: dict[str, NodeProcess] = {}
        self.clients: list[Client] = []
        self.writers: list[Writer] = []
        self.killed = self.granted = 0
        self._logs: list[Path] = []
        self._catalog = catalog
        self._users = users
        self._folder = folder
        self._connections: list[asyncpg.Connection] = []

    @contextlib.asynccontextmanager
    async def open(self, clients: list[Client]) -> AsyncIterator["Trial"]:
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._stop_nodes)
            stack.push_async_callback(self._close_connections)
            self.database = await self.connected()
            await self.database.execute(THINGS)
            await add(
                self.database,
                Wanted(
                    "things",
                    ("id",),
                    owner="workspace_id",
                    filters=("workspace_id", "state"),
                    capture=self._capture,
                ),
            )
            address = self._folder / "users.address"
            address.write_text(self._users)
            await asyncio.gather(self.start("one"), self.start("two"))
            self.control = Control(await self.connected())
            for number in range(WRITERS):
                self.writers.append(Writer(await self.connected(), f"{self.seed} {number}"))
            for client in clients:
                token = await self._token_of(client)
                await client.enter(stack, self.some_node(), token)
                self.clients.append(client)
            yield self

    async def connected(self) -> asyncpg.Connection:
        connection = await asyncpg.connect(self._users)
        self._connections.append(connection)
        return connection

    async def _close_connections(self) -> None:
        for connection in self._connections:
            await connection.close()

    # --- nodes ------------------------------------------------------------------------------------

    def some_node(self) -> NodeProcess:
        return self.nodes[self.chance.choice(sorted(self.nodes))]

    async def start(self, name: str) -> None:
        self.nodes[name] = await asyncio.to_thread(
            NodeProcess,
            self._folder / name,
            f"--node={name}",
            "--roles=records",
            f"--catalog={self._catalog}",
            f"--set=records.databases=users={self._folder / 'users.address'}",
        )

    def kill(self, name: str) -> None:
        """With SIGKILL. Its clients come back to the other one, without being told to."""
        node = self.nodes.pop(name)
        node.kill()
        assert node.process.stdout is not None
        node.process.stdout.close()
        self.killed += 1
        for client in self.clients:
            if client.way.target == int(node.address.rpartition(":")[2]):
                client.lead_to(self.some_node())

    def _stop_nodes(self) -> None:
        for node in self.nodes.values():
            node.__exit__(None, None, None)

    def check_logs(self) -> None:
        for log in self._folder.glob("*.stderr"):
            check_log(log.read_text())

    # --- rights -----------------------------------------------------------------------------------

    async def _token_of(self, client: Client) -> str:
        if client.owners is None:
            return ""
        async with moorline.connect(self.some_node().address) as operator:
            await operator.access.add_user(client.name)
            for owner in client.owners:
                await operator.access.add_grant(f"/records/things/{owner}", client.name, "s")
            return (await operator.access.add_token(client.name, "trial")).token

    async def change_rights(self) -> None:
        """An owner more, or one less: of somebody who has some, at whichever node is there."""
        client = self.chance.choice([one for one in self.clients if one.owners is not None])
        assert client.owners is not None
        owner = self.chance.choice(WORKSPACES)
        path = f"/records/things/{owner}"
        async with moorline.connect(self.some_node().address) as operator:
            if owner in client.owners:
                await operator.access.remove_grant(path, client.name, "s")
            else:
                await operator.access.add_grant(path, client.name, "s")
        client.owners ^= {owner}
        client.story.append(f"may see {client.owners}")
        self.granted += 1

    # --- rounds -----------------------------------------------------------------------------------

    async def round(self, *faults: str) -> None:
        """Writers at work, these faults in their order, and clients that come and go."""
        is_over = asyncio.Event()

        async def write(writer: Writer) -> None:
            for number in range(PER_ROUND_MAX):
                if number >= PER_ROUND and is_over.is_set():
                    break
                await writer.write()

        async with asyncio.TaskGroup() as group:
            for writer in self.writers:
                group.create_task(write(writer))
            for fault in faults:
                await self._fault(fault)
                await self._disturb()
            is_over.set()

    async def _fault(self, fault: str) -> None:
        what, _, name = fault.partition(" ")
        match what:
            case "kill":
                self.kill(name)
            case "start":
                await self.start(name)
            case "rights":
                await self.change_rights()
            case _:
                raise AssertionError(f"no fault is called {fault}")

    async def _disturb(self) -> None:
        """Some are cut, some go elsewhere, one leaves and comes back."""
        chance = self.chance
        for client in chance.sample(self.clients, 3):
            client.lead_to(self.some_node())
            client.cut()
        leaving = chance.choice(self.clients)
        await leaving.close()
        await asyncio.sleep(chance.random() * 0.1)
        await leaving.open()

    async def late_commit(self) -> None:
        """A takes its number, B takes the next one and commits, everybody looks, A commits."""
        late, early = await self.connected(), await self.connected()
        transaction = late.transaction()
        await transaction.start()
        await late.execute("insert into things values (9001, 1, 'NEW', 'late')")
        await early.execute("insert into things values (9002, 1, 'NEW', 'early')")
        await self.control.look()
        assert any(key == 9002 for key, _ in self.control.seen)
        await transaction.commit()

    # --- the end ----------------------------------------------------------------------------------

    async def wanted(self, condition: str) -> Held:
        """By another query than the node's."""
        rows = await self.database.fetch(
            f"select moor_seq, (to_jsonb(t) - {HIDDEN})::text as row from things t "
            f"where {condition}"
        )
        contents = [(row["moor_seq"], json.loads(row["row"])) for row in rows]
        return {(str(content["id"]),): (seq, content) for seq, content in contents}

    async def check_equal(self, client: Client) -> None:
        """Its rows are the permitted and filtered table, and its digest is that of these rows."""
        wanted = await self.wanted(client.condition())
        table = client.table
        assert table is not None
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not table.is_synced or client.held() != wanted:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            held = client.held()
            differing = sorted(key for key in {*wanted, *held} if wanted.get(key) != held.get(key))
            raise AssertionError(
                f"{client.name}: {len(differing)} rows differ, such as "
                f"{[(key, wanted.get(key), held.get(key)) for key in differing[:3]]}; synced: "
                f"{table.is_synced}, connected: {table.is_connected}, refused: {table.refusal}, "
                f"{client.heard}, {client.hows}"
            ) from None
        salt = await self.database.fetchval(
            "select salt from moorline_records.registration where name = 'things'"
        )
        rows = ((key, seq) for key, (seq, _) in wanted.items())
        assert table.digest == digest_of_rows(int.from_bytes(salt), rows)

    async def missed_by_control(self) -> set[tuple[int, int]]:
        await self.control.look()
        rows = await self.database.fetch("select id, moor_seq from things")
        return {(row["id"], row["moor_seq"]) for row in rows} - self.control.seen
