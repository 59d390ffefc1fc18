"""A service of a client that stays: it enters again over the next connection, and both sides agree."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from chaos.proxy import LinkProxy
from tests.cli.commands import Proven, proving
from tests.client.test_staying import cut
from tests.process.nodes import run_moor
from tests.waiting import until

import moorline
from moorline.client.moor import Moor

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proven]:
    with proving(tmp_path_factory.mktemp("staying-service"), "billing") as made:
        granted = ["grant", "add", "/", "billing", "slwp", f"--address={made.node.address}"]
        assert run_moor(*granted).returncode == 0
        yield made


@pytest.fixture
async def proxy(proven: Proven) -> AsyncIterator[LinkProxy]:
    async with LinkProxy() as made:
        made.target = int(proven.address.rpartition(":")[2])
        yield made


@pytest.fixture
async def moor(proven: Proven, proxy: LinkProxy) -> AsyncIterator[Moor]:
    address, files = f"tls://127.0.0.1:{proxy.port}", proven.certificates
    async with moorline.connect(address, ca=proven.ca, certificate=files, key=files) as made:
        yield made


async def test_a_service_goes_on_and_what_was_in_hand_comes_again(
    moor: Moor, proxy: LinkProxy, tmp_path: Path
) -> None:
    queues = [queue.id for queue in await moor.create_queues(20)]
    async with moor.service(tmp_path / "billing.sqlite", window=4) as service:
        assert not await service.associate(queues[:10])
        await moor.send_all([(queue, b"one") for queue in queues[:10]])
        messages = aiter(service)
        in_hand = await anext(messages)
        await cut(proxy, moor)
        with pytest.raises(moorline.Stale):
            await in_hand.ack()
        # Waits until both sides agree over the next connection, and is done over that.
        assert not await service.associate(queues[10:])
        await moor.send_all([(queue, b"one") for queue in queues[10:]])
        got: set[bytes] = set()
        while len(got) < 20:
            message = await anext(messages)
            got.add(message.queue)
            await message.ack()
        assert got == set(queues)
        assert (await service.agree()).lost == []
        assert service.report.digest.count >= 20


async def test_a_program_that_reads_a_service_needs_to_know_nothing_of_faults(
    moor: Moor, proxy: LinkProxy, tmp_path: Path
) -> None:
    queues = [queue.id for queue in await moor.create_queues(30)]
    got: list[bytes] = []
    async with moor.service(tmp_path / "acking.sqlite") as service:
        await service.associate(queues)
        await moor.send_all([(queue, b"one") for queue in queues])
        async for message in service.acking():
            if message.queue in queues:
                got.append(message.queue)
            if len(got) in (5, 15):
                await cut(proxy, moor)
            if set(got) >= set(queues):
                break
        assert len(got) - len(set(got)) <= 2, "one for each cut"
        await until(lambda: service.settled.is_set())
