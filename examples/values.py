"""Values: the latest of a path, straight from whoever publishes it; and at every change."""

import asyncio

import moorline


async def main() -> None:
    async with (
        moorline.Publisher("moor://127.0.0.1:7411") as publisher,
        moorline.Subscriber("moor://127.0.0.1:7411") as subscriber,
    ):
        wind = publisher.publish("/bergen/wind", 12)
        await publisher.replicated()
        subscription = subscriber.durable_subscribe("/bergen/wind")
        print(await subscription.wait(), "knots")
        async for event in subscription:
            print(event.kind.value, event.value)
            if event.value == 25:
                break
            wind.update(25)
            # All that was updated is visible now, as one batch.
            await publisher.commit()


asyncio.run(main())
