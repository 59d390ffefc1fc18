"""A full queue: its senders are refused until its reader has read it to the end."""

import asyncio

import moorline


async def main() -> None:
    async with moorline.connect("tcp://127.0.0.1:7411") as moor:
        queue = await moor.create_queue()
        sent = 0
        try:
            while True:
                await moor.send(queue.id, b"ahoy")
                sent += 1
        except moorline.QuotaExceeded as refusal:
            print(f"refused after {sent}: {refusal}")
        async for message in queue:
            if message.is_quota_marker:
                print("senders were turned away here")
            if await message.ack() == 0:
                break
        await moor.send(queue.id, b"ahoy again")
        print("the queue takes messages again")
        await queue.delete()


asyncio.run(main())
