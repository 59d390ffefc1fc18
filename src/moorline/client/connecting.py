"""Room: client. `connect`: from the address of a node, or of resolvers, to a `Moor`.

async with moorline.connect("tls://node-1:7411", ca=ca, user="alice", password_file=file) as moor:
    ...
"""

from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from moorline.client.credentials import (
    ClientIdentity,
    ClientProof,
    KerberosCredentials,
    PrivateCredentials,
    prepared,
)
from moorline.client.deadline import check_deadline
from moorline.client.events import Told
from moorline.client.moor import Moor
from moorline.client.publishing import Publishing
from moorline.client.queue_homes import AnotherHome, QueueCallers
from moorline.client.role_dial import Dial, RoleDial
from moorline.client.staying import StayingLink
from moorline.config.addresses import (
    DEFAULT_ADDRESS,
    Address,
    listen_address,
    resolver_addresses,
)
from moorline.errors import ConfigError, Elsewhere, MoorlineError
from moorline.limits import (
    CLIENT_DEADLINE_S,
    CLIENT_PLACES_MAX,
    HELLO_TIMEOUT_MS,
    KEEPALIVE_MS,
)
from moorline.net.caller import Caller, open_caller
from moorline.version import SOFTWARE


class Stays(NamedTuple):
    """What a client that stays is told."""

    deadline_s: float | None
    publishes_elsewhere: bool


class Connecting:
    """What `connect` returns: `await` it for a `Moor`, or use it in `async with`."""

    def __init__(
        self,
        addresses: Sequence[Address | str],
        *,
        stays: Stays | None,
        timeout_ms: int,
        ca: Path | None,
        certificate: Path | None,
        key: Path | None,
        proof: ClientProof,
    ) -> None:
        self._addresses = addresses
        self._stays = stays
        self._timeout_ms = timeout_ms
        self._proof = proof
        self._ca, self._certificate, self._key = ca, certificate, key
        self._moor: Moor | None = None

    async def _connect(self) -> Moor:
        if self._stays is not None:
            return await self._connect_to_stay(self._stays)
        caller, address = await self._dial()
        open_home = partial(self._open_home, address)
        return Moor(caller, address, dial_role=self._dial_role, open_home=open_home)

    async def callers(self) -> QueueCallers:
        """The bare connection, with those to the homes that it leads to."""
        caller, address = await self._dial()
        return QueueCallers(caller, partial(self._open_home, address))

    async def _connect_to_stay(self, stays: Stays) -> Moor:
        told = Told()
        dials = self._dials()
        link = StayingLink(dials, told=told, deadline_s=stays.deadline_s)
        await link.begin()
        assert link.address is not None, "a link that is up leads somewhere"
        publishing = None
        if not stays.publishes_elsewhere:
            dial_home = partial(self._dial_home, link.address)
            publishing = Publishing(link, self._home_dials(), dial_home, stays.deadline_s)
        return Moor(
            link,
            link.address,
            dial_role=self._dial_role,
            open_home=partial(self._open_home, link.address),
            told=told,
            publishing=publishing,
            deadline_s=stays.deadline_s,
        )

    def _dials(self) -> list[Dial]:
        """To whichever node is there: one that is drained may send us to another."""
        known = len(self._addresses)
        return [
            partial(self._dial_one, one, can_leave=known > 1 or isinstance(one, str))
            for one in self._addresses
        ]

    def _home_dials(self) -> list[Dial]:
        """To one node and no other."""
        return [partial(self._dial_one, one) for one in self._addresses]

    def _dial_role(self, role: str) -> RoleDial:
        """For what lasts longer than one connection, and needs a node with that role."""
        return RoleDial(self._dials(), role)

    async def _dial(self) -> tuple[Caller, Address]:
        """A connection, and where it leads to."""
        failed: MoorlineError | None = None
        for one in self._addresses:
            try:
                return await self._dial_one(one)
            except MoorlineError as error:
                failed = error
        assert failed is not None, "no address at all"
        raise failed

    async def _dial_one(
        self, address: Address | str, *, can_leave: bool = False
    ) -> tuple[Caller, Address]:
        if isinstance(address, str):
            return await self._found(address, can_leave=can_leave)
        return await self._opened(address, can_leave=can_leave), address

    async def _opened(self, address: Address, *, can_leave: bool = False) -> Caller:
        credentials = await prepared(self._proof, address)
        return await open_caller(
            address,
            lambda: Caller(
                f"{SOFTWARE} python",
                hello_timeout_ms=self._timeout_ms,
                keepalive_ms=KEEPALIVE_MS,
                credentials=credentials,
                can_leave=can_leave,
            ),
            timeout_ms=self._timeout_ms,
            ca=self._ca,
            certificate=self._certificate,
            key=self._key,
        )

    async def _open_home(self, first: Address, told: Elsewhere) -> Caller:
        return (await self._dial_home(first, told))[0]

    async def _dial_home(self, first: Address, told: Elsewhere) -> tuple[Caller, Address]:
        """Where a redirect leads, if to somebody who is known: docs/decisions/0102."""
        for resolvers in self._addresses:
            if isinstance(resolvers, str):
                # The resolvers say where the home is; the addresses of the redirect are not looked at.
                return await self._found(resolvers, told.home)
        known = known_addresses(first, told.addresses)
        # Whom the program names is known to it; the node there must be the home that was meant.
        known += [one for one in self._addresses if isinstance(one, Address) and one not in known]
        if not known:
            raise told
        failed: MoorlineError = told
        for address in known:
            try:
                caller = await self._opened(address)
            except MoorlineError as error:
                failed = error
                continue
            if caller.node is not None and caller.node.home == told.home:
                return caller, address
            # Another node has that address by now.
            caller.close("DONE", "another node was meant")
        if failed is told:
            raise AnotherHome(str(told), told.home, told.addresses)
        raise failed

    async def _found(
        self, resolvers: str, home: str = "", *, can_leave: bool = False
    ) -> tuple[Caller, Address]:
        # Not at the top: most programs name their node.
        from moorline.client.broker_choice import Wanted, open_broker
        from moorline.client.resolver_cluster import ReaderLink

        identity = ClientIdentity(self._proof, self._ca, self._certificate, self._key)
        link = ReaderLink(identity, connect_ms=self._timeout_ms, can_leave=can_leave)
        return await open_broker(resolvers, link, Wanted(home))

    def __await__(self) -> Generator[object, None, Moor]:
        return self._connect().__await__()

    async def __aenter__(self) -> Moor:
        self._moor = await self._connect()
        return self._moor

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._moor is not None
        await self._moor.close()


