"""Room: cluster. The links of this node to all others that live, one to each.

Every node says in the catalog that it lives (node/identity.py), and keeps a link to every other one that
does. Both ends of it prove that they know the cluster's secret, the one that is called first. Nodes are
called by their homes here, as their data are: a name may change.

    links.hear(ForBorrower, heard)     what other nodes say unasked goes to whoever registered for its type
    links.greets.append(ask)           what a subject must know of a node before others may reach it
    await links.ask(node, make, Reply) a call, answered in time or failed
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from moorline.config.addresses import Address, listen_address
from moorline.config.settings import Config
from moorline.core.access.node_proof import ClusterSecrets
from moorline.errors import ConnectionLost, MoorlineError
from moorline.limits import (
    HELLO_TIMEOUT_MS,
    KEEPALIVE_MS,
    NODE_GONE_MS,
    NODE_SEEN_MS,
    PEER_RETRY_MS,
)
from moorline.net.authentication import Credentials
from moorline.net.caller import Caller, Make, open_caller
from moorline.net.credentials import KerberosNodeCredentials, NodeCredentials
from moorline.net.kerberos import KerberosCall
from moorline.version import SOFTWARE
from moorline.wire.message import Answer, Message

# Users filter by this name, which is older than the room.
log = logging.getLogger("moorline.groups")

Reply = TypeVar("Reply", bound=Answer)
Told = Callable[[str], None]


class NodeRegister(Protocol):
    """Who lives: the catalog, or resolvers that have it from there."""

    async def live_nodes(self, silent_ms: int) -> dict[str, list[str]]:
        """The addresses of the nodes that have been heard of within that time, by their homes."""


Secrets = Callable[[], Awaitable[ClusterSecrets]]
"""The cluster's, out of the catalog."""


