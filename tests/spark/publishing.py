"""What the tests of Spark publish, and how they compare what was read with it."""

import asyncio
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import moorline

COUNT = 2_400
BATCH = 200


class Message(NamedTuple):
    """A message as its publisher knows it."""

    topic: str
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


def message(number: int) -> Message:
    """Every shape: with and without key and headers, empty, short, of all lengths around Arrow's twelve."""
    topic = f"orders/{'eu' if number % 3 else 'us'}/{number % 7}" if number % 5 else "größe"
    key = None if number % 4 == 0 else b"" if number % 97 == 1 else b"key-%d" % (number % 50)
    headers = ((f"n{number % 3}", b"\x00\xff"), ("zwei", b"")) if number % 6 == 0 else ()
    value = b"%d:" % number + bytes(number % 251 for _ in range(number % 190))
    return Message(topic, key, value, headers)


def ttl_s_of(number: int) -> int:
    """Some for ever, and some for so long that it does not fit 31 bits."""
    return 3_000_000_000 if number % 9 == 4 else 0


async def publish(address: str, count: int = COUNT, first: int = 0) -> list[Message]:
    """In several calls, so that generations come to an end; returns when the first is sealed."""
    messages = [message(number) for number in range(first, first + count)]
    async with moorline.connect(address) as moor:
        for start in range(0, count, BATCH):
            records = [
                moorline.record(
                    one.topic,
                    one.value,
                    key=one.key,
                    headers=one.headers or None,
                    ttl_s=ttl_s_of(number_of(one)),
                )
                for one in messages[start : start + BATCH]
            ]
            producer = "tests" if start % (2 * BATCH) else ""
            await moor.publish_all(records, producer=producer, sequence=first + start)
        async with asyncio.timeout(20):
            while count >= COUNT and not any(one.digest for one in (await moor.streams()).streams):
                await asyncio.sleep(0.01)
    return messages


def copy_streams(data: Path, target: Path) -> Path:
    """A data folder with the streams of a node that runs: what it is writing beside them may vanish."""
    passing = shutil.ignore_patterns("*.new", "*.snapshot")
    shutil.copytree(data / "streams", target / "streams", ignore=passing)
    return target


def read(rows: list[Any]) -> list[Message]:
    """Rows of a read with headers, in the order of what was published."""
    found = [
        Message(
            row.topic,
            None if row.key is None else bytes(row.key),
            bytes(row.value),
            tuple((one.key, bytes(one.value)) for one in row.headers or ()),
        )
        for row in rows
    ]
    return sorted(found, key=number_of)


def number_of(one: Message) -> int:
    return int(one.value.split(b":")[0])
