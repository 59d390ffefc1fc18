"""A durable session: its subscriptions and its places wait for it while it is away."""

import asyncio

import moorline

ADDRESS = "tcp://127.0.0.1:7411"


async def main() -> None:
    async with moorline.connect(ADDRESS) as moor:
        await moor.session("till 7", expiry_s=3_600)
        await moor.subscribe("prices/#")
    async with moorline.connect(ADDRESS) as other:
        await other.publish("prices/tea", b"2.50")
    async with moorline.connect(ADDRESS) as moor:
        (subscription,) = await moor.session("till 7", expiry_s=3_600)
        message = await anext(subscription)
        print(f"while we were away: {message.topic} is {message.body.decode()}")
        await message.ack()
        await subscription.close()  # for good; the end of the connection alone keeps it


asyncio.run(main())
