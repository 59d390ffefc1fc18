"""Room: client. `connect`: from the address of a node, or of resolvers, to a `Moor`.

async with moorline.connect("tls://node-1:7411", ca=ca, user="alice", password_file=file) as moor:
    ...
"""

from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from moorline.client.credentials import (
    ClientIdentity,
    ClientProof,
    KerberosCredentials,
    PrivateCredentials,
    prepared,
)
from moorline.client.moor import Moor
from moorline.client.queue_homes import QueueCallers
from moorline.config.addresses import (
    DEFAULT_ADDRESS,
    Address,
    listen_address,
    resolver_addresses,
)
from moorline.errors import ConfigError, Elsewhere, MoorlineError
from moorline.limits import (
    HELLO_TIMEOUT_MS,
    KEEPALIVE_MS,
)
from moorline.net.caller import Caller, open_caller
from moorline.version import SOFTWARE


class Connecting:
    """What `connect` returns: `await` it for a `Moor`, or use it in `async with`."""

    def __init__(
        self,
        address: Address | str,
        *,
        timeout_ms: int,
        ca: Path | None,
        certificate: Path | None,
        key: Path | None,
        proof: ClientProof,
    ) -> None:
        self._address = address
        self._timeout_ms = timeout_ms
        self._proof = proof
        self._ca, self._certificate, self._key = ca, certificate, key
        self._moor: Moor | None = None

    async def _connect(self) -> Moor:
        caller, address = await self._dial()
        open_home = partial(self._open_home, address)
        return Moor(caller, address, dial=self._dial, open_home=open_home)

    async def callers(self) -> QueueCallers:
        """The bare connection, with those to the homes that it leads to."""
        caller, address = await self._dial()
        return QueueCallers(caller, partial(self._open_home, address))

    async def _dial(self) -> tuple[Caller, Address]:
        """A connection, and where it leads to. What lasts longer than one of them dials again."""
        if isinstance(self._address, str):
            return await self._found(self._address)
        return await self._opened(self._address), self._address

    async def _opened(self, address: Address) -> Caller:
        credentials = await prepared(self._proof, address)
        return await open_caller(
            address,
            lambda: Caller(
                f"{SOFTWARE} python",
                hello_timeout_ms=self._timeout_ms,
                keepalive_ms=KEEPALIVE_MS,
                credentials=credentials,
            ),
            timeout_ms=self._timeout_ms,
            ca=self._ca,
            certificate=self._certificate,
            key=self._key,
        )

    async def _open_home(self, first: Address, told: Elsewhere) -> Caller:
        """Where a redirect leads, if to somebody who is known: docs/decisions/0102."""
        if isinstance(self._address, str):
            # The resolvers say where the home is; the addresses of the redirect are not looked at.
            return (await self._found(self._address, told.home))[0]
        known = known_addresses(first, told.addresses)
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
                return caller
            # Another node has that address by now.
            caller.close("DONE", "another node was meant")
        raise failed

    async def _found(self, resolvers: str, home: str = "") -> tuple[Caller, Address]:
        # Not at the top: most programs name their node.
        from moorline.client.broker_choice import Wanted, open_broker
        from moorline.client.resolver_cluster import ReaderLink

        identity = ClientIdentity(self._proof, self._ca, self._certificate, self._key)
        link = ReaderLink(identity, connect_ms=self._timeout_ms)
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
    address: str = DEFAULT_ADDRESS,
    *,
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
    resolvers, `moor://HOST,HOST` or `moors://HOST,HOST` for TLS, to some node that they know as a broker.

    Who we are is said by `user` with a `password_file`, by a `token_file`, or by `credentials` that hold the
    secret themselves; else by the certificate. Passwords and tokens go over TLS or to this machine only.
    `KerberosCredentials` name a ticket cache or a keytab, and encrypt the connection by themselves.
    """
    parsed: Address | str = address
    try:
        if address.startswith(("moor://", "moors://")):
            resolver_addresses(address)
        else:
            parsed = listen_address(address)
    except ValueError as error:
        raise ConfigError(f"{address!r} is not the address of a node: {error}") from error
    return Connecting(
        parsed,
        timeout_ms=timeout_ms,
        ca=ca,
        certificate=certificate,
        key=key,
        proof=ClientProof(user, password_file, token_file, credentials),
    )
