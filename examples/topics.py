"""Topics: every subscriber gets every message that matches, and can read again what was there."""

import asyncio

import moorline


async def main() -> None:
    async with moorline.connect("tcp://127.0.0.1:7411") as moor:
        subscription = await moor.subscribe("weather/+/wind")
        for wind in (b"12 knots", b"25 knots"):
            # Returns when it is safe on disk. Messages of one key, or else of one topic, stay in order.
            await moor.publish("weather/bergen/wind", wind)
        first = await anext(subscription)
        second = await anext(subscription)
        print(first.topic, first.body, second.body)
        await first.ack()
        await second.ack()
        again = await moor.subscribe("weather/bergen/#", start=first.time)
        message = await anext(again)
        print("and again", message.body)


asyncio.run(main())