def known_addresses(first: Address, told: Sequence[str]) -> list[Address]:
    """Of the addresses that a node told, those where a client may look for another one.

    None that is less private than the first. By TLS any: the node there is verified by the same CA. Else
    those of the same host alone, for nobody could tell a strange one from a node.
    """
    found: list[Address] = []
    for text in told:
        try:
            address = listen_address(text)
        except ValueError:
            continue  # of a newer node, perhaps
        if address.is_unspecified:
            address = address._replace(host=first.host)
        if address.scheme != first.scheme or not address.port:
            continue
        if first.scheme == "tls" or address.host == first.host:
            found.append(address)
    return found


def connect(
    addresses: str | Sequence[str] = DEFAULT_ADDRESS,
    *,
    reconnect: bool = True,
    deadline_s: float | None = CLIENT_DEADLINE_S,
    publish_elsewhere: bool = False,
    timeout_ms: int = HELLO_TIMEOUT_MS,
    ca: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    user: str = "",
    password_file: Path | None = None,
    token_file: Path | None = None,
    credentials: PrivateCredentials | KerberosCredentials | None = None,
) -> Connecting:
    """Connects to a node: `tcp://HOST:PORT`, or `tls://HOST:PORT` with a CA and a certificate. With a list of
    resolvers, `moor://HOST,HOST` or `moors://HOST,HOST` for TLS, to some node that they know as a broker. Of
    several addresses, to the first that answers.

    The client stays: when its connection is lost it connects again, to whichever of them is there, and what
    was subscribed goes on; `Moor.events` tells. A call may take `deadline_s`, time without a node included.
    What is published goes to the home of the first publish, unless it may go wherever the client is:
    `publish_elsewhere`. With `reconnect=False` it has one connection, and ends with it.

    Who we are is said by `user` with a `password_file`, by a `token_file`, or by `credentials` that hold the
    secret themselves; else by the certificate. Passwords and tokens go over TLS or to this machine only.
    `KerberosCredentials` name a ticket cache or a keytab, and encrypt the connection by themselves.
    """
    check_deadline(deadline_s)
    texts = [addresses] if isinstance(addresses, str) else list(addresses)
    if not 1 <= len(texts) <= CLIENT_PLACES_MAX:
        raise ConfigError(f"a client has 1 to {CLIENT_PLACES_MAX} addresses, not {len(texts)}")
    return Connecting(
        [_parsed(text) for text in texts],
        stays=Stays(deadline_s, publish_elsewhere) if reconnect else None,
        timeout_ms=timeout_ms,
        ca=ca,
        certificate=certificate,
        key=key,
        proof=ClientProof(user, password_file, token_file, credentials),
    )


def _parsed(address: str) -> Address | str:
    """Of a node, or, as it is, of resolvers."""
    try:
        if address.startswith(("moor://", "moors://")):
            resolver_addresses(address)
            return address
        return listen_address(address)
    except ValueError as error:
        raise ConfigError(f"{address!r} is not the address of a node: {error}") from error
