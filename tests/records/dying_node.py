"""A node that kills itself with SIGKILL while it publishes the Nth batch of a table; a real one but for that.

python -m tests.records.dying_node SETTINGS stored|half|published N
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence

import msgspec

from moorline.config.settings import Config
from moorline.node.node import Node
from moorline.node.records import StreamSink
from moorline.records.publication_message import PublishedMessage

real_publish = StreamSink.publish


class Death:
    """`stored`: the batch is in the catalog, and nothing of it in the streams. `half`: half of it is there,
    and durable. `published`: all of it, and the batch is not marked as done."""

    def __init__(self, where: str, batches: int) -> None:
        self.where = where
        self.batches = batches

    async def publish(
        self,
        sink: StreamSink,
        topic: str,
        producer: str,
        first: int,
        messages: Sequence[PublishedMessage],
    ) -> None:
        # A batch of one message has no half.
        self.batches -= self.where != "half" or len(messages) > 1
        if self.batches <= 0:
            if self.where == "half":
                await real_publish(sink, topic, producer, first, messages[: len(messages) // 2])
            if self.where == "published":
                await real_publish(sink, topic, producer, first, messages)
            os.kill(os.getpid(), signal.SIGKILL)
        await real_publish(sink, topic, producer, first, messages)


async def main(settings: str, where: str, batches: str) -> None:
    death = Death(where, int(batches))

    async def publish(
        self: StreamSink,
        topic: str,
        producer: str,
        first: int,
        messages: Sequence[PublishedMessage],
    ) -> None:
        await death.publish(self, topic, producer, first, messages)

    StreamSink.publish = publish  # type: ignore[method-assign]
    async with contextlib.AsyncExitStack() as stack:
        node = Node(msgspec.json.decode(settings, type=Config))
        await node.start(stack)
        raise await node.failed()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
