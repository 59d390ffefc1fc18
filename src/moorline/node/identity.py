"""Room: node. This process's hold on the identity of its data folder: taken, renewed, given back.

    node.id        who: drawn at the first start of a folder, and copied with it
    node.home      the number of its home: drawn in the first claim, and copied with it
    node.starts    the last starts of this folder: a copy that was made before one of them does not know it
    lock           which folder: nobody else can hold the same lock, and no copy has it

Design: docs/design/identity.md.
"""

import asyncio
import contextlib
import errno
import logging
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from moorline.catalog import Catalog
from moorline.catalog.identity import Granted, Identities, Refused
from moorline.core.clock_offset import ahead_ms
from moorline.core.effects import Event
from moorline.core.identity import (
    Claim,
    EndNode,
    GoOn,
    HoldBack,
    Looked,
    Renewed,
    Taken,
    Tenure,
    TenureState,
)
from moorline.errors import FolderUnusable, IdentityTaken, MoorlineError
from moorline.ids import text_of
from moorline.limits import (
    CATALOG_KILL_MS_MAX,
    IDENTITY_RENEWALS,
    INCARNATION_BYTES,
    INCARNATIONS_KEPT_MAX,
    NODE_SEEN_MS,
)
from moorline.net.clock import boot_id, boot_ms, wall_us
from moorline.net.interpreter import Interpreter, nothing_awaited
from moorline.node.folder import (
    HeldFolder,
    home_moves,
    home_number,
    note_home_number,
    write_durably,
)

log = logging.getLogger("moorline.node")

STARTS = "node.starts"


