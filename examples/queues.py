"""A queue: three messages are sent, and read in their order."""

import asyncio

import moorline


async def main() -> None:
    async with moorline.connect("tcp://127.0.0.1:7411") as moor:
        queue = await moor.create_queue()
        for body in (b"one", b"two", b"three"):
            await moor.send(queue.id, body)  # returns when the message is safe on disk
        async for message in queue:
            print(message.body)
            left = await message.ack()  # from now on the node may forget it
            if left == 0:
                break
        await queue.delete()


asyncio.run(main())
