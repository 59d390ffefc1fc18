"""Who looks into what is somebody else's is in the audit, and fills it with nothing."""

import asyncio
from collections import Counter
from pathlib import Path

from tests.process.nodes import NodeProcess
from tests.process.proving import audited
from tests.waiting import until

import moorline
from moorline.net.credentials import TokenCredentials
from moorline.wire.browse import BrowseStream
from moorline.wire.queue import Get, Got
from moorline.wire.queue_contents import PeekQueue, QueuePeeked


async def test_looks_into_what_is_anothers_are_in_the_audit_and_added_up(tmp_path: Path) -> None:
    """A40: into a queue by a right and not by owning it; into streams whoever it is."""
    with NodeProcess(tmp_path / "data", "--set=streams.shards=1") as node:
        async with moorline.connect(node.address) as local:
            tokens = {}
            for name in ("alice", "captain"):
                await local.access.add_user(name)
                tokens[name] = TokenCredentials((await local.access.add_token(name, "t")).token)
            await local.access.add_grant("/queues", "captain", "s")
            await local.access.add_grant("/topics/captain", "captain", "s")
            own = await local.create_queue()
            await local.send(own.id, b"of nobody proven")
            assert await own.get() is not None
        async with (
            moorline.connect(node.address, credentials=tokens["alice"]) as alice,
            moorline.connect(node.address, credentials=tokens["captain"]) as captain,
        ):
            queue = await alice.create_queue()
            await alice.send(queue.id, b"hers")
            assert await queue.get() is not None
            for _ in range(20):
                got = await captain._caller.call(lambda n: Get(n, queue.id), Got)
                assert got.body == b"hers"
            peeked = await captain._caller.call(lambda n: PeekQueue(n, queue.id), QueuePeeked)
            assert [one.body for one in peeked.messages] == [b"hers"]
            await captain.publish("captain/t", b"m")
            for _ in range(300):
                await captain._caller.call_all([lambda n: BrowseStream(n, 0, 0, 0, ["captain/#"])])
            async with asyncio.timeout(30):
                async for message in captain.queue(queue.id).read():
                    assert message.body == b"hers"
                    break
        lines = Counter[str]()

        def counted() -> bool:
            lines.clear()
            for line in audited(node):
                if (line["kind"], line["principal"]) == ("operator", "captain"):
                    lines[line["act"]] += 1
            return {"Get", "PeekQueue", "BrowseStream", "Subscribe"} <= set(lines)

        await until(counted)
    # Behind the stop: sums are written, and every look is in the count of a line.
    found = [line for line in audited(node) if line["kind"] == "operator"]
    assert {line["principal"] for line in found} == {"captain"}, "owners are no operators"
    counts = Counter[str]()
    for line in found:
        counts[line["act"]] += line.get("count", 1)
    assert counts == {"Get": 20, "PeekQueue": 1, "BrowseStream": 300, "Subscribe": 1}
    assert len(found) < 30
