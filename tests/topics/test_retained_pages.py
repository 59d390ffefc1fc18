"""Retained messages for another node: all of them come, page by page, whatever becomes of a walk."""

from collections.abc import Generator, Iterator

import pytest

from moorline.journal.streams.retained import Entry
from moorline.limits import RETAINED_BYTES_MAX, RETAINED_WALKS_MAX
from moorline.topics.retained import RetainedPages

PER_PAGE = 4
FRAMES = [b"%03d" % number + bytes(RETAINED_BYTES_MAX // PER_PAGE - 3) for number in range(30)]


def found(filter_text: str) -> Iterator[Entry | None]:  # noqa: ARG001
    for number, frame in enumerate(FRAMES):
        yield None
        yield Entry(0, number, f"t/{number}", frame)


def page_of(pages: RetainedPages, skip: int, text: str = "t/#") -> tuple[list[bytes], int]:
    steps: Generator[None, None, tuple[list[bytes], int]] = pages.page(text, skip)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


@pytest.mark.parametrize("is_kept", [True, False])
def test_every_entry_comes_once(is_kept: bool) -> None:
    pages, skip, came = RetainedPages(found), 0, list[bytes]()
    while True:
        frames, behind = page_of(pages, skip)
        assert 0 < len(frames) <= PER_PAGE
        came += frames
        if not behind:
            break
        assert behind == len(came)
        skip = behind
        if not is_kept:
            pages = RetainedPages(found)
    assert came == FRAMES


def test_one_that_fills_a_page_alone_comes_too() -> None:
    large = Entry(0, 0, "t", bytes(RETAINED_BYTES_MAX + 1))
    pages = RetainedPages(lambda _: iter([large, large]))
    assert page_of(pages, 0) == ([large.frame], 1)
    assert page_of(pages, 1) == ([large.frame], 0)


def test_places_are_bounded() -> None:
    pages = RetainedPages(found)
    for number in range(RETAINED_WALKS_MAX + 5):
        page_of(pages, 0, f"t{number}/#")
    assert len(pages._kept) == RETAINED_WALKS_MAX
    assert page_of(pages, PER_PAGE)[0] == FRAMES[PER_PAGE : 2 * PER_PAGE]
