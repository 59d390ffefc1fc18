"""Room: catalog. A Postgres of our own, as a child process of the node.

    async with EmbeddedPostgres(data / "catalog") as postgres:
        ... postgres.dsn ...

It listens on a unix socket only. It ends with the node: by a fast shutdown at the end of the
`async with`, and by its death signal when the node is killed with kill -9. Both bind it to the
thread that started it, so enter it from the thread that lives as long as the node does. The caller
holds the lock on the data folder.
"""

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import asyncpg

from moorline.catalog.account import account_for, launch_prefix
from moorline.catalog.datafolder import (
    ENVIRONMENT,
    SUPERUSER,
    binaries,
    essence,
    failure,
    folder_failure,
    last_words,
    make_data_folder,
    open_log,
)
from moorline.catalog.leftover import cluster_name, end_leftover
from moorline.catalog.socket_folder import PORT, make_socket_folder, remove_socket_folder
from moorline.errors import CatalogUnreachable
from moorline.limits import (
    CATALOG_KILL_MS_MAX,
    CATALOG_POLL_MS,
    CATALOG_START_MS_MAX,
    CATALOG_STOP_MS_MAX,
)

SETTINGS = {
    # On the command line, so that no edited postgresql.conf opens or weakens the catalog.
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "fsync": "on",
    # initdb lowers both on small machines; the catalog's clients count on them.
    "shared_buffers": "128MB",
    "max_connections": "100",
    # The catalog's statements are short: compiling them costs more than it saves.
    "jit": "off",
    # It is small and in memory: three processes that read ahead have nothing to do.
    "io_method": "sync",
    # Its log stays below what it keeps anyway (80 MB) and the node's reserve of disk: on a disk that is
    # nearly full, members of groups can go on acknowledging.
    "max_wal_size": "128MB",
    # The log is for what went wrong; it is cut at starts only.
    "log_checkpoints": "off",
    # With the kind of process: what Postgres tells a client is not why it ended.
    "log_line_prefix": "%m [%p] %b ",
}

# Each is waited for before the next. INT is Postgres' fast shutdown, QUIT drops everything and
# leaves the work to the next start's recovery, KILL is for a Postgres that does not react.
STOP_LADDER = (
    (signal.SIGINT, CATALOG_STOP_MS_MAX),
    (signal.SIGQUIT, CATALOG_KILL_MS_MAX),
    (signal.SIGKILL, CATALOG_KILL_MS_MAX),
)

# What a Postgres answers, or its socket does, while it starts.
NOT_YET = (
    OSError,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
)


class EmbeddedPostgres:
    """One Postgres on one folder, from `async with` to its end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._socket_folder: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._ended: asyncio.Task[int] | None = None
        self._log_start_bytes = 0

    @property
    def dsn(self) -> str:
        assert self._socket_folder is not None, "enter the EmbeddedPostgres first"
        return f"postgresql://{SUPERUSER}@/{SUPERUSER}?host={self._socket_folder}&port={PORT}"

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        assert self._process is not None, "enter the EmbeddedPostgres first"
        return self._process.pid

    async def __aenter__(self) -> Self:
        try:
            await self._start()
            await self._answer()
        except BaseException as error:
            await self._stop()
            if isinstance(error, OSError):
                raise folder_failure(error, self.folder) from error
            if isinstance(error, asyncpg.PostgresError):
                raise CatalogUnreachable(
                    f"the embedded Postgres on {self.folder} refuses its own node ({error}): "
                    "undo what was changed in its folder by hand."
                ) from error
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stop()

    async def died(self) -> str:
        """Waits until Postgres has ended, however that came, and says how."""
        assert self._ended is not None, "enter the EmbeddedPostgres first"
        # Shielded: whoever gives up waiting must not end the watch for everybody.
        code = await asyncio.shield(self._ended)
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        words = essence(last_words(self.folder, self._log_start_bytes))
        return f"the embedded Postgres ended {how}; its last words: {words}"

    async def _start(self) -> None:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        account = await account_for(self.folder)
        await make_data_folder(self.folder, account)
        await end_leftover(self.folder)
        self._socket_folder = make_socket_folder(self.folder.parent, account)
        program = binaries() / "postgres"
        prefix = launch_prefix(account, "INT", program, [self.folder, self._socket_folder])
        settings = {
            **SETTINGS,
            "unix_socket_directories": str(self._socket_folder),
            # By this name the next start finds what a killed node left.
            "cluster_name": cluster_name(self.folder),
        }
        log = open_log(self.folder)
        try:
            self._log_start_bytes = os.fstat(log).st_size
            self._process = await asyncio.create_subprocess_exec(
                *prefix,
                *(str(program), "-D", str(self.folder), "-p", str(PORT)),
                *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=ENVIRONMENT,
                cwd="/",
                # Ctrl-C in a terminal is for the node, which ends Postgres when it is ready to.
                start_new_session=True,
            )
        finally:
            os.close(log)
        self._ended = asyncio.create_task(self._process.wait(), name="embedded Postgres")

    async def _answer(self) -> None:
        """Returns when a connection got an answer; raises if Postgres ends or takes too long."""
        assert self._ended is not None
        deadline = time.monotonic() + CATALOG_START_MS_MAX / 1000
        while not self._ended.done():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                words = essence(last_words(self.folder, self._log_start_bytes))
                raise CatalogUnreachable(
                    f"the embedded Postgres on {self.folder} did not answer within "
                    f"{CATALOG_START_MS_MAX // 1000} s; its last words: {words}. "
                    "If it is recovering, start again to give it more time."
                )
            try:
                await self._ask(left_s)
            except NOT_YET:
                await asyncio.wait({self._ended}, timeout=CATALOG_POLL_MS / 1000)
            else:
                return
        words = last_words(self.folder, self._log_start_bytes)
        raise failure("the embedded Postgres did not start", words, self.folder)

    async def _ask(self, timeout_s: float) -> None:
        connection = await asyncpg.connect(self.dsn, timeout=timeout_s)
        try:
            await connection.fetchval("select 1", timeout=timeout_s)
        finally:
            await connection.close(timeout=timeout_s)

    async def _stop(self) -> None:
        if self._process is not None and self._ended is not None:
            for sign, wait_ms in STOP_LADDER:
                if self._ended.done():
                    break
                with suppress(ProcessLookupError):
                    self._process.send_signal(sign)
                await asyncio.wait({self._ended}, timeout=wait_ms / 1000)
        if self._socket_folder is not None:
            remove_socket_folder(self.folder.parent)
