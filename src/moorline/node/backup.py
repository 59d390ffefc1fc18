"""Room: node. A cut of a running node, for a copy that somebody makes beside it: `moor backup`.

    links of what rests        checkpoints and the upkeep of streams are held off
    the cut                    no commit of queues or streams; the catalog's moment; sizes of what grows
    texts of the catalog       everything goes on; they are of the moment of the cut
    ready                      <data>/backup/<cut>/ has `files`, `cut.json`, links and texts, until it is over

Whoever copies has the links, and needs nothing of the node any more but that it leaves them there. The cut
ends with the connection that asked for it, and with the node; a start removes what a killed one left.
Design: docs/design/backup.md.
"""

import asyncio
import contextlib
import logging
import os
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from moorline.access.guard import Declarations, needs
from moorline.catalog.copying import CatalogCut, CatalogFacts
from moorline.catalog.datafolder import ENVIRONMENT, binaries
from moorline.core.access.principal import level_of
from moorline.core.access.right import ADMINISTER
from moorline.errors import CannotCut, MoorlineError, NotFound
from moorline.ids import text_of
from moorline.journal.held_files import HeldFiles
from moorline.net.clock import monotonic_us, wall_us
from moorline.net.session import Session
from moorline.net.thread_turns import hold_quick_turns, release_quick_turns
from moorline.net.turns import Turns
from moorline.node.data_format import NEWEST
from moorline.node.topics import Topics
from moorline.queues.commands import QueueBroker
from moorline.version import SOFTWARE
from moorline.wire.cluster import BackUpNode, NodeHeld

log = logging.getLogger("moorline.node")

T = TypeVar("T")

FOLDER = "backup"
CUT_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")
FACTS = "cut.json"
CATALOG = "catalog"
OTHERS = "others.dump"
NOT_COPIED = frozenset(
    {
        *("lock", "node.json", "run", "catalog", "catalog.log", "catalog.log.old", FOLDER),
        # What a process knew of itself: a copy that does not know a start is noticed (core/identity.py).
        "node.starts",
        # Written at the end of a restore, behind all else.
        "format",
        # Other homes, which their own nodes hold still; what homes left here; and moves that are under way.
        *("homes", "moved", "node.moving", *(f"home.sending{end}" for end in ("", "-wal", "-shm"))),
    }
)
STREAM_LOG = "streams/log"
"""Its messages are in the segments too, as far as whoever reads them through the kernel is concerned."""


class CutFacts(msgspec.Struct, frozen=True):
    """What is known of a cut beside its files."""

    cut: str
    time_us: int
    software: str
    format: int
    node: str
    home: str
    id: str
    lock: str
    """Which lock the node held: of its boot, device and file."""
    data: str
    addresses: list[str]
    is_catalog_embedded: bool
    catalog: CatalogFacts
    next_lsn: int
    """Of the queues; 0 where there are none."""


class Owner(NamedTuple):
    """Whose data folder it is."""

    data: Path
    node: str
    home: str
    id: bytes
    lock: str
    addresses: list[str]
    dsn: str
    is_catalog_embedded: bool


