"""`moor demo --serve`: what goes on at the node, so that its page has something to show.

Queues that fill and are emptied, a group of two members, one of which leaves and comes back, and a value that
changes. It goes on until Ctrl-C.
"""

import asyncio
import itertools
import math
import random

import moorline
from moorline.demo.stage import Stage

QUEUES = 40
ORDERS_PER_S = 200
REGIONS = ("eu", "us", "apac", "latam")
GROUP = "$shared/workers/orders/#"
MEMBER_STAYS_S = 20
TIDE = "/harbour/tide"
BROKEN = "$shared/readers/broken/#"
LETTERS = 5


async def flow(stage: Stage) -> None:
    """Until it is cancelled."""
    address = stage.address
    async with moorline.connect(address) as moor, asyncio.TaskGroup() as tasks:
        tasks.create_task(_orders(moor))
        tasks.create_task(_member(moor))
        tasks.create_task(_comes_and_goes(address))
        tasks.create_task(_queues(moor))
        tasks.create_task(_tide(address))
        tasks.create_task(_service(stage))
        tasks.create_task(_letters(moor))


async def _orders(moor: moorline.Moor) -> None:
    for number in itertools.count():
        batch = [
            moorline.record(f"orders/{region}", b'{"order": %d}' % number, key=b"%d" % number)
            for region in REGIONS
        ]
        await moor.publish_all(batch * (ORDERS_PER_S // len(batch) // 10))
        await asyncio.sleep(0.1)


async def _member(moor: moorline.Moor) -> None:
    async for message in moor.subscribe(GROUP):
        await message.ack()


async def _comes_and_goes(address: str) -> None:
    """The second member of the group."""
    while True:
        async with moorline.connect(address) as moor:
            try:
                async with asyncio.timeout(MEMBER_STAYS_S):
                    await _member(moor)
            except TimeoutError:
                pass
        await asyncio.sleep(MEMBER_STAYS_S / 2)


async def _queues(moor: moorline.Moor) -> None:
    chance = random.Random(1)  # nothing secret
    queues = await moor.create_queues(QUEUES)
    while True:
        queue = chance.choice(queues)
        await moor.send(queue.id, b'{"parcel": %d}' % chance.randrange(1_000))
        emptied = chance.choice(queues[: QUEUES // 2])
        message = await emptied.get()
        if message is not None:
            await message.ack()
        await asyncio.sleep(0.02)


async def _tide(address: str) -> None:
    async with moorline.Publisher(address.replace("tcp://", "moor://")) as publisher:
        tide = publisher.publish(TIDE, 0.0)
        for step in itertools.count():
            tide.update(round(2 + 1.5 * math.sin(step / 20), 2))
            await publisher.commit()
            await asyncio.sleep(0.25)


async def _service(stage: Stage) -> None:
    """A service with some queues, which gets what is sent to them."""
    certificates = stage.certificates
    async with moorline.connect(
        stage.tls_address,
        ca=certificates.ca,
        certificate=certificates.service,
        key=certificates.service_key,
    ) as moor:
        queues = [queue.id for queue in await moor.create_queues(QUEUES)]
        async with moor.service(stage.folder / "service.sqlite") as service:
            await service.associate(queues)
            for number in itertools.count():
                await moor.send(queues[number % len(queues)], b'{"berth": %d}' % number)
                await (await anext(aiter(service))).ack()
                await asyncio.sleep(0.2)


async def _letters(moor: moorline.Moor) -> None:
    """Some orders cannot be read by anybody: they become dead letters."""
    await moor.group(BROKEN).create(deliveries_max=1)
    subscription = await moor.subscribe(BROKEN)
    for number in range(LETTERS):
        await moor.publish("broken/orders", b'{"order": %d, "weight": "?"}' % number)
        await (await anext(subscription)).reject()
        await asyncio.sleep(1)
    await asyncio.Event().wait()
