"""A client that stays: it connects again by itself, and tells what happens."""

import asyncio

import moorline

ADDRESSES = ["tcp://127.0.0.1:7411", "tcp://127.0.0.1:7421"]


async def main() -> None:
    # The first that answers; when it is lost, whichever of them is there.
    async with moorline.connect(ADDRESSES, deadline_s=10) as moor:
        events = moor.events()
        await moor.publish("tides/bergen", b"high", producer="tides", sequence=1)
        # Sent again under the same number, as the client does it when an answer is lost: stored once.
        again = await moor.publish("tides/bergen", b"high", producer="tides", sequence=1)
        print("stored twice:", again.stored)
        async for message in moor.subscribe("tides/#", start="beginning").acking():
            print(message.topic, message.body)
            break
    print([event.kind.value async for event in events])


asyncio.run(main())