class Identity:
    """Held by this process; made by `held_identity`."""

    def __init__(
        self, identities: Identities, node_id: bytes, granted: Granted, lease_ms: int, asked_ms: int
    ) -> None:
        self.id = node_id
        self.home = granted.home
        self.home_number = granted.home_number
        self.is_serving = False
        """Whether other nodes may call us: with that each renewal is also a sign of life."""
        self.is_older_copy = granted.is_older_copy
        """Whether another folder was at work under this identity since this one was."""
        self.incarnation = identities.incarnation
        self.going_on: list[Callable[[], None]] = []
        """Called when answers that were held back may leave."""
        self.taken: asyncio.Future[MoorlineError] = asyncio.get_running_loop().create_future()
        self._identities = identities
        self._lease_ms = lease_ms
        self._clock_ahead_ms: int | None = None
        """As the last renewal found it; the next one tells the catalog."""
        self._tenure = Tenure(f"identity of {granted.home}", lease_ms, asked_ms)
        self._interpreter = Interpreter(
            {HoldBack: self._hold_back, GoOn: self._go_on, EndNode: self._end_node},
            self._tell,
            nothing_awaited,
        )

    def may_answer(self) -> bool:
        """Whether what is stored may be promised now: no other process can be at work under our name."""
        return self._tenure.may_answer(boot_ms())

    def lapsed(self) -> str:
        """The problem, if it is one."""
        if self._tenure.state is not TenureState.LAPSED:
            return ""
        return "the catalog does not renew the lease of this node: nothing is answered"

    async def register(
        self,
        *,
        roles: list[str],
        addresses: list[str],
        http: str | None,
        version: str,
        shards: Sequence[int],
        mqtt_reference: str = "",
    ) -> None:
        is_ours = await self._identities.register(
            roles=roles,
            addresses=addresses,
            http=http,
            version=version,
            shards=shards,
            mqtt_reference=mqtt_reference,
        )
        if not is_ours:
            raise self._identities.taken()
        self.is_serving = True

    async def keep_forever(self) -> None:
        """Renews the lease, and finds out when it is over or another's."""
        pause_ms = min(NODE_SEEN_MS, self._lease_ms // IDENTITY_RENEWALS)
        while True:
            try:
                await self._renew(pause_ms)
            except (MoorlineError, OSError, TimeoutError) as error:
                self._tell(Looked())
                log.warning(
                    "the lease of our identity was not renewed",
                    extra={"error": str(error) or "no answer"},
                )
            except Exception:
                # Without this task the node would stop answering at the end of the lease.
                log.exception("the lease of our identity was not renewed")
            await asyncio.sleep(pause_ms / 1_000)

    async def _renew(self, pause_ms: int) -> None:
        self._tell(Looked())
        asked_ms = boot_ms()
        # Not for long: a try that hangs keeps the next one from being made.
        async with asyncio.timeout(max(pause_ms, self._lease_ms // 3) / 1_000):
            before_us = wall_us()
            told_us = await self._identities.renew(
                self._lease_ms, is_serving=self.is_serving, clock_ahead_ms=self._clock_ahead_ms
            )
        if told_us is None:
            self._tell(Taken())
            return
        self._clock_ahead_ms = ahead_ms(before_us, told_us, wall_us())
        self._tell(Renewed(asked_ms))

    def _tell(self, event: Event) -> None:
        self._interpreter.perform(self._tenure.handle(event, boot_ms()))

    def _hold_back(self, _: HoldBack) -> None:
        log.error(
            "the catalog did not renew the lease of our identity in time: nothing is answered until it does",
            extra={"lease_ms": self._lease_ms},
        )

    def _go_on(self, _: GoOn) -> None:
        log.warning("the identity is ours as before: answers leave again")
        for go_on in self.going_on:
            go_on()

    def _end_node(self, _: EndNode) -> None:
        if not self.taken.done():
            self.taken.set_result(self._identities.taken())

    async def release(self) -> None:
        """Gives it back, if the catalog takes it soon."""
        releasing = asyncio.create_task(self._identities.release())
        # Not by a timeout around it: a statement that was sent to a catalog which hangs waits for the end of
        # its own cancellation, which the catalog does not answer either.
        await asyncio.wait([releasing], timeout=CATALOG_KILL_MS_MAX / 1_000)
        error = releasing.exception() if releasing.done() else TimeoutError("no answer")
        releasing.cancel()
        if error is not None:
            log.info("the identity is free when its lease is over", extra={"error": str(error)})


@contextlib.asynccontextmanager
async def held_identity(
    catalog: Catalog,
    found: HeldFolder,
    node_id: bytes,
    *,
    name: str,
    home_wanted: str,
    lease_ms: int,
    is_alone: bool,
) -> AsyncIterator[Identity]:
    """Takes the identity of a folder whose lock we hold, renews it, and gives it back at the end."""
    folder = found.path
    known, incarnation = read_starts(folder), secrets.token_bytes(INCARNATION_BYTES)
    number, moves = home_number(folder), home_moves(folder)
    identities = Identities(catalog, node_id, incarnation)
    claim = Claim(tuple(known), lock_of(found.descriptor), is_alone)
    # Before the claim: if we end right behind it, the next start still knows that it was this folder.
    write_starts(folder, [*known, incarnation])

    async def ask() -> tuple[Granted | Refused, int]:
        asked_ms = boot_ms()
        given = await identities.claim(
            claim,
            name=name,
            home_wanted=home_wanted,
            lease_ms=lease_ms,
            number_in_folder=number,
            moves=moves,
        )
        return given, asked_ms

    try:
        granted, asked_ms = await _granted(ask, node_id)
    except (IdentityTaken, FolderUnusable):
        write_starts(folder, known)
        raise
    note_home_number(folder, granted.home_number)
    write_starts(folder, [incarnation])
    _say(granted, name)
    identity = Identity(identities, node_id, granted, lease_ms, asked_ms)
    keeper = asyncio.create_task(identity.keep_forever())
    try:
        yield identity
    finally:
        keeper.cancel()
        await identity.release()


async def _granted(
    ask: Callable[[], Awaitable[tuple[Granted | Refused, int]]], node_id: bytes
) -> tuple[Granted, int]:
    """Waits for the lease of a holder that is gone; one that renews it lives, and is the one that stays."""
    seen: Refused | None = None
    while True:
        given, asked_ms = await ask()
        if isinstance(given, Granted):
            return given, asked_ms
        if seen is not None and given.lease_until_ms != seen.lease_until_ms:
            raise _refusal(given, node_id)
        if seen is None:
            log.warning(
                "the catalog says that another process holds our identity: we look whether it lives",
                extra={"node": given.name, "lease_left_ms": given.lease_left_ms},
            )
        seen = given
        await asyncio.sleep(min(given.lease_left_ms, NODE_SEEN_MS) / 1_000)


def _refusal(found: Refused, node_id: bytes) -> IdentityTaken:
    return IdentityTaken(
        f"a process that was started at {found.started_at:%Y-%m-%d %H:%M:%S} UTC runs under the identity of "
        f"this data folder (id {text_of(node_id)}, name {found.name!r}): one of the two folders is a copy of "
        "the other, whatever their names. Stop that node first, or start this one with an empty --data"
    )


def _say(granted: Granted, name: str) -> None:
    if granted.is_older_copy:
        log.error(
            "this data folder is an older copy, or was put back: a process ran under its identity since, on "
            "another folder, and what that one stored is not here",
            extra={"home": granted.home},
        )
    if granted.name_before not in ("", name):
        log.info(
            "the name of this node has changed; its streams and places stay",
            extra={"before": granted.name_before, "now": name, "home": granted.home},
        )


# --- the folder's side ----------------------------------------------------------------------------


def lock_of(descriptor: int) -> str:
    """Which lock we hold, so that nobody can say the same while we live: the file is kept by our handle.

    Empty where the system has no id of its boot.
    """
    boot = boot_id()
    status = os.fstat(descriptor)
    return f"{boot}/{status.st_dev}:{status.st_ino}" if boot else ""


def read_starts(folder: Path) -> list[bytes]:
    """The starts that this folder knows of; what cannot be read is not known."""
    try:
        lines = (folder / STARTS).read_text("ascii", errors="replace").split()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FolderUnusable(f"{folder / STARTS} cannot be read: {error.strerror}") from error
    found = []
    for line in lines[-INCARNATIONS_KEPT_MAX:]:
        with contextlib.suppress(ValueError):
            found.append(bytes.fromhex(line))
    return found


def write_starts(folder: Path, starts: list[bytes]) -> None:
    """On a full disk it is done without: a node must start there, to be drained."""
    kept = [*starts[:1], *starts[1:][-(INCARNATIONS_KEPT_MAX - 1) :]]
    try:
        write_durably(folder / STARTS, "".join(f"{one.hex()}\n" for one in kept))
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        log.warning("no room to note this start: a later one may take the folder for an older copy")
