"""The programs of `test_trials.py` for what is not read message by message from one place: values, a table of
records, and a service with queues at every node.

At the end each has what there is: the latest value, the rows of the table, every message of every queue.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from chaos.proxy import LinkProxy
from tests.catalog.databases import new_database
from tests.client.test_trials import (
    ALL,
    FEW,
    MOVED,
    NAMES,
    ROLLING,
    SETTINGS,
    WITHIN_S,
    Faults,
    Program,
    Starter,
    Trial,
    twice,
)
from tests.client.test_trials import programs as programs
from tests.cluster.conftest import dsn as dsn
from tests.cluster.conftest import nodes as nodes
from tests.cluster.running import Nodes
from tests.waiting import until

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.client.moor import Moor
from moorline.records.registration import Wanted, add

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

ROWS = 20
QUEUES = 4
"""At each node."""
PER_QUEUE = 5
PATH = "/trial/count"


class LiveTrial(Trial):
    """Three nodes that are resolvers too, and serve the tables of a database."""

    def __init__(self, nodes: Nodes, proxies: dict[str, LinkProxy], users: Path) -> None:
        super().__init__(nodes, proxies)
        self._users = users

    @property
    def resolvers(self) -> list[str]:
        return [f"moor://127.0.0.1:{proxy.port}" for proxy in self.proxies.values()]

    async def start(self, *names: str) -> None:
        served = {"records.databases": f"users={self._users}"}
        await self.nodes.start(*names, settings=SETTINGS | served)
        for name in names:
            self.proxies[name].target = int(self.nodes[name].address.rpartition(":")[2])


@pytest.fixture
async def database(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[asyncpg.Connection]:
    """One of users, with a table of rows; where it is is in a file that the nodes are given."""
    users = await new_database(postgres)
    (tmp_path / "users.address").write_text(users)
    connection = await asyncpg.connect(users)
    await connection.execute(
        "create table counts (id bigint primary key, n bigint);"
        f"insert into counts select n, 0 from generate_series(1, {ROWS}) n"
    )
    await add(connection, Wanted("counts", ("id",)))
    yield connection
    await connection.close()


@pytest.fixture
async def trial(
    nodes: Nodes, tmp_path: Path, database: asyncpg.Connection
) -> AsyncIterator[LiveTrial]:
    assert not database.is_closed()
    async with contextlib.AsyncExitStack() as stack:
        proxies = {name: await stack.enter_async_context(LinkProxy()) for name in NAMES}
        made = LiveTrial(nodes, proxies, tmp_path / "users.address")
        await made.start(*NAMES)
        yield made


async def entered(trial: LiveTrial, file: Path) -> list[bytes]:
    """Queues at every node, which the service has by its list; it is a user with a token."""
    queues: list[bytes] = []
    async with moorline.connect(trial.addresses) as operator:
        await operator.access.add_user("billing")
        await operator.access.add_grant("/", "billing", "slwp")
        token = (await operator.access.add_token("billing", "trial")).token
    file.with_suffix(".token").write_text(token)
    credentials = moorline.TokenCredentials(token)
    for name in NAMES:
        address = trial.nodes[name].address
        async with moorline.connect(address, credentials=credentials) as moor:
            queues += [queue.id for queue in await moor.create_queues(QUEUES)]
    async with (
        moorline.connect(trial.addresses, credentials=credentials) as moor,
        moor.service(file) as service,
    ):
        assert not await service.associate(queues)
    return queues


async def send(moor: Moor, queues: list[bytes], name: str) -> set[str]:
    """Some to each queue, until all are stored: a home may just have moved."""
    left = [(queue, b"%s-%s-%d" % (name.encode(), queue.hex().encode(), number))
            for queue in queues for number in range(PER_QUEUE)]  # fmt: skip
    wanted = {body.decode() for _, body in left}

    async def are_sent() -> bool:
        sent = await moor.send_all(left)
        left[:] = [
            one for one, answer in zip(left, sent, strict=True) if not isinstance(answer, int)
        ]
        return not left

    await until(are_sent, within_s=WITHIN_S, what="all are sent")
    return wanted


async def write(database: asyncpg.Connection, number: int) -> None:
    """Rows change, come and go."""
    await database.execute("update counts set n = n + 1 where id % 3 = $1", number % 3)
    await database.execute("delete from counts where id = $1", number % ROWS)
    await database.execute("insert into counts values ($1, $2)", ROWS + 1 + number, number)


async def rows_of(database: asyncpg.Connection) -> set[str]:
    return {f"{row['id']}={row['n']}" for row in await database.fetch("select id, n from counts")}


def has_rows(table: Program, wanted: set[str]) -> bool:
    return bool(table.got) and set(table.got[-1].split(",")) == wanted


@pytest.mark.parametrize(
    "faults",
    [FEW, *(pytest.param(faults, marks=pytest.mark.long) for faults in (ALL, MOVED, ROLLING))],
    ids=["few", "all", "moved", "rolling"],
)
async def test_values_records_and_services_go_on_through_faults(
    trial: LiveTrial,
    programs: Starter,
    database: asyncpg.Connection,
    tmp_path: Path,
    faults: Faults,
) -> None:
    file = tmp_path / "billing.sqlite"
    queues = await entered(trial, file)
    value = programs.start("value", PATH, trial.resolvers)
    publisher = programs.start("publishes", f"{PATH}=0", trial.resolvers)
    table = programs.start("table", "counts", trial.addresses)
    service = programs.start("service", str(file), trial.addresses)
    async with moorline.connect(trial.addresses) as moor:
        sent = await send(moor, queues, "before")
        # To enter a service is a call, and may fail as one: from then on it goes on by itself.
        begun = (value, publisher, table, service)
        await until(lambda: all(one.got for one in begun), within_s=WITHIN_S, what="a beginning")
        for number, (fault, name) in enumerate(faults):
            writing = asyncio.create_task(write(database, number))
            await trial.harm(fault, name)
            await writing
            if number == 1:
                # Whoever publishes goes too, and another one comes.
                publisher.process.kill()
                before = int(publisher.said[-1])
                publisher = programs.start("publishes", f"{PATH}={before + 1_000}", trial.resolvers)
        wanted = await rows_of(database)
        await until(lambda: has_rows(table, wanted), within_s=WITHIN_S, what="the rows")
        await until(lambda: service.has(sent), within_s=WITHIN_S, what="the service, before")
        sent |= await send(moor, queues, "behind")
        await until(lambda: service.has(sent), within_s=WITHIN_S, what="the service, behind")
        await write(database, len(faults))
        wanted = await rows_of(database)
        await until(lambda: has_rows(table, wanted), within_s=WITHIN_S, what="the rows, behind")
        latest = int(publisher.got[-1])
        await until(lambda: int(value.got[-1]) >= latest, within_s=WITHIN_S, what="the value")
        # Who comes only now finds it too.
        late = programs.start("value", PATH, trial.resolvers)
        await until(lambda: bool(late.got) and int(late.got[-1]) >= latest, within_s=WITHIN_S)
    numbers = list(map(int, value.got))
    assert numbers == sorted(set(numbers)), "each value once, and never an older one"
    # In hand at a loss, or on its way to be done, at each node.
    assert twice(service.got) <= 2 * len(NAMES) * trial.losses