class Backups:
    """One cut at a time."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.owner: Owner | None = None
        self.queues: QueueBroker | None = None
        self.topics: Topics | None = None
        self._turns = Turns()
        self._cut: Cut | None = None

    def declared(self) -> Declarations:
        return {
            BackUpNode: needs(
                ADMINISTER,
                lambda call: (f"/admin/cluster/nodes/{level_of(self.home)}",),  # noqa: ARG005
                self._turns.later(self._back_up),
            )
        }

    async def close(self) -> None:
        self._turns.close()
        await self._end()

    async def _back_up(self, session: Session, call: BackUpNode) -> NodeHeld:
        if not call.cut:
            while self._cut is not None and not self._cut.session.is_open:
                # Its client is gone, and nobody else could go on with it: it stands in nobody's way.
                await self._end()
            return self._begin(session).told(call.call)
        cut = self._cut
        if cut is None or cut.name != call.cut or cut.session is not session:
            raise NotFound(f"the cut {call.cut} is over: begin another backup")
        if call.is_over:
            await self._end()
            cut.phase = "over"
        elif cut.task.done() and (error := cut.task.exception()) is not None:
            await self._end()
            if isinstance(error, MoorlineError):
                raise error
            log.error("a backup failed", exc_info=error)
            raise CannotCut(f"the node could not hold its files: {error}")
        return cut.told(call.call)

    def _begin(self, session: Session) -> "Cut":
        if self._cut is not None:
            raise CannotCut(
                f"a backup of this node is being made, since {self._cut.name}: wait for its end"
            )
        if self.owner is None:
            raise CannotCut("the node is starting: try again")
        cut = self._cut = Cut(self.owner, self.queues, self.topics, session)
        log.warning("a backup begins", extra={"by": session.identity.principal, "cut": cut.name})
        session.at_end(lambda: self._turns.spawn(self._gone(cut)))
        return cut

    async def _gone(self, cut: "Cut") -> None:
        if self._cut is cut:
            await self._end()

    async def _end(self) -> None:
        cut = self._cut
        if cut is None:
            return
        cut.task.cancel()
        await asyncio.wait([cut.task])
        await asyncio.to_thread(shutil.rmtree, cut.folder, ignore_errors=True)
        if self._cut is not cut:
            return  # two ended it: the command, and its connection
        self._cut = None
        log.warning("a backup is over", extra={"cut": cut.name})


class Cut:
    """What is held for one copy."""

    def __init__(
        self, owner: Owner, queues: QueueBroker | None, topics: Topics | None, session: Session
    ) -> None:
        self.session = session
        self._owner, self._queues, self._topics = owner, queues, topics
        # A name for people and for files: when, and which.
        self.name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
        self.folder = owner.data / FOLDER / self.name
        self.phase = "linking"
        self._files = 0
        self._bytes = 0
        self._stopped_us = 0
        # Of its own: the moment for which nobody's commits go on must not wait for those who read files.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="moor-backup")
        self.task = asyncio.create_task(self._make())

    async def _run(self, work: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *given)

    def told(self, call: int) -> NodeHeld:
        return NodeHeld(
            call,
            self.name,
            self.phase,
            str(self.folder),
            self._files,
            self._bytes,
            self._stopped_us,
        )

    async def _make(self) -> None:
        self.folder.parent.mkdir(mode=0o700, exist_ok=True)
        held = await self._run(HeldFiles, self._owner.data, self.folder)
        # Threads that link and the loop take turns; with Python's own 5 ms the loop would wait long.
        hold_quick_turns()
        try:
            async with CatalogCut.connected(self._owner.dsn) as catalog:
                time_us = await self._cut(held, catalog)
                self.phase = "catalog"
                facts = await self._write_catalog(held, catalog)
            await self._run(held.finish)
            self._note(facts, time_us)
        finally:
            release_quick_turns()
            held.is_given_up = True
            # Behind what it does just now: whoever removes the folder finds nobody at work in it.
            await self._run(held.close)
            self._thread.shutdown(wait=False)
        self._files, self._bytes = held.files, held.bytes
        self.phase = "ready"

    async def _cut(self, held: HeldFiles, catalog: CatalogCut) -> int:
        """All files as they are at one moment, and the catalog's."""
        async with contextlib.AsyncExitStack() as stack:
            if self._queues is not None:
                await stack.enter_async_context(self._queues.checkpoints.held_off())
            if self._topics is not None:
                await stack.enter_async_context(self._topics.streams.files_at_rest)
            # Most files, and none of them changes now: this may take long, and nobody waits for it.
            await self._run(held.hold_resting, "queues/messages")
            await self._run(self._hold, held)
            began_us = monotonic_us()
            async with self._no_commits():
                await catalog.begin()
                await self._run(self._hold, held)
                self._mark_log(held)
                time_us = wall_us()
            self._stopped_us = monotonic_us() - began_us
        log.info("a cut", extra={"cut": self.name, "stopped_us": self._stopped_us})
        return time_us

    @contextlib.asynccontextmanager
    async def _no_commits(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            if self._queues is not None:
                await stack.enter_async_context(self._queues.commits.stopped())
            if self._topics is not None:
                await stack.enter_async_context(self._topics.streams.commits.stopped())
            yield

    def _hold(self, held: HeldFiles) -> None:
        for name in sorted(os.listdir(self._owner.data)):
            if name not in NOT_COPIED:
                held.hold(name, ("queues/messages", STREAM_LOG, *self._prepared_files))

    @property
    def _prepared_files(self) -> list[str]:
        """Of the log of the queues: nothing was ever in them."""
        if self._queues is None:
            return []
        return [f"queues/{path}" for path in self._queues.store.log.prepared_files()]

    def _mark_log(self, held: HeldFiles) -> None:
        self._next_lsn = 0
        if self._queues is not None:
            store = self._queues.store
            self._next_lsn = store.committed_lsn + 1
            written = store.log.written()
            held.cut({f"queues/{path}": size for path, size in written.items() if size >= 0})

    async def _write_catalog(self, held: HeldFiles, catalog: CatalogCut) -> CatalogFacts:
        facts = await catalog.facts()
        folder = self.folder / CATALOG
        folder.mkdir(mode=0o700)
        for table in facts.tables:
            file = folder / f"{table.name}.copy"
            with file.open("wb") as out:
                await catalog.write(table, out)
            held.add(f"{CATALOG}/{file.name}", file)
        if not self._owner.is_catalog_embedded:
            # A given Postgres has an operator of its own, who backs up what is not ours.
            return msgspec.structs.replace(facts, others=[])
        if facts.others:
            await self._dump_others(folder / OTHERS, catalog)
            held.add(f"{CATALOG}/{OTHERS}", folder / OTHERS)
        return facts

    async def _dump_others(self, file: Path, catalog: CatalogCut) -> None:
        dump = await asyncio.create_subprocess_exec(
            str(binaries() / "pg_dump"),
            *(f"--dbname={catalog.dsn}", f"--snapshot={catalog.snapshot}", "--format=custom"),
            *("--exclude-schema=moorline", f"--file={file}"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=ENVIRONMENT,
        )
        try:
            _, said = await dump.communicate()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                dump.kill()
            raise
        if dump.returncode:
            words = said.decode("utf-8", "replace").strip()[-500:]
            raise CannotCut(f"tables in the embedded Postgres cannot be copied: {words}")

    def _note(self, catalog: CatalogFacts, time_us: int) -> None:
        owner = self._owner
        facts = CutFacts(
            cut=self.name,
            time_us=time_us,
            software=SOFTWARE,
            format=NEWEST,
            node=owner.node,
            home=owner.home,
            id=text_of(owner.id),
            lock=owner.lock,
            data=str(owner.data),
            addresses=owner.addresses,
            is_catalog_embedded=owner.is_catalog_embedded,
            catalog=catalog,
            next_lsn=self._next_lsn,
        )
        (self.folder / FACTS).write_bytes(msgspec.json.encode(facts))


def remove_leftovers(data: Path) -> None:
    """Of a node that was killed in the middle of a backup: links, and texts of the catalog. What else
    somebody has put there is not ours."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(data / FOLDER):
            if CUT_NAME.fullmatch(name):
                shutil.rmtree(data / FOLDER / name, ignore_errors=True)
