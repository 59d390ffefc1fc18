"""The world of a campaign: real nodes with one catalog, behind links that can be cut, in a folder of its own.

Every process ends with ours: nodes have a death signal, Postgres too, and the small disk a pipe.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import trustme

from chaos.history import History, LostQueueMessages, Mishap
from chaos.proxy import LinkProxy
from chaos.small_disk import SmallDisk
from moorline.catalog import EmbeddedPostgres

NODES = ("a", "b", "c")
ON_SMALL_DISK = "c"
READY_S_MAX = 120
STOP_S_MAX = 60
COMMAND_S_MAX = 120
MOOR = (sys.executable, "-m", "moorline.cli.main")

SETTINGS: dict[str, object] = {
    # What waits for a fault to be noticed is short, and long enough for a busy machine.
    "groups.lease_ms": 2_000,
    "groups.ping_ms": 300,
    "groups.member_timeout_ms": 2_000,
    "groups.lock_ms": 5_000,
    "groups.revoke_ms": 5_000,
    "keepalive_ms": 2_000,
    # Files are small, so that faults meet rotations, checkpoints, seals and new generations.
    "queues.max_queue_messages": 60,
    "queues.max_file_messages": 61,
    "queues.log_bytes_max": 1 << 20,
    "streams.shards": 4,
    "streams.generation_bytes_max": 64 << 10,
}

MISTAKES = ("Traceback", "a task failed", "a Leader failed")
"""None of these may be in a log, whatever happens."""


class Node:
    """One `moor serve`. It can be stopped in every way and started again on its folder."""

    def __init__(self, name: str, folder: Path, disk: SmallDisk | None = None) -> None:
        self.name = name
        self.data = folder / "data"
        self.disk = disk
        self.is_meant_to_run = False
        self.codes_allowed: set[int] = set()
        """Exit codes that the fault at hand may lead to."""
        self.peers, self.clients, self.services = LinkProxy(), LinkProxy(), LinkProxy()
        self.http = ""
        self._log = folder / "log"
        self._log_read = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        """Where clients reach it, whichever port it has."""
        return f"tcp://127.0.0.1:{self.clients.port}"

    @property
    def tls_address(self) -> str:
        return f"tls://127.0.0.1:{self.services.port}"

    @property
    def files(self) -> Path:
        """Its data folder as seen from here."""
        return self.data if self.disk is None else self.disk.outside / "data"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def code(self) -> int | None:
        return None if self._process is None else self._process.returncode

    async def start(self, dsn: str, certificates: "Certificates") -> None:
        assert not self.is_running
        flags = [f"--set={key}={value}" for key, value in SETTINGS.items()]
        command = [
            *self._prefix(),
            *MOOR,
            "serve",
            f"--data={self.data}",
            f"--node={self.name}",
            "--listen=tcp://127.0.0.1:0",
            "--listen=tls://127.0.0.1:0",
            f"--tls-certificate={certificates.server}",
            f"--tls-key={certificates.server}",
            f"--tls-client-ca={certificates.ca}",
            "--http=127.0.0.1:0",
            f"--catalog={dsn}",
            f"--set=advertise=tcp://127.0.0.1:{self.peers.port}",
            *flags,
        ]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=clean_environment(),
                start_new_session=True,  # Ctrl-C is for the campaign, which stops its nodes
            )
        assert self._process.stdout is not None
        line = (await asyncio.wait_for(self._process.stdout.readline(), READY_S_MAX)).decode()
        found = re.search(r"ready: tcp://\S+:(\d+) tls://\S+:(\d+) (http://\S+)", line)
        if found is None:
            await self._process.wait()
            return
        self.is_meant_to_run = True
        self.clients.target = self.peers.target = int(found[1])
        self.services.target = int(found[2])
        self.http = found[3]

    def signal(self, number: signal.Signals) -> None:
        if self.is_running:
            assert self._process is not None
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def kill(self) -> None:
        self.is_meant_to_run = False
        self.signal(signal.SIGKILL)
        await self._wait()

    async def stop(self) -> None:
        """As an operator would; a node that does not obey is killed, and that is a mishap."""
        self.is_meant_to_run = False
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        await self._wait()

    async def _wait(self) -> None:
        if self._process is None:
            return
        try:
            await asyncio.wait_for(self._process.wait(), STOP_S_MAX)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        self.clients.target = self.peers.target = self.services.target = None

    async def moor(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of `moor` on its folder."""
        command = [*self._prefix(), *MOOR, *arguments]
        return await run(command)

    def new_log(self) -> str:
        """What it logged since the last call."""
        if not self._log.exists():
            return ""
        with self._log.open("rb") as file:
            file.seek(self._log_read)
            text = file.read()
        self._log_read += len(text)
        return text.decode(errors="replace")

    def last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return " / ".join(lines[-3:])

    def _prefix(self) -> list[str]:
        bound = ["setpriv", "--pdeathsig=KILL", "--"] if shutil.which("setpriv") else []
        return [*(self.disk.prefix() if self.disk is not None else []), *bound]


