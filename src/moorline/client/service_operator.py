"""Room: client. An operator's end of a reconciliation: the client's list of a service against the node's.

    with copied(Path("service.sqlite")) as own:
        side = Reconciler(callers, own, "billing", is_dry=True)
        added, removed = await side.planned()

The parts are those of client.service: for a service that an operator names, or for that of our own
certificate; and, in a dry run, only the comparison, which says what the repair would be.
"""

import contextlib
import hashlib
import sqlite3
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

from moorline.client.associations import Associations
from moorline.client.connecting import Connecting
from moorline.client.credentials import NO_PROOF, ClientProof
from moorline.client.queue_homes import QueueCallers
from moorline.client.service import Service
from moorline.client.service_exchange import Asking, Claim, Report, as_service, made
from moorline.client.service_repair import Seen, unseen
from moorline.config.addresses import listen_address
from moorline.errors import ConfigError, FolderUnusable
from moorline.limits import HELLO_TIMEOUT_MS
from moorline.net.caller import Caller
from moorline.wire.message import Message
from moorline.wire.queue import Delivery
from moorline.wire.service_operator import OpenNamedService, VerifyService


@contextlib.asynccontextmanager
async def calling(
    address: str,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    proof: ClientProof = NO_PROOF,
) -> AsyncIterator[QueueCallers]:
    """A bare connection to a node, for calls that a `Moor` has no name for; others follow it to other
    homes."""
    try:
        parsed = listen_address(address)
    except ValueError as error:
        raise ConfigError(f"{address!r} is not the address of a node: {error}") from error
    connecting = Connecting(
        [parsed],
        stays=None,
        timeout_ms=HELLO_TIMEOUT_MS,
        ca=ca,
        certificate=certificate,
        key=key,
        proof=proof,
    )
    callers = await connecting.callers()
    try:
        yield callers
    finally:
        callers.here.close("DONE", "the client is done")
        callers.close()


class Reconciler:
    """The exchange of a service for one that an operator names, or for our own; all of it, or its plan."""

    def __init__(
        self,
        callers: QueueCallers,
        own: Associations,
        named: str | None,
        *,
        is_dry: bool,
        bind: bool = False,
        seen: Seen = unseen,
    ) -> None:
        self.report = Report()
        self._callers = callers
        self._is_dry = is_dry
        asking = _asking(named, is_dry=is_dry)
        self._service = Service(callers, own, bind=bind, asking=asking, seen=seen)
        callers.opened = self._watch
        self._watch(callers.here)

    async def planned(self) -> tuple[int, int]:
        """Agrees; in a dry run only up to the repair, and returns what it would add and remove."""
        self._callers.here.check_loop()
        try:
            if self._is_dry:
                added, removed, self.report = await self._service.planned()
                return added, removed
            self.report = await self._service.agree()
            return 0, 0
        finally:
            self._service.stop_trying()

    def _watch(self, caller: Caller) -> None:
        caller.pushed = partial(self._hear_all, caller)
        caller.lost.add_done_callback(lambda _: self._service.connection_lost(caller))

    def _hear_all(self, caller: Caller, messages: list[Message]) -> None:
        for message in messages:
            # Nobody reads what is delivered, and unacknowledged it comes again.
            if not isinstance(message, Delivery):
                self._service.hear(caller, message)


def _asking(named: str | None, *, is_dry: bool) -> Asking:
    if named is not None:
        return Asking(
            made(OpenNamedService, named),
            lambda digest, estimate, cells_min, home: made(
                VerifyService, digest.count, digest.hash, estimate, cells_min, home
            ),
            Claim(),
        )
    asking = as_service(window=1)
    # A SUBS would take the subscription over: the walk finds the same without it.
    return asking._replace(verify=None) if is_dry else asking


@contextlib.contextmanager
def copied(path: Path) -> Iterator[Associations]:
    """A copy of the client's list to work on: its own file may be in use, and is never changed."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "service.sqlite"
        try:
            with (
                contextlib.closing(
                    sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
                ) as source,
                contextlib.closing(sqlite3.connect(copy)) as target,
            ):
                source.execute("select queue, high, low from association limit 1")
                source.execute("select count, high, low from digest")
                source.backup(target)
        except sqlite3.Error as error:
            raise FolderUnusable(f"{path} is not the list of a service: {error}") from error
        with contextlib.closing(Associations(copy)) as own:
            own.path = path  # what is wrong with it is told of the file that its user knows
            yield own


def fingerprint_of(certificate: Path) -> str:
    """By what a node knows the owner of a certificate, in hex."""
    try:
        text = certificate.read_text()
        end = "-----END CERTIFICATE-----"
        first = text[text.index("-----BEGIN CERTIFICATE-----") : text.index(end) + len(end)]
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest()
    except (OSError, ValueError) as error:
        raise ConfigError(f"certificate: cannot be read: {error}") from error
