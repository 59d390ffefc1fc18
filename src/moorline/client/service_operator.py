"""Room: client. An operator's end of a reconciliation: the client's list of a service against the node's.

    with copied(Path("service.sqlite")) as own:
        side = Reconciler(caller, own, "billing", is_dry=True)
        added, removed = await side.planned()

It is the exchange of client.service: for a service that an operator names, or for that of our own
certificate; and, in a dry run, only up to what the repair would be.
"""

import contextlib
import hashlib
import sqlite3
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

from moorline.client.associations import Associations
from moorline.client.own_list import Refusal
from moorline.client.service import Service
from moorline.client.service_exchange import Reply
from moorline.config.addresses import listen_address
from moorline.core.effects import Effect, Event
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.prefix import Prefix
from moorline.core.sets.reconcile import Answered, AskVerify, Mode, Repair
from moorline.errors import ConfigError, FolderUnusable
from moorline.limits import HELLO_TIMEOUT_MS, KEEPALIVE_MS
from moorline.net.caller import Caller, open_caller
from moorline.version import SOFTWARE
from moorline.wire.message import Message
from moorline.wire.queue import Delivery
from moorline.wire.service import OpenService, SubscribeService
from moorline.wire.service_operator import OpenNamedService, VerifyService


@contextlib.asynccontextmanager
async def calling(
    address: str, ca: Path | None, certificate: Path | None, key: Path | None
) -> AsyncIterator[Caller]:
    """A bare connection to a node, for calls that a `Moor` has no name for."""
    try:
        parsed = listen_address(address)
    except ValueError as error:
        raise ConfigError(f"{address!r} is not the address of a node: {error}") from error
    caller = await open_caller(
        parsed,
        lambda: Caller(
            f"{SOFTWARE} moor", hello_timeout_ms=HELLO_TIMEOUT_MS, keepalive_ms=KEEPALIVE_MS
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


class Planned(Exception):
    """What a repair would do, known before it is done: queues to add, queues to remove."""


class Reconciler(Service):
    """The same exchange for a service that an operator names, or for our own, and up to its plan."""

    def __init__(
        self,
        caller: Caller,
        own: Associations,
        named: str | None,
        *,
        is_dry: bool,
        bind: bool = False,
        seen: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> None:
        super().__init__(caller, own, window=1, bind=bind)
        self._named, self._is_dry, self._seen = named, is_dry, seen
        self._added = self._to_add = 0
        caller.pushed = self._hear_all
        caller.lost.add_done_callback(lambda _: self.connection_lost())

    async def planned(self) -> tuple[int, int]:
        """Agrees; in a dry run only up to the repair, and returns what it would add and remove."""
        try:
            await self.agree()
        except Planned as plan:
            missing, extra = plan.args
            return missing, extra
        return 0, 0

    def _hear_all(self, messages: list[Message]) -> None:
        for message in messages:
            self.hear(message)

    def hear(self, message: Message) -> bool:
        # Nobody reads them here, and unacknowledged they come again.
        return isinstance(message, Delivery) or super().hear(message)

    async def _call(self, make: Callable[[int], Message], reply: type[Reply]) -> Reply:
        match make(0):
            case OpenService() if self._named is not None:
                name = self._named
                return await super()._call(lambda call: OpenNamedService(call, name), reply)
            case SubscribeService(_, count, digest, estimate, cells) if self._named is not None:
                return await super()._call(
                    lambda call: VerifyService(call, count, digest, estimate, cells), reply
                )
        return await super()._call(make, reply)

    async def _perform(self, effect: Effect, own: IdSet) -> Event:
        match effect:
            case AskVerify() if self._is_dry and self._named is None:
                # A SUBS would take the subscription over: the walk finds the same without it.
                return Answered(self._theirs, Mode.EQUAL)
            case Repair(missing, extra):
                is_all = any(prefix.bits == 0 for prefix in extra)
                if self._is_dry:
                    raise Planned(len(missing), self._theirs.count if is_all else len(extra))
                self._added, self._to_add = 0, len(missing)
        return await super()._perform(effect, own)

    async def _restore(self, service: bytes, missing: int, extra: list[Prefix]) -> int:
        if self._is_dry:
            is_all = any(prefix.bits == 0 for prefix in extra)
            self.report.restored = self._theirs.count if is_all else len(extra)
            raise Planned(missing, 0)
        return await super()._restore(service, missing, extra)

    async def _associate(self, queues: Sequence[bytes]) -> list[Refusal]:
        refused = await super()._associate(queues)
        self._added += len(queues)
        self._seen(self._added, self._to_add)
        return refused


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
