"""What waits for a program that is slow: everything up to a bound, then the latest of each key."""

import asyncio

import pytest

from moorline.client.records import changes as room
from moorline.client.records.changes import ChangeKind, Changes, RecordChange


def record(key: int, seq: int = 0) -> RecordChange:
    return RecordChange(ChangeKind.RECORD, key, {"id": key}, seq, "live")


def deletion(key: int) -> RecordChange:
    return RecordChange(ChangeKind.DELETION, key, {"id": key}, 0, "live")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "RECORD_CHANGES_MAX", 10)


async def all_of(changes: Changes) -> list[RecordChange]:
    changes.close()
    return [one async for one in changes]


async def test_everything_comes_in_order_below_the_bound() -> None:
    changes = Changes()
    put = [record(1, 1), record(1, 2), deletion(1), record(1, 3)]
    for one in put:
        changes.put(one)
    assert await all_of(changes) == put


async def test_beyond_it_the_latest_of_each_key_waits() -> None:
    changes = Changes()
    for seq in range(1_000):
        changes.put(record(seq % 7, seq))
    assert len(changes) == 7
    assert [one.seq for one in await all_of(changes)] == list(range(993, 1_000))


async def test_whoever_has_caught_up_hears_everything_again() -> None:
    changes = Changes()
    for seq in range(100):
        changes.put(record(1, seq))
    assert (await anext(changes)).seq == 99
    for seq in range(5):
        changes.put(record(1, seq))
    assert [one.seq for one in await all_of(changes)] == [0, 1, 2, 3, 4]


async def test_events_collapse_to_the_latest_of_each_kind_and_stay_in_order() -> None:
    changes = Changes()
    for number in range(100):
        changes.put(RecordChange(ChangeKind.DISCONNECTED, why=str(number)))
        changes.put(RecordChange(ChangeKind.RECONNECTED))
        changes.put(record(number % 3, number))
    found = await all_of(changes)
    assert [one.kind.value for one in found] == [
        "record",
        "record",
        "disconnected",
        "reconnected",
        "record",
    ]
    assert found[2].why == "99"


async def test_rows_that_are_there_all_wait_however_many() -> None:
    changes = Changes()
    for key in range(500):
        changes.put(record(key))
    assert len(await all_of(changes)) == 500


async def test_more_that_is_gone_than_waits_becomes_one_overflow() -> None:
    changes = Changes()
    changes.put(RecordChange(ChangeKind.DRIFTED))
    for key in range(10_000):
        changes.put(record(key))
        changes.put(deletion(key))
        assert len(changes) <= 23
    changes.put(record(1))
    found = [one.kind for one in await all_of(changes)]
    assert ChangeKind.OVERFLOW in found
    assert ChangeKind.DRIFTED in found
    assert len(found) <= 23


async def test_a_reader_that_waits_is_woken_and_ended() -> None:
    changes = Changes()
    waiting = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    changes.put(record(1))
    assert (await asyncio.wait_for(waiting, 20)).key == 1
    waiting = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    changes.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, 20)
    changes.put(record(2))
    assert len(changes) == 0


async def test_a_failure_of_ours_is_raised_behind_what_waits() -> None:
    changes = Changes()
    changes.put(record(1))
    changes.fail(RuntimeError("ours"))
    assert (await anext(changes)).key == 1
    with pytest.raises(RuntimeError, match="ours"):
        await anext(changes)