class Links:
    """The other nodes, as far as this one can reach them."""

    def __init__(
        self, config: Config, register: NodeRegister, node: str, secrets: Secrets | None = None
    ) -> None:
        """With the secrets both ends prove themselves; without it nobody does, in tests of other things."""
        self.node = node
        self.greets: list[Callable[[str, Caller], Awaitable[None]]] = []
        """Awaited in turn for a new link. It counts when all are done; if one fails, it is tried anew."""
        self.linked: list[Told] = []
        """Called with the name of a node that can be reached from now on."""
        self.lost: list[Told] = []
        """Called with the name of a node whose link is gone."""
        self.gone: list[Told] = []
        """Called with the name of a node that does not live any more, by the catalog."""
        self._config = config
        self._register = register
        self._secrets = secrets
        self._heard: dict[type[Message], Callable[[str, Any], None]] = {}
        self._links: dict[str, Caller] = {}
        self._proven_by: dict[str, NodeCredentials] = {}
        """What the last link to each was opened with."""
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._addresses: dict[str, list[str]] = {}

    # --- what subjects do -------------------------------------------------------------------------

    def hear(self, kind: type[Message], heard: Callable[[str, Any], None]) -> None:
        """From now on `heard` gets what other nodes say unasked in messages of this type, with their name."""
        assert kind not in self._heard, f"{kind.__name__} has somebody who hears it"
        self._heard[kind] = heard

    def others(self) -> list[str]:
        """The nodes that can be reached now."""
        return list(self._links)

    def send(self, node: str, message: Message) -> bool:
        """Says something that wants no answer; False if there is no link to that node now."""
        link = self._links.get(node)
        if link is None:
            return False
        link.send(message)
        return True

    async def call(self, node: str, make: Make, reply: type[Reply]) -> Reply:
        """A call whose answer may be long in coming; `ConnectionLost` while the node is away."""
        link = self._links.get(node)
        if link is None:
            raise ConnectionLost(f"the node {node} cannot be reached now")
        return await link.call(make, reply)

    async def ask(
        self, node: str, make: Make, reply: type[Reply], *, within_ms: int = HELLO_TIMEOUT_MS
    ) -> Reply:
        """A call to another node; `ConnectionLost` if it is away or does not answer in time."""
        try:
            # A node that hangs keeps its link for a while yet: nobody should wait for it that long.
            async with asyncio.timeout(within_ms / 1_000):
                return await self.call(node, make, reply)
        except TimeoutError:
            raise ConnectionLost(f"the node {node} gave no answer within {within_ms} ms") from None

    # --- who lives --------------------------------------------------------------------------------

    async def keep_forever(self) -> None:
        """Keeps a link to every other node that lives."""
        while True:
            try:
                await self._look_for_nodes()
            except MoorlineError as error:
                log.warning("where the other nodes are is not known", extra={"error": str(error)})
            except Exception:
                # Without this task the node would be gone for all others, and nothing else would say so.
                log.exception("the other nodes were not looked for")
            await asyncio.sleep(NODE_SEEN_MS / 1_000)

    def kept(self) -> frozenset[str]:
        """The nodes that a link is kept to, or tried."""
        return frozenset(self._keepers)

    def cut(self, node: str) -> None:
        """That node is not of the cluster any more."""
        if node in self._keepers:
            log.warning("a node left the cluster", extra={"node": node})
            link = self._links.get(node)
            if link is not None:
                link.close("EXPIRED", "this node is not of the cluster any more")
            self._forget(node)

    def renewed(self, secrets: ClusterSecrets) -> None:
        """Links that were proven by a secret that is not taken any more are proven anew."""
        marks = secrets.marks()
        for node, link in list(self._links.items()):
            proven = self._proven_by.get(node)
            if proven is not None and proven.mark not in marks:
                link.close("EXPIRED", "the cluster's secret was renewed")

    async def close(self) -> None:
        for keeper in self._keepers.values():
            keeper.cancel()
        for link in list(self._links.values()):
            link.close("STOPPING", "the node stops")

    async def _look_for_nodes(self) -> None:
        alive = await self._register.live_nodes(NODE_GONE_MS)
        for name, addresses in alive.items():
            if name == self.node:
                continue
            self._addresses[name] = addresses
            keeper = self._keepers.get(name)
            if keeper is None or keeper.done():
                self._keepers[name] = asyncio.create_task(self._keep_link(name))
        for name in [name for name in self._keepers if name not in alive]:
            if name not in self._links:
                self._forget(name)

    def _forget(self, name: str) -> None:
        """A node is gone. If it comes back it says anew what it has."""
        self._keepers.pop(name).cancel()
        self._addresses.pop(name, None)
        self._proven_by.pop(name, None)
        for gone in self.gone:
            gone(name)
        log.info("a node is gone", extra={"node": name})

    # --- one link ---------------------------------------------------------------------------------

    async def _keep_link(self, name: str) -> None:
        said = ""
        while True:
            for address in self._addresses[name]:
                try:
                    await self._linked(name, listen_address(address))
                    said = ""
                except MoorlineError as error:
                    # Once: a node that is down is tried several times a second.
                    if said != str(error):
                        said = str(error)
                        log.warning("no link", extra={"node": name, "error": said})
                except Exception:
                    log.exception("a link failed", extra={"node": name})
            await asyncio.sleep(PEER_RETRY_MS / 1_000)

    async def _linked(self, name: str, address: Address) -> None:
        """One link from its beginning to its end."""
        caller = await self.opened(name, address)
        try:
            answers = caller.node.home if caller.node is not None else ""
            if answers != name:
                raise ConnectionLost(
                    f"at {address} of the node {name} answers {answers or 'nobody'}: does it listen on an "
                    "address that means another machine here?"
                )
            async with asyncio.timeout(HELLO_TIMEOUT_MS / 1_000):
                for greet in self.greets:
                    await greet(name, caller)
            self._links[name] = caller
            log.info("linked", extra={"node": name})
            for linked in self.linked:
                linked(name)
            await asyncio.wait([caller.lost])
        except TimeoutError:
            raise ConnectionLost(f"{address} says nothing of what it has") from None
        finally:
            caller.close("DONE", "the link is not needed any more")
            if self._links.get(name) is caller:
                del self._links[name]
                log.info("link lost", extra={"node": name})
                for lost in self.lost:
                    lost(name)

    async def opened(self, name: str, address: Address) -> Caller:
        """A connection to the node of that home, both ends proven; nobody keeps it up."""
        config = self._config
        credentials = await self._credentials(name, address)
        return await open_caller(
            address,
            lambda: Caller(
                f"{SOFTWARE} node {self.node}",
                hello_timeout_ms=HELLO_TIMEOUT_MS,
                keepalive_ms=KEEPALIVE_MS,
                pushed=partial(self._pushed, name),
                credentials=credentials,
            ),
            timeout_ms=HELLO_TIMEOUT_MS,
            # Where nodes have an authority of their own, nothing else proves one to us either.
            ca=Path(ca) if (ca := config.tls_node_ca or config.tls_client_ca) else None,
            certificate=Path(config.tls_certificate) if config.tls_certificate else None,
            key=Path(config.tls_key) if config.tls_key else None,
        )

    async def _credentials(self, name: str, address: Address) -> Credentials | None:
        if self._secrets is None:
            return None
        known = await self._secrets()
        own = NodeCredentials(known.current, self.node, name, before=known.before)
        self._proven_by[name] = own
        kerberos = self._config.kerberos
        if not kerberos.nodes:
            return own
        call = KerberosCall(
            kerberos.service_of(address.host),
            principal=kerberos.service,
            keytab=Path(kerberos.keytab),
            timeout_ms=kerberos.timeout_ms,
        )
        await call.prepare()
        return KerberosNodeCredentials(call, own)

    def _pushed(self, name: str, messages: list[Message]) -> None:
        for message in messages:
            heard = self._heard.get(type(message))
            if heard is None:
                continue
            try:
                heard(name, message)
            except Exception:
                # A mistake with one of them is not to cost the others of the frame, or the link.
                log.exception("a push failed", extra={"kind": type(message).__name__})
