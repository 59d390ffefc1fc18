"""Which shard a message goes to: one choice for the node and for whoever packs rows, and it never changes."""

import numpy as np
import pytest

from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.testing import MemoryDisk
from moorline.wire.packed_rows import packed
from moorline.wire.shard_choice import hash_of, shard_of, shards_of
from moorline.wire.topic import Record

NAMES = [b"orders/eu", b"orders/us", b"", b"a" * 300]


def test_the_choice_is_what_it_was_when_messages_were_first_stored() -> None:
    assert [shard_of(name, 8) for name in NAMES] == [1, 0, 2, 1]


@pytest.mark.parametrize("shards", [1, 3, 8, 64])
def test_many_go_where_each_goes(shards: int) -> None:
    hashes = np.array([hash_of(name) for name in NAMES], np.uint64)
    assert shards_of(hashes, shards).tolist() == [shard_of(name, shards) for name in NAMES]


@pytest.mark.parametrize("key", [None, b"customer-7"])
def test_a_node_and_packed_rows_agree(key: bytes | None) -> None:
    store = StreamStore(MemoryDisk(), "n1", StreamOptions(shards=8, sync=False), lambda: 1)
    store.open()
    wanted = shard_of(b"orders/eu" if key is None else key, 8)
    assert store.append("orders/eu", b"", key, b"", 0, 0)[0] == wanted
    rows = packed([Record("orders/eu", b"", key=key)], 8)
    assert np.diff(rows.ends, prepend=0).tolist() == [int(shard == wanted) for shard in range(8)]
    store.close()
