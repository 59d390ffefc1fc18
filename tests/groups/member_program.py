"""A member as a process of its own, to be killed: says what it gets, acknowledges the first few.

python -m tests.groups.member_program ADDRESS FILTER ACKS
"""

import asyncio
import sys

import moorline


async def main(address: str, filter_text: str, acks: int) -> None:
    moor = await moorline.connect(address, reconnect=False)
    subscription = await moor.subscribe(filter_text)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    async for message in subscription:
        if acks:
            acks -= 1
            await message.ack()
            await moor.echo(b"")  # behind the acknowledgement, on the same connection
            sys.stdout.write("acked ")
        sys.stdout.write(message.body.decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
