"""Publishers that name themselves and do not number: every message is stored, and none is remembered."""

from moorline.journal.streams.producers import UNNUMBERED
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.testing.memory_disk import MemoryDisk

PRODUCER = 77


def opened(disk: MemoryDisk) -> StreamStore:
    store = StreamStore(disk, "n", StreamOptions(sync=True, shards=1), lambda: 1_000_000)
    store.open()
    return store


def committed(store: StreamStore) -> None:
    batch = store.take_batch()
    assert batch is not None
    store.write(batch)
    store.committed(batch)


def test_it_is_never_a_duplicate_and_never_remembered_also_behind_a_recovery() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    for _ in range(2):
        offsets = [
            store.append("t", b"x", None, b"", 0, 0, PRODUCER, UNNUMBERED)[1] for _ in range(3)
        ]
        assert min(offsets) >= 0
        numbered = store.append("t", b"y", None, b"", 0, 0, PRODUCER + 1, 5)
        committed(store)
        assert store.producer_last(PRODUCER) == -1
        assert store.producer_last(PRODUCER + 1) == 5
        store.close()
        store = opened(disk)
    assert numbered[1] == -1, "that of a number is stored once, behind a recovery too"
    assert store.append("t", b"z", None, b"", 0, 0, PRODUCER, UNNUMBERED)[1] == 7
    store.close()