class Certificates:
    """A certificate authority of the campaign's own, and whom it vouches for."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        authority = trustme.CA()
        self.folder = folder
        self.ca = folder / "ca.pem"
        self.server = folder / "server.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        self._authority = authority
        node = authority.issue_cert("127.0.0.1")
        node.private_key_and_cert_chain_pem.write_to_path(str(self.server))

    def service(self, name: str) -> Path:
        path = self.folder / f"{name}.pem"
        certificates = self._authority.issue_cert(f"{name}@example.org", common_name=name)
        certificates.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path


class World:
    """All of it, from `async with` to its end."""

    def __init__(self, folder: Path, history: History) -> None:
        self.folder = folder
        self.history = history
        self.certificates = Certificates(folder / "certificates")
        self.disk = SmallDisk(folder / "disk")
        self.nodes = {
            name: Node(name, folder / name, self.disk if self._is_small(name) else None)
            for name in NODES
        }
        self._catalog = folder / "catalog"
        self.postgres: EmbeddedPostgres | None = None
        self.dsn = ""
        self._stack = contextlib.AsyncExitStack()

    def _is_small(self, name: str) -> bool:
        return name == ON_SMALL_DISK and not self.disk.why_not

    async def __aenter__(self) -> "World":
        for node in self.nodes.values():
            (self.folder / node.name).mkdir()
            if node.disk is not None:
                node.data = node.disk.folder / "data"
            for proxy in (node.peers, node.clients, node.services):
                await self._stack.enter_async_context(proxy)
        try:
            await self.start_catalog()
            started = await asyncio.gather(*map(self.start, self.nodes.values()))
            if not all(started):
                words = [node.last_words() for node in self.nodes.values()]
                raise SystemExit(f"chaos: the nodes did not get ready: {words}")
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        for node in self.nodes.values():
            node.signal(signal.SIGCONT)
        await asyncio.gather(*(node.stop() for node in self.nodes.values()))
        await self.stop_catalog()
        await self._stack.aclose()
        self.disk.close()

    async def start(self, node: Node) -> bool:
        """False if it ended in place of getting ready; its reason is a mishap unless it was foreseen."""
        await node.start(self.dsn, self.certificates)
        if not node.is_running:
            self.ended(node, "did not start")
        return node.is_running

    async def start_catalog(self) -> None:
        self.postgres = EmbeddedPostgres(self._catalog)
        await self.postgres.__aenter__()
        self.dsn = self.postgres.dsn

    async def stop_catalog(self, *, killed: bool = False) -> None:
        if self.postgres is not None:
            postgres, self.postgres = self.postgres, None
            if killed:
                os.kill(postgres.pid, signal.SIGKILL)
            await postgres.__aexit__(None, None, None)

    def running(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_running]

    async def look(self) -> None:
        """Reads the logs, and starts again what ended by itself; both may be mishaps."""
        for node in self.nodes.values():
            text = node.new_log()
            note_logged_losses(text, self.history)
            for mistake in MISTAKES:
                if mistake in text:
                    around = text[text.index(mistake) :][:1_500]
                    self.history.note(Mishap(f"the log of {node.name}: {around}"))
                    break
            if node.is_meant_to_run and not node.is_running:
                node.is_meant_to_run = False
                self.ended(node, "ended by itself")
            if not node.is_running:
                await self.start(node)

    def ended(self, node: Node, what: str) -> None:
        if node.code not in node.codes_allowed:
            self.history.note(
                Mishap(f"node {node.name} {what} with {node.code}: {node.last_words()}")
            )


def note_logged_losses(text: str, history: History) -> None:
    """Losses of queues that a node found at its start, or at the first use of a queue."""
    for line in text.splitlines():
        if "messages lost" in line:
            queue, count = re.search(r"queue=(\S+)", line), re.search(r"count=(\d+)", line)
            if queue and count:
                history.note(LostQueueMessages(queue[1], int(count[1])))


def clean_environment() -> dict[str, str]:
    """Ours, without settings of whoever runs the campaign."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MOOR_")}


async def run(
    command: list[str],
    timeout_s: float = COMMAND_S_MAX,
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment or clean_environment(),
        start_new_session=True,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), timeout_s)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    code = process.returncode if process.returncode is not None else -1
    return subprocess.CompletedProcess(command, code, out.decode(), err.decode())
