"""Many queues: what is sent together shares one commit, and each message has a result of its own."""

import asyncio

import moorline


async def main() -> None:
    async with moorline.connect("tcp://127.0.0.1:7411") as moor:
        queues = await moor.create_queues(1_000)
        await queues[7].off()
        results = await moor.send_all([(queue.id, b"ahoy") for queue in queues])
        refused = [result for result in results if isinstance(result, moorline.CallFailed)]
        print(f"{len(results) - len(refused)} stored, {len(refused)} refused: {refused[0].code}")
        heads = [head for head in await moor.get_all(queues) if head is not None]
        failed = [result for result in await moor.ack_all(heads) if result is not None]
        print(f"{len(heads)} read and acknowledged, {len(failed)} failed")
        for queue in queues:
            await queue.delete()


asyncio.run(main())
