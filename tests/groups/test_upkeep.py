"""The upkeep of a node's streams, in the test's own process."""

from moorline.groups.streams import LocalStreams
from moorline.journal.streams import StreamOptions, StreamStore
from moorline.limits import STREAM_SEALS_PER_LOOK
from moorline.testing.memory_disk import MemoryDisk


async def test_many_generations_without_a_seal_are_sealed_look_by_look() -> None:
    """In between the upkeep rolls and drops: a start may find thousands of them."""
    store = StreamStore(MemoryDisk(), "n1", StreamOptions(shards=1, sync=False), lambda: 1)
    store.open()
    count = 2 * STREAM_SEALS_PER_LOOK + 1
    for offset in range(1, count + 1):
        store.skip_to(0, offset)
    streams = LocalStreams(store, "n1")
    unsealed = [len(store.unsealed())]
    while store.unsealed():
        await streams._seal()
        unsealed.append(len(store.unsealed()))
    assert unsealed == [count, count - STREAM_SEALS_PER_LOOK, 1, 0]
    await streams.close()
    store.close()
