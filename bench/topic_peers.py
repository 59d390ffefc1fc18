"""The peers of the topic benchmark: one stream of Redis, one of JetStream in files; called raw.

A group is a consumer group of Redis (XREADGROUP, XACK), or a durable push consumer of JetStream whose
deliveries its members share. Topics are a field of the entry, or the subject.
"""

import asyncio
from pathlib import Path

from bench.peers import LINE_END, Lines, Nats, NatsLines, Redis, Replies, command, opened
from bench.queue_client import Tickets
from bench.topic_client import BODY, READ_MAX, WINDOW, Ears, TopicSide, Turn

BLOCK_MS = 100
STREAM = b"s"
ENTRY_LINES = 12
"""Of a reply of XREADGROUP for each entry: *2, id and its length, *4, two names and two values."""

HEAD_LINES = 5
"""Before the entries: *1, *2, the stream and its length, their count."""


class RedisSide(TopicSide):
    kind = "redis"

    def __init__(self, folder: Path, appendfsync: str) -> None:
        self._server = Redis(folder, appendfsync)
        self.name = self._server.name
        self.pid = self._server.process.pid
        self.address = str(self._server.port)

    async def open(self) -> None:
        await self._server.ready()
        await self._server.close()
        port = int(self.address)
        self._stored, self._asked = Replies(), Replies()
        self._out = await opened(port, lambda: Lines(self._stored.heard, self._stored.tickets))
        self._ask = await opened(port, lambda: Lines(self._asked.heard, self._asked.tickets))

    def prepare(self, batch: int, *, single: bool) -> None:  # noqa: ARG002 - XADD takes one
        self._batch = batch
        self._turn = Turn(_adds, batch)

    def publish(self) -> "asyncio.Future[None]":
        self._out.write(self._turn.take())
        return self._stored.tickets.take(2 * self._batch)  # a length and an id for each

    def publish_each(self, topics: list[int], body: bytes) -> "asyncio.Future[None]":
        self._out.write(_adds(topics, body))
        return self._stored.tickets.take(2 * len(topics))

    async def make_group(self, group: str) -> None:
        create = command(b"XGROUP", b"CREATE", STREAM, group.encode(), b"$", b"MKSTREAM")
        self._ask.write(create)
        await self._asked.take(1)

    async def unsettled(self, group: str) -> int:  # noqa: ARG002
        """None: a member counts what Redis has answered."""
        return 0

    async def end_group(self, group: str) -> None:
        self._ask.write(command(b"XGROUP", b"DESTROY", STREAM, group.encode()))
        await self._asked.take(1)

    async def close(self) -> None:
        self._out.close()
        self._ask.close()

    def kill(self) -> None:
        self._server.kill()


def _adds(topics: list[int], body: bytes = BODY) -> bytes:
    return b"".join(
        command(b"XADD", STREAM, b"*", b"t", b"%02d" % topic, b"b", body) for topic in topics
    )


class RedisMember:
    """Reads, acknowledges, and reads on; counts what was acknowledged when that was answered."""

    def __init__(self, port: int, group: str, name: str, ears: Ears) -> None:
        self._port = port
        self._ears = ears
        self._group = group.encode()
        read = [b"XREADGROUP", b"GROUP", self._group, name.encode(), b"COUNT", b"%d" % READ_MAX]
        self._read = command(*read, b"BLOCK", b"%d" % BLOCK_MS, b"STREAMS", STREAM, b">")
        self._lines: list[bytes] = []
        self._tickets = Tickets()

    async def run(self) -> None:
        end = self._tickets.take(1)
        self._connection = await opened(self._port, lambda: Lines(self._heard, self._tickets))
        self._connection.write(self._read)
        await end

    def _heard(self, block: bytes) -> None:
        lines = self._lines
        lines += block.split(LINE_END)[:-1]
        while lines:
            first = lines[0]
            if first.startswith(b":"):
                self._ears.count(int(first[1:]))
                del lines[0]
            elif first == b"*-1":
                self._connection.write(self._read)
                del lines[0]
            elif first == b"*1":
                if len(lines) < HEAD_LINES:
                    return
                stop = HEAD_LINES + ENTRY_LINES * int(lines[4][1:])
                if len(lines) < stop:
                    return
                ids = lines[HEAD_LINES + 2 : stop : ENTRY_LINES]
                acknowledge = command(b"XACK", STREAM, self._group, *ids)
                self._connection.write(acknowledge + self._read)
                if self._ears.see is not None:
                    topics = lines[HEAD_LINES + 7 : stop : ENTRY_LINES]
                    bodies = lines[HEAD_LINES + 11 : stop : ENTRY_LINES]
                    for topic, body in zip(topics, bodies, strict=True):
                        self._ears.see(int(topic), int(body[:20]))
                del lines[:stop]
            else:
                self._tickets.fail(ValueError(f"Redis said {first!r}"))
                return


