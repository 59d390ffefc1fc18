"""Room: spark. The option `address` as a list of resolvers: `moor://host1,host2` stands for a node.

It is found where options are read, so that planner and tasks mean the same node. The choice is steady: the
same for all processes while the nodes are the same.

That a batch of a query is published once is promised by the node that has committed those before it. So a
write that has a query of its own says which node that is, by its home; a write that nobody will repeat under
its name goes to any broker, the same one for all of its tasks. Decision 0073.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from moorline.client.broker_choice import ANY, Wanted, names_resolvers, open_broker
from moorline.client.credentials import ClientIdentity, ClientProof
from moorline.client.resolver_cluster import ReaderLink


def found_address(
    address: str,
    proof: ClientProof,
    ca: str,
    certificate: str,
    key: str,
    wanted: Wanted = ANY,
) -> str:
    """The address itself, where it is a node's."""
    if not names_resolvers(address):
        return address
    link = ReaderLink(ClientIdentity(proof, _path(ca), _path(certificate), _path(key)))

    async def look() -> str:
        caller, found = await open_broker(address, link, wanted, is_steady=True)
        caller.close("DONE", "the node is found")
        return str(found)

    # In a thread of its own: whoever reads options may have a loop that runs.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, look()).result()


def _path(text: str) -> Path | None:
    return Path(text) if text else None
