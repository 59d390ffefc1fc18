"""Room: node. Where the other nodes are, by a list of resolvers in place of the rows of the catalog.

    nodes = NodesByResolvers("moor://host1,host2", home, identity)
    links = Links(config, nodes, home, secrets)

A resolver has the nodes from the catalog, and keeps what it knows while that is away. Who lies to us about
addresses wins nothing: at each of them a node proves that it has the home, by the cluster's secret. But who
tells us of nobody would have us drop what we know, so that only an answer in which we are ourselves counts:
a resolver of another cluster, one that may tell us nothing, and one that has not looked yet know us not.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from moorline.client.broker_choice import BROKER, NODE_PRINCIPAL, NODES
from moorline.client.credentials import NO_PROOF, ClientIdentity, ClientProof, KerberosCredentials
from moorline.client.resolution import Resolution
from moorline.client.resolver import Resolver
from moorline.client.resolver_cluster import ReaderLink
from moorline.config.settings import Config
from moorline.errors import Unreachable


class NodesByResolvers:
    """A `NodeRegister`."""

    def __init__(self, resolvers: str, home: str, identity: ClientIdentity) -> None:
        self._resolvers = resolvers
        self._home = home
        self._resolver = Resolver.by(ReaderLink(identity), resolvers)

    async def live_nodes(self, silent_ms: int) -> dict[str, list[str]]:  # noqa: ARG002
        """How long somebody was silent is for the resolvers to judge: they look at the same rows."""
        found: dict[str, list[str]] = {}
        resolver = self._resolver
        for one in await resolver.resolve_all(await resolver.match(NODES)):
            if not isinstance(one, Resolution):
                continue  # it went between the two questions
            for publisher in one.publishers:
                if BROKER in publisher.roles:
                    home = publisher.principal.removeprefix(NODE_PRINCIPAL)
                    found.setdefault(home, []).append(publisher.address)
        if self._home not in found:
            raise Unreachable(
                f"{self._resolvers}: these resolvers do not know this node ({self._home}), so that what they "
                "say of others does not count: are they of this cluster, and is `/nodes` open to this node?"
            )
        return found

    async def close(self) -> None:
        await self._resolver.close()


@contextlib.asynccontextmanager
async def nodes_by_resolvers(config: Config, home: str) -> AsyncIterator[NodesByResolvers]:
    nodes = NodesByResolvers(config.resolvers, home, identity_of(config))
    try:
        yield nodes
    finally:
        await nodes.close()


def identity_of(config: Config) -> ClientIdentity:
    """Who this node is where it asks as a client does: by its keytab where nodes come by theirs, by its
    certificate else."""
    kerberos = config.kerberos
    proof = NO_PROOF
    if kerberos.nodes:
        credentials = KerberosCredentials(
            keytab=kerberos.keytab,
            principal=kerberos.service,
            service=kerberos.service.partition("/")[0],
            timeout_ms=kerberos.timeout_ms,
        )
        proof = ClientProof(credentials=credentials)
    certificate, key = (
        Path(path) if path else None for path in (config.tls_certificate, config.tls_key)
    )
    ca = config.tls_node_ca or config.tls_client_ca
    return ClientIdentity(proof, Path(ca) if ca else None, certificate, key)
