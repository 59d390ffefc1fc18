"""A shared group: each message goes to one of its members, in order within a key."""

import asyncio

import moorline

ADDRESS = "tcp://127.0.0.1:7411"
GROUP = "$shared/billing/orders/#"


async def take_part(number: int, got: list[int], all_done: asyncio.Event) -> None:
    """A member: mostly a process of its own."""
    async with moorline.connect(ADDRESS) as moor:
        async for message in moor.subscribe(GROUP):
            got[number] += 1
            await message.ack()  # from now on no other member gets it
            if sum(got) == 1_000:
                all_done.set()


async def main() -> None:
    async with moorline.connect(ADDRESS) as moor:
        group = moor.group(GROUP)
        await group.create()  # from now on nothing is missed, even before the first member
        got, all_done = [0, 0], asyncio.Event()
        members = [asyncio.create_task(take_part(number, got, all_done)) for number in (0, 1)]
        await moor.publish_all(
            [moorline.record("orders/eu", b"an order", key=f"customer {n}") for n in range(1_000)]
        )
        await all_done.wait()
        print(f"1000 orders: {got[0]} to one member, {got[1]} to the other")
        for member in members:
            member.cancel()
        await asyncio.wait(members)
        await group.delete()


asyncio.run(main())