# --- NATS -----------------------------------------------------------------------------------------


class NatsSide(TopicSide):
    kind = "nats"

    def __init__(self, folder: Path) -> None:
        self._server = Nats(folder)
        self.name = self._server.name
        self.pid = self._server.process.pid
        self.address = str(self._server.port)

    async def open(self) -> None:
        self._stored = Tickets()
        server = self._server
        await server.open_interface()
        self._out = await server.subscribed(self._heard, self._stored, server.ANSWERS)
        await self.make_stream("T", "t.*")

    async def make_stream(self, name: str, subjects: str) -> None:
        config = {"name": name, "subjects": [subjects], "storage": "file", "retention": "limits"}
        await self._server.request(f"STREAM.CREATE.{name}", config)

    def prepare(self, batch: int, *, single: bool) -> None:  # noqa: ARG002 - PUB takes one
        self._batch = batch
        self._turn = Turn(_publishes, batch)

    def publish(self) -> "asyncio.Future[None]":
        self._out.write(self._turn.take())
        return self._stored.take(self._batch)

    def publish_each(self, topics: list[int], body: bytes) -> "asyncio.Future[None]":
        self._out.write(_publishes(topics, body))
        return self._stored.take(len(topics))

    async def make_group(self, group: str) -> None:
        config = {
            "durable_name": group,
            "deliver_subject": f"deliver.{group}",
            "deliver_group": group,
            "deliver_policy": "new",
            "ack_policy": "explicit",
            "max_ack_pending": 4 * WINDOW,
        }
        body = {"stream_name": "T", "config": config}
        await self._server.request(f"CONSUMER.DURABLE.CREATE.T.{group}", body)

    async def unsettled(self, group: str) -> int:
        info = await self._server.request(f"CONSUMER.INFO.T.{group}", None)
        return int(info["num_ack_pending"]) + int(info["num_pending"])

    async def end_group(self, group: str) -> None:
        await self._server.request(f"CONSUMER.DELETE.T.{group}", None)

    async def close(self) -> None:
        self._out.close()
        self._server.api.close()

    def kill(self) -> None:
        self._server.kill()

    def _heard(self, block: bytes) -> None:
        if b'"error"' in block:
            self._stored.fail(ValueError(f"NATS said {block[:200]!r}"))
        self._stored.pay(block.count(b'{"stream"'))


def _publishes(topics: list[int], body: bytes = BODY) -> bytes:
    head = b"PUB t.%02d " + Nats.ANSWERS + b" %d\r\n%s\r\n"
    return b"".join(head % (topic, len(body), body) for topic in topics)


class NatsMember:
    """Acknowledges whatever is pushed to it; JetStream does not answer that unless it is asked to."""

    def __init__(self, port: int, group: str, name: str, ears: Ears) -> None:  # noqa: ARG002
        self._port = port
        self._group = group.encode()
        self._ears = ears
        self._tickets = Tickets()
        self._topic = 0

    async def run(self) -> None:
        end = self._tickets.take(1)
        self._connection = await opened(self._port, lambda: NatsLines(self._heard, self._tickets))
        self._connection.write(b'CONNECT {"verbose":false,"pedantic":false,"protocol":1}\r\n')
        self._connection.write(b"SUB deliver.%s %s 1\r\n" % (self._group, self._group))
        await end

    def _heard(self, block: bytes) -> None:
        """`MSG t.07 1 $JS.ACK.… 100` and the body in the next line."""
        lines = block.split(LINE_END)
        heads = [line for line in lines if line.startswith(b"MSG ")]
        if heads:
            self._connection.write(
                b"".join([b"PUB %s 4\r\n+ACK\r\n" % line.split(b" ", 4)[3] for line in heads])
            )
        if self._ears.see is not None:
            for line in lines:
                if line.startswith(b"MSG "):
                    self._topic = int(line[6:8])
                elif len(line) == len(BODY):
                    self._ears.see(self._topic, int(line[:20]))
        self._ears.count(len(heads))
