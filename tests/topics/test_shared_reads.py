"""Reads of other nodes' streams: one question for all who are at the same place, and nobody takes it away."""

import asyncio

import pytest

from moorline.core.stream import Gap, Stream
from moorline.errors import ConnectionLost
from moorline.topics.shared_reads import SharedReads

STREAM = Stream("n2", 0, 1)
OTHER = Stream("n2", 1, 1)


class Link:
    """A read over a link, answered by hand."""

    def __init__(self) -> None:
        self.asked: list[tuple[Stream, int]] = []
        self.answers: list[asyncio.Future[Gap | None]] = []
        self.given_up = 0
        self.reads = SharedReads(self._read)

    async def _read(self, stream: Stream, offset: int) -> Gap | None:
        self.asked.append((stream, offset))
        answer: asyncio.Future[Gap | None] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        try:
            return await answer
        except asyncio.CancelledError:
            self.given_up += 1
            raise

    def readers(
        self, count: int, stream: Stream = STREAM, offset: int = 7
    ) -> "list[asyncio.Task[object]]":
        return [asyncio.create_task(self.reads.read(stream, offset)) for _ in range(count)]


async def test_all_at_one_place_share_a_question_and_other_places_have_their_own() -> None:
    link = Link()
    here, there, behind = link.readers(100), link.readers(1, OTHER), link.readers(2, offset=8)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert link.asked == [(STREAM, 7), (OTHER, 7), (STREAM, 8)]
    found = [Gap(7, 9, "retention"), Gap(0, 1, "retention"), None]
    for answer, one in zip(link.answers, found, strict=True):
        answer.set_result(one)
    assert await asyncio.gather(*here) == [found[0]] * 100
    assert await asyncio.gather(*there, *behind) == [found[1], None, None]
    assert not link.reads._under_way


async def test_who_comes_behind_the_answer_asks_anew() -> None:
    link = Link()
    (first,) = link.readers(1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    link.answers[0].set_result(None)
    assert await first is None
    (second,) = link.readers(1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(link.asked) == 2
    link.answers[1].set_result(Gap(7, 8, "damage"))
    assert await second == Gap(7, 8, "damage")


async def test_one_that_is_cancelled_takes_it_from_nobody_and_the_last_one_gives_it_up() -> None:
    link = Link()
    readers = link.readers(3)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    readers[0].cancel()
    await asyncio.wait(readers[:1])
    assert (readers[0].cancelled(), link.given_up) == (True, 0)
    for one in readers[1:]:
        one.cancel()
    await asyncio.wait(readers)
    await asyncio.sleep(0)
    assert (len(link.asked), link.given_up) == (1, 1)
    assert not link.reads._under_way
    (again,) = link.readers(1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    link.answers[1].set_result(None)
    assert await again is None, "what was given up is not waited for"


async def test_what_a_read_raises_all_of_them_are_told() -> None:
    link = Link()
    readers = link.readers(3)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    link.answers[0].set_exception(ConnectionLost("the node is gone"))
    for one in readers:
        with pytest.raises(ConnectionLost, match="gone"):
            await one
    assert not link.reads._under_way
