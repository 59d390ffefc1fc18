"""Dead letters: a message that fails again and again is put aside, and the rest goes on."""

import asyncio

import moorline

GROUP = "$shared/parser/mail/#"


async def parse(moor: moorline.Moor, parsed: list[str]) -> None:
    async for message in moor.subscribe(GROUP):
        try:
            parsed.append(message.body.decode())
        except UnicodeDecodeError:
            print(f"delivery {message.deliveries} failed")
            await message.reject()  # it comes again, here or at another member
        else:
            await message.ack()


async def main() -> None:
    async with moorline.connect("tcp://127.0.0.1:7411") as moor:
        group = moor.group(GROUP)
        await group.create(deliveries_max=3)
        letters = await moor.subscribe("$dead/parser/#")
        await moor.publish("mail/in", b"a good one")
        await moor.publish("mail/in", b"\xff\xfe")
        parsed: list[str] = []
        parsing = asyncio.create_task(parse(moor, parsed))
        letter = await anext(letters)
        why = dict(letter.headers)["dead-reason"].decode()
        print(f"parsed: {parsed}; in {letter.topic}: {why}")
        await letter.ack()
        parsing.cancel()
        await asyncio.wait([parsing])
        await group.delete()


asyncio.run(main())
