import asyncio

import moorline


async def main() -> None:
    async with moorline.connect("tcp://127.0.0.1:7411") as moor:
        node = await moor.describe()
        print(f"{node.node} runs {', '.join(node.roles)}")
        print(await moor.echo(b"ahoy"))


asyncio.run(main())
