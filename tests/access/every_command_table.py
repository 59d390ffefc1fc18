"""Who may call what, found by calling it: `python -m tests.access.every_command_table` writes the document.

A real node has the rows of a fresh catalog and one more, that of the operator at `/`. Each command is called
about what `owner` has, over a connection of its own for each caller.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.access.every_command import (
    CHUNK,
    GROUP,
    HASH,
    OF_FEED,
    OF_SERVICE,
    SESSION,
    TOPIC,
    Row,
    Things,
    maker,
    rows,
)
from tests.access.other_doors import Doors, found_by_http, found_by_mqtt, found_of_wills
from tests.catalog.nodes import pretend
from tests.process.nodes import NodeProcess
from tests.process.proving import audited, proven
from tests.waiting import until

import moorline
from moorline.catalog import Catalog
from moorline.catalog.access import AccessCatalog
from moorline.ids import ID_BYTES
from moorline.net.authentication import Credentials
from moorline.net.caller import Caller
from moorline.net.credentials import NodeCredentials, TokenCredentials
from moorline.wire.group import CreateGroup, WatchStreams
from moorline.wire.message import Answer, Call, Failed
from moorline.wire.node import Echo, Echoed
from moorline.wire.queue import NewQueue, QueueMade, Send, Sent
from moorline.wire.resolver import PathsResolved
from moorline.wire.service import Associated, OpenService
from moorline.wire.service_operator import OpenNamedService, VerifyService
from moorline.wire.staging import (
    CloseStage,
    CommitStaged,
    OpenStage,
    RowsStaged,
    StageClosed,
    StageOpened,
    StageRows,
)
from moorline.wire.topic import OpenSession, SessionOpened, SubscribeTopic

DOCUMENT = Path(__file__).parents[2] / "docs" / "access-table.md"
USERS = ("another", "owner", "operator")
CALLERS = ("anonymous", *USERS, "node")
REFUSALS = frozenset({"DENIED", "UNAVAILABLE", "AUTH"})
GRANTED, DENIED = "granted", "denied"
WITHIN_S = 30
FLAGS = (
    "--set=streams.sync=process",
    "--set=queues.sync=process",
    "--set=streams.shards=1",
    "--set=anonymous=everywhere",
    "--listen=tcp://localhost:0",
    "--mqtt=mqtt://localhost:0",
    "--set=access.proxied=tcp://localhost:0,mqtt://localhost:0",
)
HEAD = """# Who may call what

Every command that a node hears, called on a real node by each of five callers, about what `owner` has:
its queue, service, group, session, stage and topic `owner/t`. The rows are those of a fresh catalog
([design/access.md](design/access.md)), and `/ operator slwpdag`. `anonymous` comes from elsewhere, through
an address of `access.proxied` with `anonymous = "everywhere"`; `another`, `owner` and `operator` are users
with a proof; `node` is a node of the cluster.

`granted` was answered or taken, `denied` was refused. A code is the answer to a command
that was heard and found nothing to act on: it names what only the connection itself could hold, or what is
not there (any more: the operator was first).

This page is written by `python -m tests.access.every_command_table`, and a test compares it with what a node
does. A cell that is `denied` no more is to be looked at before this page is written anew.

"""

OTHER_DOORS = """
## By MQTT

The same callers over MQTT 5, about the topic `owner/t`, a group of `owner`'s, and the client
`owner-device` whose session lasts. `denied` is the reason *not authorized*, or for a client id *not valid*;
a denied will is published by nobody and is in the audit. Nodes do not come by MQTT.

"""
PAGES = """
## Over HTTP

By the status of the answer. `anonymous` is a page in a browser. The pages about health and figures, and
the files of the console, are for whoever reaches the port; what the console asks comes over its WebSocket
as the commands above. `/records/poll` hears who asks, and judges each table.

