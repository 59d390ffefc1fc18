"""A $queue group: its members take single messages, and a slow one holds nobody up."""

import asyncio

import moorline

ADDRESS = "tcp://127.0.0.1:7411"
GROUP = "$queue/render/pictures/#"


async def main() -> None:
    async with (
        moorline.connect(ADDRESS) as moor,
        moorline.connect(ADDRESS) as quick,
        moorline.connect(ADDRESS) as slow,
    ):
        stuck = await slow.subscribe(GROUP, window=1)  # takes one message at a time
        await moor.publish_all([moorline.record("pictures/cat", b"%d" % n) for n in range(100)])
        held = await anext(stuck)
        done = 0
        async for message in quick.subscribe(GROUP, window=10):
            await message.ack()
            done += 1
            if done == 99:
                break
        print(f"{done} pictures are done while one takes its time")
        await held.ack()
        await moor.group(GROUP).delete()


asyncio.run(main())
