"""Room: client. From a list of resolvers to a node that serves queues and topics: what `moor://…` means.

    moor://host1,host2:7500      resolvers over TCP, asked in any order
    moors://host1,host2          the same over TLS

The resolvers know all nodes that live. One with the role `broker` is chosen by chance, the next one if it
cannot be reached. It is called the way the resolvers are: by TLS where they are. Whoever needs one node and
no other names it by its home, which stays when its name and its addresses change.
"""

import secrets
from random import Random
from typing import NamedTuple

from moorline.client.resolution import Resolution
from moorline.client.resolver import Resolver
from moorline.client.resolver_cluster import ReaderLink
from moorline.config.addresses import Address, listen_address
from moorline.errors import MoorlineError, Unreachable
from moorline.net.caller import Caller

BROKER = "broker"
NODES = "/nodes/*"
NODE_PRINCIPAL = "$node/"
"""Before the home, in the principal of a node."""
SCHEMES = ("moor://", "moors://")


class Candidate(NamedTuple):
    """An address of a node; `is_certain` if it is the node's own, and not a guess about its host."""

    node: str
    address: Address
    is_certain: bool
    home: str = ""


def names_resolvers(address: str) -> bool:
    return address.startswith(SCHEMES)


class Wanted(NamedTuple):
    """Which broker it must be; without any of these, one of them."""

    home: str = ""
    number: bytes = b""
    """Of a home: what the ids of its queues end with."""

    @property
    def paths(self) -> str:
        return f"/homes/{self.number.hex()}" if self.number else NODES


ANY = Wanted()


async def open_broker(
    resolvers: str, link: ReaderLink, wanted: Wanted = ANY, *, is_steady: bool = False
) -> tuple[Caller, Address]:
    """A connection to a broker, and where it is. A steady choice is the same for all who make it, while
    the brokers are the same. One that is wanted and not there is never replaced by another."""
    async with Resolver.by(link, resolvers) as resolver:
        known = await _candidates(resolver, wanted.paths, is_steady=is_steady)
    candidates = [one for one in known if wanted.home in ("", one.home)]
    if not candidates:
        raise _nobody(resolvers, wanted, known)
    failed: MoorlineError | None = None
    for candidate in candidates:
        try:
            caller = await link.opened(candidate.address)
        except MoorlineError as error:
            failed = error
            continue
        if _is_meant(caller, candidate, wanted):
            return caller, candidate.address
        caller.close("DONE", "another node was meant")
    if failed is not None:
        raise failed
    raise Unreachable(
        f"{resolvers}: none of its brokers says where it can be reached: set `advertise`"
    )


def _nobody(resolvers: str, wanted: Wanted, known: list[Candidate]) -> Unreachable:
    text = f"{resolvers}: its resolvers know no node with the role broker"
    if wanted.number:
        text += f" that has the home {wanted.number.hex()} of that queue"
    elif wanted.home:
        others = ", ".join(sorted({one.home for one in known})) or "none"
        text += f" and the home {wanted.home!r}; known: {others}"
    return Unreachable(text)


def _is_meant(caller: Caller, candidate: Candidate, wanted: Wanted) -> bool:
    """Whether the node there is the one that was told; an address may be another's by now."""
    if caller.node is None:
        return candidate.is_certain and wanted == ANY
    if wanted != ANY:
        return caller.node.home == candidate.home
    return candidate.is_certain or caller.node.node == candidate.node


async def _candidates(resolver: Resolver, paths: str, *, is_steady: bool) -> list[Candidate]:
    """The addresses of all brokers, in an order of chance or in that of their names."""
    found: list[Candidate] = []
    for one in await resolver.resolve_all(await resolver.match(paths)):
        if isinstance(one, Resolution):
            found += _addresses_of(one, resolver.addresses)
    if is_steady:
        found.sort()
    else:
        Random(secrets.randbits(64)).shuffle(found)
    # A guess comes last.
    found.sort(key=lambda candidate: not candidate.is_certain)
    return found


def _addresses_of(node: Resolution, resolvers: tuple[Address, ...]) -> list[Candidate]:
    name = node.path.rpartition("/")[2]
    scheme = resolvers[0].scheme
    found: list[Candidate] = []
    for publisher in node.publishers:
        if BROKER not in publisher.roles:
            continue
        try:
            address = listen_address(publisher.address)
        except ValueError:
            continue  # of a newer node, perhaps
        if address.scheme != scheme:
            continue
        home = publisher.principal.removeprefix(NODE_PRINCIPAL)
        if not address.is_unspecified:
            found.append(Candidate(name, address, True, home))
        else:
            # It listens everywhere on its machine, which may be that of a resolver.
            hosts = {one.host for one in resolvers}
            found += [Candidate(name, address._replace(host=host), False, home) for host in hosts]
    return found
