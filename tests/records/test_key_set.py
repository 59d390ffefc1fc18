"""What a client asks of a set of keys is answered in slices: the loop goes on meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from moorline.core.records.known_ids import KnownIds
from moorline.core.records.row_hash import digest_of_rows
from moorline.core.sets.prefix import ALL, Prefix
from moorline.limits import RECORD_PREFIXES_MAX
from moorline.net import slices
from moorline.net.slices import in_slices
from moorline.records.key_set import KeySet

ROWS = 30_000
EVERYTHING = [ALL] * RECORD_PREFIXES_MAX
"""The dearest question that fits one message."""


@pytest.fixture(autouse=True)
def _shortest_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step each: what is asked is where work may be interrupted, and not how fast a machine is."""
    monkeypatch.setattr(slices, "SLICE_MS", 0)


@pytest.fixture
async def keys() -> KeySet:
    made = KeySet(7)
    await made.add([((str(number),), number) for number in range(ROWS)])
    await made.close()
    return made


async def turns_of_others(work: Awaitable[object]) -> int:
    """How often the loop came round while it was done."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    turns = 0
    await work
    counting.cancel()
    return turns


@pytest.mark.parametrize(
    "ask",
    [
        lambda keys: keys.digests(EVERYTHING),
        lambda keys: keys.ids([Prefix(0, 0)] * 200),
        lambda keys: keys.keys_below([ALL], ROWS),
    ],
    ids=["ranges", "lists", "fetch"],
)
async def test_a_long_question_leaves_turns_to_others(
    keys: KeySet, ask: Callable[[KeySet], Awaitable[object]]
) -> None:
    assert await turns_of_others(ask(keys)) >= 2


async def test_known_ids_are_parsed_in_slices() -> None:
    text = ",".join(str(number) for number in range(1, 250_000, 2))
    found: list[KnownIds] = []

    async def parsed() -> None:
        found.append(await in_slices(KnownIds.parsed(text)))

    assert await turns_of_others(parsed()) >= 2
    assert found[0].count == 125_000
    assert list(found[0]) == list(KnownIds.parse(text))


async def test_answers_are_those_of_the_rows(keys: KeySet) -> None:
    rows = [((str(number),), number) for number in range(ROWS)]
    assert await keys.digest() == digest_of_rows(7, rows)
    halves = await keys.digests([Prefix(4, number) for number in range(16)])
    assert sum(one.count for one in halves) == ROWS
    below = await keys.keys_below([ALL], ROWS + 1)
    assert sorted(below) == sorted(key for key, _ in rows)
    assert len(await keys.keys_below([ALL, ALL], 10)) == 10
