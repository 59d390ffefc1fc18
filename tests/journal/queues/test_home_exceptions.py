"""Which ids of a store do not end with the number of its home: of the index, of the log, deleted or not."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.journal.queues.stores import OPTIONS, now, opened

from moorline.ids import ID_BYTES, home_number
from moorline.journal.queues import checkpoint
from moorline.journal.queues.home_exceptions import (
    DIGEST_BYTES,
    HomeExceptions,
    cut,
    digest_of,
    place_behind,
)
from moorline.journal.queues.store import Store
from moorline.testing import MemoryDisk

HOME = b"home"
AT_HOME = msgspec.structs.replace(OPTIONS, home=HOME)


def made(store: Store, count: int) -> list[bytes]:
    ids = [store.create(b"owner").id for _ in range(count)]
    store.commit()
    return ids


def found(store: Store) -> list[bytes]:
    return cut(HomeExceptions(store).find())


def test_a_store_makes_queues_of_its_home_and_has_no_exceptions() -> None:
    store = opened(MemoryDisk(), AT_HOME)
    ids = made(store, 50)
    assert {home_number(one) for one in ids} == {HOME}
    assert found(store) == []
    checkpoint.run(store, now)
    assert found(store) == []
    assert digest_of(HomeExceptions(store).find()) == b""


@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_store_of_before_has_nothing_else(is_indexed: bool) -> None:
    disk = MemoryDisk()
    store = opened(disk)
    old = made(store, 50)
    if is_indexed:
        checkpoint.run(store, now)
    store.close()
    store = opened(disk, AT_HOME)
    made(store, 5)
    assert found(store) == sorted(old)
    checkpoint.run(store, now)
    assert found(store) == sorted(old)


def test_what_is_deleted_is_none_any_more_before_and_behind_a_checkpoint() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    indexed = made(store, 10)
    checkpoint.run(store, now)
    old = [*indexed, *made(store, 10)]
    store.close()
    store = opened(disk, AT_HOME)
    for queue_id in (old[3], old[13]):
        queue = store.find(queue_id)
        assert queue is not None
        store.delete(queue)
    store.commit()
    left = sorted(one for one in old if one not in (old[3], old[13]))
    assert found(store) == left
    checkpoint.run(store, now)
    assert found(store) == left


def test_what_was_taken_at_one_moment_stays_as_it_was() -> None:
    """The ids are looked for in a thread, while the node serves."""
    disk = MemoryDisk()
    store = opened(disk)
    old = made(store, 20)
    checkpoint.run(store, now)
    store.close()
    store = opened(disk, AT_HOME)
    taken = HomeExceptions(store)
    queue = store.find(old[0])
    assert queue is not None
    store.delete(queue)
    made(store, 3)
    checkpoint.run(store, now)
    assert cut(taken.find()) == sorted(old)


def test_another_set_has_another_digest() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    old = made(store, 3)
    checkpoint.run(store, now)
    store.close()
    store = opened(disk, AT_HOME)
    seen = set()
    for queue_id in old:
        seen.add(digest_of(HomeExceptions(store).find()))
        queue = store.find(queue_id)
        assert queue is not None
        store.delete(queue)
        checkpoint.run(store, now)
    assert len(seen) == len(old)
    assert {len(one) for one in seen} == {DIGEST_BYTES}


@given(seed=st.integers(0, 2**32), count=st.integers(0, 40))
def test_the_place_behind_an_id(seed: int, count: int) -> None:
    chance = random.Random(seed)
    store = Store(MemoryDisk(), OPTIONS, now, draw=chance.randbytes)
    store.open()
    old = sorted(made(store, count))
    store.options = AT_HOME
    ids = HomeExceptions(store).find()
    assert cut(ids) == old
    for behind in (b"", *old, chance.randbytes(ID_BYTES), b"\xff" * ID_BYTES):
        assert place_behind(ids, behind) == len([one for one in old if one <= behind])
