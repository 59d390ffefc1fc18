"""Room: client. An operator's end of a reconciliation: the client's list of a service against the node's.

    with copied(Path("service.sqlite")) as own:
        side = Reconciler(caller, own, "billing", is_dry=True)
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
from pathlib import Path

from moorline.client.associations import Associations
from moorline.client.credentials import NO_PROOF, ClientProof, prepared
from moorline.client.service_exchange import (
    Asking,
    Report,
    ServiceExchange,
    as_service,
    made,
)
from moorline.client.service_repair import Seen, ServiceRepair
from moorline.config.addresses import listen_address
from moorline.core.sets.asker import Agreed, Repair
from moorline.errors import ConfigError, FolderUnusable
from moorline.limits import HELLO_TIMEOUT_MS, KEEPALIVE_MS
from moorline.net.caller import Caller, open_caller
from moorline.net.reconcile import Comparison
from moorline.version import SOFTWARE
from moorline.wire.message import Message
from moorline.wire.service_operator import OpenNamedService, VerifyService


@contextlib.asynccontextmanager
async def calling(
    address: str,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    proof: ClientProof = NO_PROOF,
) -> AsyncIterator[Caller]:
    """A bare connection to a node, for calls that a `Moor` has no name for."""
    try:
        parsed = listen_address(address)
    except ValueError as error:
        raise ConfigError(f"{address!r} is not the address of a node: {error}") from error
    credentials = await prepared(proof, parsed)
    caller = await open_caller(
        parsed,
        lambda: Caller(
            f"{SOFTWARE} moor",
            hello_timeout_ms=HELLO_TIMEOUT_MS,
            keepalive_ms=KEEPALIVE_MS,
            credentials=credentials,
        ),
        timeout_ms=HELLO_TIMEOUT_MS,
        ca=ca,
        certificate=certificate,
        key=key,
    )
    try:
        yield caller
    finally:
        caller.close("DONE", "the client is done")


class Reconciler:
    """The exchange of a service for one that an operator names, or for our own; all of it, or its plan."""

    def __init__(
        self,
        caller: Caller,
        own: Associations,
        named: str | None,
        *,
        is_dry: bool,
        bind: bool = False,
        seen: Seen = lambda _done, _total: None,
    ) -> None:
        self._caller = caller
        self._is_dry = is_dry
        self._exchange = ServiceExchange(caller, _asking(named, is_dry=is_dry))
        self._repair = ServiceRepair(caller, self._exchange, own, bind=bind, seen=seen)
        caller.pushed = self._hear_all
        caller.lost.add_done_callback(lambda _: self._exchange.news.set())

    @property
    def report(self) -> Report:
        return self._exchange.report

    async def planned(self) -> tuple[int, int]:
        """Agrees; in a dry run only up to the repair, and returns what it would add and remove."""
        self._caller.check_loop()
        if self._is_dry:
            return await self._plan()
        await self._repair.agree()
        return 0, 0

    async def _plan(self) -> tuple[int, int]:
        exchange = self._exchange
        own = await self._repair.enter()
        comparison = Comparison("plan", exchange, own, exchange.salt, exchange.theirs)
        match await comparison.begin():
            case Agreed(digest):
                self.report.lost = await self._repair.list.settle(digest.count)
                self.report.digest = digest
                return 0, 0
            case Repair(missing, extra):
                is_all = any(prefix.bits == 0 for prefix in extra)
                surplus = exchange.theirs.count if is_all else len(extra)
                if self._repair.list.is_doubtful:
                    # A list that failed its check takes nothing away: it would come back.
                    self.report.restored = surplus
                    return len(missing), 0
                return len(missing), surplus

    def _hear_all(self, messages: list[Message]) -> None:
        for message in messages:
            # Nobody reads what is delivered, and unacknowledged it comes again.
            self._exchange.hear(message)


def _asking(named: str | None, *, is_dry: bool) -> Asking:
    if named is not None:
        return Asking(
            made(OpenNamedService, named),
            lambda digest, estimate, cells_min: made(
                VerifyService, digest.count, digest.hash, estimate, cells_min
            ),
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
