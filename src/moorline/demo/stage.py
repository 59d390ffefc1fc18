"""What the acts of the demo share: a real node in a folder of its own, and the record of what was done."""

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from moorline.net.issuing import Authority, make_authority

READY_S_MAX = 60
DAYS = 90
"""A node warns of certificates that end soon."""
GENERATION_BYTES = 1 << 20
"""Small enough that streams are sealed within seconds: only of these there is a digest."""


class Done(msgspec.Struct, frozen=True):
    """A row of the summary."""

    act: str
    what: str
    result: str


class Claim(msgspec.Struct, frozen=True):
    """What an act has proven, with the number that it measured."""

    act: str
    claim: str
    measured: str


class Certificates:
    """A certificate authority of the demo's own, with a node and a service that it vouches for: as
    `moor cert` makes them."""

    def __init__(self, folder: Path) -> None:
        authority = folder / "authority"
        self.ca = Path(make_authority(authority, "demo", DAYS + 1).certificate)
        issuer = Authority(authority)
        made = issuer.issue_node("node", ["127.0.0.1"], DAYS, folder)
        self.server, self.server_key = Path(made.certificate), Path(made.key)
        made = issuer.issue_client("harbour", ["harbour@example.org"], DAYS, folder)
        self.service, self.service_key = Path(made.certificate), Path(made.key)


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
        self.claims: list[Claim] = []
        self.others: list[asyncio.subprocess.Process] = []
        """Nodes of the same cluster that an act has started, and that stay."""
        self.claimed: Callable[[Claim], None] = lambda _: None
        """Hears of each claim when its act has proven it."""
        self._process: asyncio.subprocess.Process | None = None

    @property
    def catalog(self) -> str:
        """The Postgres that the node brings, for another node of the same cluster."""
        return f"postgresql://postgres@/postgres?host={self.data / 'run'}&port=5432"

    def tell(self, act: str, what: str, result: str) -> None:
        self.done.append(Done(act, what, result))

    def claim(self, act: str, claim: str, measured: str) -> None:
        self.claims.append(made := Claim(act, claim, measured))
        self.claimed(made)

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
            f"--tls-key={self.certificates.server_key}",
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
        """The other nodes first: they have their catalog from this one."""
        for other in self.others:
            if other.returncode is None:
                other.send_signal(signal.SIGTERM)
                await other.wait()
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await self._process.wait()

    async def kill(self) -> None:
        """As a power cut would, as far as a process can tell."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()
