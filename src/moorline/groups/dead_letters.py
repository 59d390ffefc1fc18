"""Room: groups. Messages that failed too often: stored under `$dead/GROUP/TOPIC`, and done for their stream.

The letter has the message's body, key and headers, and says where it came from and how often it failed. It is
acknowledged in its stream after it is stored: a crash in between makes a second letter, never none.
"""

import asyncio
import logging

from moorline.core.block import Block
from moorline.core.topic import DEAD_PREFIX, SharedName
from moorline.errors import MoorlineError
from moorline.groups.cluster import Cluster
from moorline.groups.reading import Reading, Running
from moorline.limits import STREAM_READ_BYTES_MAX, TOPIC_HEADERS_BYTES_MAX
from moorline.wire.segment import decode_headers, encode_headers, stored_at

log = logging.getLogger("moorline.groups")


async def bury(
    cluster: Cluster, reading: Reading, running: Running, offset: int, group: SharedName
) -> None:
    """Stores a dead letter and takes its message off the stream."""
    stream = running.feed.stream
    failures = running.feed.progress.failures.get(offset, 0)
    try:
        if stream.node == cluster.node:
            found = await cluster.local.read(
                stream.shard, stream.generation, offset, STREAM_READ_BYTES_MAX
            )
        else:
            found = await cluster.read(stream, offset)
    except MoorlineError as error:
        log.warning("a dead letter waits", extra={"stream": str(stream), "error": str(error)})
        found = None
    if not isinstance(found, Block):
        # It stays where it is; whoever gets the stream next tries again.
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
    headers = encode_headers([*decode_headers(message.headers), *origin])
    if len(headers) > TOPIC_HEADERS_BYTES_MAX:
        headers = encode_headers(origin)
    local = cluster.local
    topic = f"{DEAD_PREFIX}{group.group}/{message.topic}"
    local.store.append(topic, message.body, message.key, headers, 0, 0)
    stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    local.when_stored(lambda: stored.set_result(None))
    await stored
    log.warning(
        "a message failed too often",
        extra={"group": str(group), "stream": str(stream), "offset": offset, "kept": topic},
    )
    reading.buried(running, offset)
