"""What the acts of the demo share: a real node in a folder of its own, and the record of what was done."""

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import trustme

READY_S_MAX = 60
GENERATION_BYTES = 1 << 20
"""Small enough that streams are sealed within seconds: only of these there is a digest."""


class Done(msgspec.Struct, frozen=True):
    """A row of the summary."""

    act: str
    what: str
    result: str


class Certificates:
    """A certificate authority of the demo's own, with a node and a service that it vouches for."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.server = folder / "server.pem"
        self.service = folder / "service.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        node = authority.issue_cert("127.0.0.1")
        node.private_key_and_cert_chain_pem.write_to_path(str(self.server))
        service = authority.issue_cert("harbour@example.org", common_name="harbour")
        service.private_key_and_cert_chain_pem.write_to_path(str(self.service))


class Stage:
    """The node that the acts play on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.certificates = Certificates(folder)
        self.tls_address = ""
        self.address = ""
        self.http = ""
        self.mqtt = ("", 0)
        """Host and port."""
        self.done: list[Done] = []
        self._process: asyncio.subprocess.Process | None = None

    @property
    def catalog(self) -> str:
        """The Postgres that the node brings, for another node of the same cluster."""
        return f"postgresql://postgres@/postgres?host={self.data / 'run'}&port=5432"

    def tell(self, act: str, what: str, result: str) -> None:
        self.done.append(Done(act, what, result))

    @contextlib.asynccontextmanager
    async def node(self, *flags: str) -> AsyncIterator[None]:
        """A `moor serve` on free ports, stopped at the end."""
        await self.start(*flags)
        try:
            yield
        finally:
            await self.stop()

    async def start(self, *flags: str, port: int = 0) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "moorline.cli.main",
            "serve",
            f"--data={self.data}",
            f"--listen=tcp://127.0.0.1:{port}",
            "--listen=tls://127.0.0.1:0",
            f"--tls-certificate={self.certificates.server}",
            f"--tls-key={self.certificates.server}",
            f"--tls-client-ca={self.certificates.ca}",
            "--http=127.0.0.1:0",
            "--mqtt=mqtt://127.0.0.1:0",
            "--log-level=warning",
            f"--set=streams.generation_bytes_max={GENERATION_BYTES}",
            *flags,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), READY_S_MAX)
        found = re.search(
            r"ready: (tcp://\S+) (tls://\S+) (http://\S+) mqtt://(\S+):(\d+)", line.decode()
        )
        if found is None:
            raise SystemExit("demo: the node did not get ready; its reason is above")
        self.address, self.tls_address, self.http = found[1], found[2], found[3]
        self.mqtt = found[4], int(found[5])

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await self._process.wait()

    async def kill(self) -> None:
        """As a power cut would, as far as a process can tell."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()
