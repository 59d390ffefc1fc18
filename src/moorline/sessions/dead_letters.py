"""Room: sessions. Messages that failed too often: stored under `$dead/GROUP/TOPIC`, and done for their
stream. That they failed too often is decided by `Feed.has_failed_too_often` (`core/delivery/feed.py`).

The letter has the message's body, key and headers, and says where it came from and how often it failed. It is
acknowledged in its stream after it is stored: a crash in between makes a second letter, never none.
"""

import asyncio
import logging

from moorline.core.delivery.open_feed import OpenFeed
from moorline.core.frames.block import Block
from moorline.core.frames.frame import (
    TOMBSTONE,
    Stored,
    decode_headers,
    encode_headers,
    stored_at,
)
from moorline.core.frames.hidden import HIDDEN
from moorline.core.stream import Gap
from moorline.core.topic import DEAD_PREFIX, SharedName, matches
from moorline.errors import MoorlineError
from moorline.limits import (
    PEER_RETRY_MS,
    TOPIC_BYTES_MAX,
    TOPIC_HEADERS_BYTES_MAX,
    TOPIC_LEVELS_MAX,
)
from moorline.sessions.delivery_host import DeliveryHost
from moorline.topics.directory import StreamDirectory

log = logging.getLogger("moorline.groups")


async def bury(
    directory: StreamDirectory,
    delivery: DeliveryHost,
    one: OpenFeed,
    offset: int,
    group: SharedName,
) -> None:
    """Stores a dead letter and takes its message off the stream."""
    stream = one.feed.stream
    failures = one.feed.progress.failures.get(offset, 0)
    found = await _read(directory, one, offset)
    if found is None:
        return  # the stream is another's by now, who finds the same
    if isinstance(found, Gap):
        delivery.not_buried(one.feed.number, offset, found.reason)
        return
    if found.names[found.topics[0]] == HIDDEN:
        # Its topic was deleted since: nobody is to read it, under another name neither.
        delivery.buried(one.feed.number, offset)
        return
    message = stored_at(found.data, 0)
    origin = [
        ("dead-reason", b"failed too often"),
        ("dead-deliveries", str(failures).encode()),
        ("dead-group", str(group).encode()),
        ("dead-topic", message.topic.encode()),
        ("dead-stream", str(stream).encode()),
        ("dead-offset", str(offset).encode()),
        ("dead-time-us", str(message.time_us).encode()),
    ]
    topic = _topic_of_letter(group, message.topic)
    if message.topic.startswith(DEAD_PREFIX) and matches(group.filter, topic):
        # A group that reads the dead would read this letter again, and bury it again, for ever.
        log.error(
            "a dead letter failed too often, and is given up",
            extra={"group": str(group), "stream": str(stream), "offset": offset},
        )
        delivery.buried(one.feed.number, offset)
        return
    headers = encode_headers([*_headers(message, origin), *origin])
    if len(headers) > TOPIC_HEADERS_BYTES_MAX:
        headers = encode_headers(origin)
    local = directory.local
    flags = message.flags & TOMBSTONE
    local.store.append(topic, message.body, message.key, headers, 0, flags)
    await local.commits.durable()
    log.warning(
        "a message failed too often",
        extra={"group": str(group), "stream": str(stream), "offset": offset, "kept": topic},
    )
    delivery.buried(one.feed.number, offset)


def _headers(message: Stored, origin: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Those of the message. Whoever published it does not say where it came from: a letter is sent back by
    somebody with more rights than that one. What a letter says of itself before is a node's word."""
    own = decode_headers(message.headers)
    if message.topic.startswith(DEAD_PREFIX):
        return own
    names = {name for name, _ in origin}
    return [(name, value) for name, value in own if name not in names]


def _topic_of_letter(group: SharedName, topic: str) -> str:
    """Where it is kept; what would be too long for a topic is cut, and whole in the headers."""
    levels = f"{DEAD_PREFIX}{group.group}/{topic}".split("/")[:TOPIC_LEVELS_MAX]
    return "/".join(levels).encode()[:TOPIC_BYTES_MAX].decode(errors="ignore")


async def _read(directory: StreamDirectory, one: OpenFeed, offset: int) -> Block | Gap | None:
    """The message, as long as the stream is ours and until it can be read and there is room for it."""
    stream, local = one.feed.stream, directory.local
    while one.is_open:
        found: Block | Gap | None = None
        try:
            if stream.home != directory.node:
                found = await directory.read(stream, offset)
            elif not local.is_disk_full:
                found = await local.read(stream, offset)
        except MoorlineError as error:
            log.warning("a dead letter waits", extra={"stream": str(stream), "error": str(error)})
        if found is not None and not local.is_disk_full:
            return found
        await asyncio.sleep(PEER_RETRY_MS / 1_000)
    return None
