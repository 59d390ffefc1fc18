"""Room: cli. Several nodes on this machine, to try out what a cluster does when some of them fail.

    FOLDER/cluster.json   who runs here: the process that looks after them, and each node's
    FOLDER/cluster.lock   held by that process
    FOLDER/catalog        one Postgres for all of them
    FOLDER/node-1 …       the data folder of each, with its log beside it: FOLDER/node-1.log

Whoever kills, pauses or heals is another command: it finds the processes in the file, and makes sure that a
pid is still the process that was written down before it sends a signal.
"""

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum
from pathlib import Path

import msgspec

from moorline.errors import ConfigError, FolderInUse, NotFound, StartError
from moorline.limits import LOCAL_NODE_READY_MS, STOP_MS_MAX

FILE = "cluster.json"
LOCK = "cluster.lock"
OF_A_NODE = frozenset({"format", "lock", "node.id"})
READY = re.compile(r" ready: (.*) roles=")


class Process(msgspec.Struct, frozen=True):
    """A pid, and when that process began: a pid alone may be another's by now."""

    pid: int
    began: int

    @classmethod
    def of(cls, pid: int) -> "Process":
        return cls(pid, _began(pid))

    @property
    def is_alive(self) -> bool:
        return _began(self.pid) == self.began != 0

    def signal(self, number: signal.Signals) -> None:
        if not self.is_alive:
            raise NotFound(f"process {self.pid} is gone")
        os.kill(self.pid, number)


class State(Enum):
    UP = "up"
    PAUSED = "paused"
    DEAD = "dead"


class LocalNode(msgspec.Struct, frozen=True):
    number: int
    name: str
    process: Process
    address: str
    http: str
    mqtt: str

    @property
    def state(self) -> State:
        if not self.process.is_alive:
            return State.DEAD
        return State.PAUSED if _status(self.process.pid)[0] == "T" else State.UP


class LocalCluster(msgspec.Struct, frozen=True):
    """What the file says."""

    keeper: Process
    """`moor cluster up`."""
    nodes: list[LocalNode]

    def node(self, number: int) -> LocalNode:
        for node in self.nodes:
            if node.number == number:
                return node
        raise NotFound(f"there is no node {number}: this cluster has 1 to {len(self.nodes)}")


def found_in(folder: Path) -> LocalCluster:
    """The cluster that runs there."""
    try:
        cluster = msgspec.json.decode((folder / FILE).read_bytes(), type=LocalCluster)
    except (OSError, msgspec.MsgspecError):
        raise NotFound(
            f"no cluster runs in {folder}: start one with `moor cluster up --data {folder}`"
        ) from None
    if not cluster.keeper.is_alive:
        raise NotFound(
            f"the cluster in {folder} runs no more: `moor cluster up --data {folder}` goes on with it"
        )
    return cluster