"""

Table = dict[str, dict[str, str]]
"""Cells, by the label of a row and the caller."""


class Found(NamedTuple):
    native: Table
    mqtt: Table
    http: Table


@contextmanager
def node_in(folder: Path) -> Iterator[NodeProcess]:
    with NodeProcess(folder / "data", *FLAGS) as node:
        yield node


class Cast:
    """The node, and what each caller proves itself with."""

    def __init__(self, node: NodeProcess, catalog: Catalog, tokens: dict[str, str]) -> None:
        self.node = node
        self._catalog = catalog
        self.tokens = tokens
        self._elsewhere = [word for word in node.ready_line.split() if word.startswith("tcp://")][
            -1
        ]

    async def _credentials(self, who: str) -> Credentials | None:
        if who == "node":
            # One of the commands renews it.
            known = await AccessCatalog(self._catalog).secrets()
            return NodeCredentials(known.current, "ghost", "node-1", before=known.before)
        return TokenCredentials(self.tokens[who]) if who in self.tokens else None

    @asynccontextmanager
    async def entered(self, who: str) -> AsyncIterator[Caller]:
        address = self._elsewhere if who == "anonymous" else self.node.address
        async with proven(address, await self._credentials(who)) as caller:
            yield caller


@asynccontextmanager
async def cast_of(node: NodeProcess) -> AsyncIterator[Cast]:
    dsn = f"postgresql://postgres@/postgres?host={node.data / 'run'}&port=5432"
    async with Catalog.open(dsn) as catalog:
        for home in ("ghost", "spare-operator", "spare-node"):
            await pretend(
                catalog,
                home,
                node_id=home.encode().ljust(ID_BYTES),
                addresses=["tcp://127.0.0.1:1"],
            )
        async with moorline.connect(node.address) as moor:
            await moor.access.add_grant("/", "operator", "slwpdag")
            await moor.access.add_user("guest")
            tokens = {}
            for name in USERS:
                await moor.access.add_user(name)
                tokens[name] = (await moor.access.add_token(name, "table")).token
        yield Cast(node, catalog, tokens)


async def found_tables(node: NodeProcess) -> Found:
    async with cast_of(node) as cast:
        doors = Doors(node, cast.tokens)
        wills = await found_of_wills(doors, CALLERS)
        native = await _found_native(cast)
        by_mqtt = await asyncio.to_thread(found_by_mqtt, doors, CALLERS)
        over_http = await asyncio.to_thread(found_by_http, doors, CALLERS)
        return Found(native, by_mqtt | wills, over_http)


async def _found_native(cast: Cast) -> Table:
    async with cast.entered("owner") as owner:
        table: Table = {row.label: {} for row in rows()}
        async with cast.entered("owner") as other:
            await other.call(lambda n: OpenSession(n, SESSION, 600), SessionOpened)
        await owner.call_all([OpenService])
        # Without an answer a refusal is known by the audit: in peace, while a principal has few of them.
        casts = [row for row in rows() if not issubclass(row.kind, Call)]
        for who in CALLERS:
            for row in casts:
                await _say(cast, who, row)
        refused = await _refused_casts(cast, casts)
        for row in casts:
            for who in CALLERS:
                is_refused = (row.kind.__name__, who) in refused
                table[row.label][who] = DENIED if is_refused else GRANTED
        for row in rows():
            if row not in casts:
                for who in CALLERS:
                    table[row.label][who] = await _called(cast, owner, who, row)
        return table


async def _say(cast: Cast, who: str, row: Row) -> None:
    async with cast.entered(who) as caller:
        await _begin(caller, row)
        caller.cast(maker(row, Things()))
        await caller.call(lambda n: Echo(n, b""), Echoed)


async def _refused_casts(cast: Cast, casts: list[Row]) -> set[tuple[str, str]]:
    """(act, caller), once a later refusal is in the audit."""
    async with cast.entered("another") as caller:
        await caller.call_all([WatchStreams])
    await until(lambda: any(line["act"] == "WatchStreams" for line in audited(cast.node)))
    named = {row.kind.__name__ for row in casts}
    return {
        (line["act"], line["principal"].replace("$node/ghost", "node"))
        for line in audited(cast.node)
        if line["kind"] == "refusal" and line["act"] in named
    }


async def _begin(caller: Caller, row: Row) -> None:
    """What the session needs to have of its own, if it may."""
    if row.kind in OF_SERVICE:
        await caller.call_all([OpenService])
    if row.kind is VerifyService:
        await caller.call_all([lambda n: OpenNamedService(n, "owner")])
    if row.kind in OF_FEED:
        await caller.call_all([lambda n: SubscribeTopic(n, TOPIC)])


async def _called(cast: Cast, owner: Caller, who: str, row: Row) -> str:
    async with cast.entered(who) as caller:
        things = await _things(who, row, owner, caller if who == "owner" else owner)
        await _begin(caller, row)
        async with asyncio.timeout(WITHIN_S):
            (answer,) = await caller.call_all([maker(row, things)])
        return _outcome(answer)


async def _things(who: str, row: Row, owner: Caller, stager: Caller) -> Things:
    """Fresh ones for each call, of which some end what they name."""
    things = Things(who=who)
    named = row.kind.__struct_fields__
    if "queue" in named or "queues" in named:
        made = await owner.call(NewQueue, QueueMade)
        await owner.call(lambda n: Send(n, made.queue, b"first"), Sent)
        things = things._replace(queue=made.queue)
    if "group" in named or "filter" in named:
        await owner.call_all([lambda n: CreateGroup(n, GROUP)])
    if "stage" in named or "stages" in named:
        opened = await stager.call(lambda n: OpenStage(n, "query", 0, 0, 0), StageOpened)
        things = things._replace(stage=opened.stage)
    if row.kind in (CommitStaged, CloseStage):
        await stager.call(lambda n: StageRows(n, things.stage, CHUNK), RowsStaged)
    if row.kind is CommitStaged:
        await stager.call(lambda n: CloseStage(n, things.stage, 1, HASH), StageClosed)
    return things


def _outcome(answer: Answer) -> str:
    if isinstance(answer, Associated) and answer.refused:
        ((_, code),) = answer.refused
    elif isinstance(answer, Failed):
        code = answer.code
    elif isinstance(answer, PathsResolved) and answer.found[0].code:
        code = answer.found[0].code
    else:
        return GRANTED
    return DENIED if code in REFUSALS else f"`{code}`"


def written(found: Found) -> str:
    """The document."""
    parts = [HEAD, rows_of(found.native), OTHER_DOORS, rows_of(found.mqtt), PAGES]
    return "".join([*parts, rows_of(found.http, "request")])


def rows_of(table: Table, head: str = "command") -> str:
    lines = [f"| {head} | {' | '.join(CALLERS)} |", f"|---|{'---|' * len(CALLERS)}"]
    lines += [
        f"| {label} | {' | '.join(cells[who] for who in CALLERS)} |"
        for label, cells in table.items()
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="table-")))
        folder.chmod(0o755)
        node = stack.enter_context(node_in(folder))
        DOCUMENT.write_text(written(asyncio.run(found_tables(node))), encoding="utf-8")


if __name__ == "__main__":
    main()