class Keeper:
    """Starts the nodes, sees who ends, and starts those again that somebody heals."""

    def __init__(self, folder: Path, dsn: str, port: int, told: Callable[[str], None]) -> None:
        self._folder = folder.absolute()
        self._dsn, self._port, self._told = dsn, port, told
        self._nodes: dict[int, LocalNode] = {}
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    @property
    def nodes(self) -> list[LocalNode]:
        return [self._nodes[number] for number in sorted(self._nodes)]

    async def start(self, numbers: range) -> None:
        await asyncio.gather(*(self._start(number) for number in numbers))
        self._write()

    async def heal(self) -> None:
        """Those that are dead are started again; those that are paused go on."""
        for node in self.nodes:
            if node.state is State.PAUSED:
                node.process.signal(signal.SIGCONT)
        dead = [node.number for node in self.nodes if node.state is State.DEAD]
        for number in dead:
            await self._start(number)
            self._write()
            self._told(f"{self._nodes[number].name} is back: {self._nodes[number].address}")

    async def stop(self) -> None:
        self._is_stopping = True
        for process in self._running.values():
            if process.returncode is None:
                # One that is paused hears nothing.
                process.send_signal(signal.SIGCONT)
                process.terminate()
        ending = [process.wait() for process in self._running.values()]
        try:
            async with asyncio.timeout(2 * STOP_MS_MAX / 1_000):
                await asyncio.gather(*ending)
        except TimeoutError:
            for process in self._running.values():
                if process.returncode is None:
                    process.kill()
        await asyncio.gather(*self._watching)
        (self._folder / FILE).unlink(missing_ok=True)

    async def _start(self, number: int) -> None:
        name = f"node-{number}"
        native = self._port + 10 * number
        log = (self._folder / f"{name}.log").open("ab")
        with log:
            process = await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig", "TERM", "--"),
                *(sys.executable, "-m", "moorline.cli.main", "serve"),
                f"--data={self._folder / name}",
                f"--node={name}",
                f"--catalog={self._dsn}",
                f"--listen=tcp://127.0.0.1:{native}",
                f"--http=http://127.0.0.1:{native + 1}",
                f"--mqtt=mqtt://127.0.0.1:{native + 2}",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={
                    key: value for key, value in os.environ.items() if not key.startswith("MOOR_")
                },
                # Ctrl-C is for the keeper, which tells them.
                start_new_session=True,
            )
        self._running[number] = process
        line = await self._ready_line(name, process)
        found = READY.search(line)
        if found is None:
            raise StartError(f"{name} did not start: see {self._folder / name}.log")
        by_scheme = {address.partition(":")[0]: address for address in found[1].split()}
        self._nodes[number] = LocalNode(
            number,
            name,
            Process.of(process.pid),
            *(by_scheme[scheme] for scheme in ("tcp", "http", "mqtt")),
        )
        watch = asyncio.create_task(self._watch(number, process))
        self._watching.add(watch)
        watch.add_done_callback(self._watching.discard)

    async def _ready_line(self, name: str, process: asyncio.subprocess.Process) -> str:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(LOCAL_NODE_READY_MS / 1_000):
                return (await process.stdout.readline()).decode()
        except TimeoutError:
            process.kill()
            raise StartError(
                f"{name} was not ready within {LOCAL_NODE_READY_MS // 1_000} s: see {self._folder / name}.log"
            ) from None

    async def _watch(self, number: int, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if not self._is_stopping:
            self._told(
                f"{self._nodes[number].name} is dead ({code}); `moor cluster heal` starts it again"
            )

    def _write(self) -> None:
        """Whole or not at all: other commands read it at any time."""
        cluster = LocalCluster(Process.of(os.getpid()), self.nodes)
        beside = self._folder / f"{FILE}.new"
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(cluster), indent=2))
        beside.replace(self._folder / FILE)


@contextlib.asynccontextmanager
async def kept(
    folder: Path, count: int, port: int, told: Callable[[str], None]
) -> AsyncIterator[Keeper]:
    """A cluster in that folder, until the end of the block."""
    from moorline.catalog import EmbeddedPostgres

    await asyncio.to_thread(_make_room, folder)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_held(folder))
        postgres = await stack.enter_async_context(EmbeddedPostgres(folder / "catalog"))
        keeper = Keeper(folder, postgres.dsn, port, told)
        try:
            await keeper.start(range(1, count + 1))
            yield keeper
        finally:
            await keeper.stop()


def _make_room(folder: Path) -> None:
    with contextlib.suppress(NotFound):
        pid = found_in(folder).keeper.pid
        raise FolderInUse(
            f"a cluster runs in {folder} already (process {pid}): use it, or give another --data"
        )
    if not folder.exists():
        folder.mkdir(parents=True)
    names = set(os.listdir(folder))
    # The data folder of a node has a `catalog` too: that one is of its node, and of no other.
    is_a_cluster = LOCK in names or ("catalog" in names and not OF_A_NODE & names)
    if names and not is_a_cluster:
        raise ConfigError(f"{folder} has other things in it: give a folder of its own with --data")


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """By one keeper at a time, from before there is a file that names it: a Postgres that another one has on
    this folder would be taken for a leftover, and ended."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(
                f"a cluster is being started in {folder}: use it, or give another --data"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _began(pid: int) -> int:
    """In ticks since the machine's start; 0 if there is no such process, or only what is left of one."""
    fields = _status(pid)
    return 0 if not fields or fields[0] in {"Z", "X"} else int(fields[19])


def _status(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()
