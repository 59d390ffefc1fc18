"""Topics that were deleted: no reader gets what they had, and all else is as before."""

import random
from collections import Counter

import pytest
from tests.journal.streams.lives import BYTES_MAX, Lives, drop_expired

from moorline.core.delivery.selection import select, select_picked
from moorline.core.frames.block import Block
from moorline.core.frames.frame import all_stored
from moorline.core.stream import Gap
from moorline.core.topic import Matcher
from moorline.errors import DiskFull, LimitReached, Malformed, StartError
from moorline.journal.disk import TEMPORARY_SUFFIX
from moorline.journal.streams.deleted import PATH, DeletedUpto, decoded, encoded
from moorline.journal.streams.layout import PATH as LAYOUT
from moorline.journal.streams.store import StreamOptions
from moorline.journal.streams.topic_picks import Wish
from moorline.limits import DELETED_TOPICS_MAX, STREAM_SKIP_MARGIN
from moorline.testing import MemoryDisk

KEPT = bytes.fromhex(
    "4d4f4f52474f4e450100000024000000f2afd1910eea777b"
    "9292a96f72646572732f65759294000301029402cd04d2070092a37bc3a4919400090901"
)
"""What 0.2.0 wrote of `SOME`. Never made anew."""
SOME = {
    "orders/eu": [DeletedUpto(0, 3, 1, 2), DeletedUpto(2, 1234, 7, 0)],
    "{ä": [DeletedUpto(0, 9, 9, 1)],
}


def delete(lives: Lives, topic: str) -> None:
    store = lives.store
    reserved = store.reserve_deleted(store.deleted_size(topic))
    deleted = store.with_deleted(topic, store.reaches_of(topic))
    reserved.write(encoded(deleted))
    store.deleted.written(deleted)


def seen(lives: Lives, filter_text: str = "#") -> list[tuple[str, bytes]]:
    """What a reader of everything that is kept gets, and that it is all that the blocks say."""
    store, matcher, found = lives.store, Matcher(filter_text), []
    for extent in store.extents():
        offset = extent.first
        while offset < extent.end:
            place = extent.stream.shard_number, extent.stream.generation
            block = store.read(*place, offset, BYTES_MAX)
            if isinstance(block, Gap):
                offset = block.upto
                continue
            assert isinstance(block, Block)
            now = store.read_now(*place, offset, BYTES_MAX)
            if now is not None:
                assert isinstance(now.found, Block)
                assert list(now.found.topics) == list(block.topics)
            frames = select(block, block.upto, 1 << 30, matcher, 0).frames
            found += [(one.topic, one.body) for one in all_stored(frames)]
            offset = block.upto
    return found


def listed(lives: Lives) -> dict[str, int]:
    """What a listing adds up."""
    counts: Counter[str] = Counter()
    for extent in lives.store.extents():
        counts.update(lives.store.topics(extent.stream.shard_number, extent.stream.generation))
    return dict(counts)


def put(lives: Lives, *names: str) -> None:
    for name in names:
        topic, _, body = name.partition("=")
        lives.put(topic, body.encode())
    lives.commit()


def roll(lives: Lives) -> None:
    """The generation ends, and is sealed; the next one grows."""
    lives.clock.advance((lives.options.generation_s + 1) * 1_000)
    lives.store.upkeep.roll(lives.now_us())
    lives.commit()
    lives.seal()


@pytest.mark.parametrize("is_sealed", [False, True])
def test_nobody_reads_what_a_topic_had_and_everybody_what_it_gets(*, is_sealed: bool) -> None:
    lives = Lives(MemoryDisk(), StreamOptions(shards=1))
    put(lives, "a=1", "b=2", "a=3", "$x/a=4")
    delete(lives, "a")
    put(lives, "a=5", "b=6")
    if is_sealed:
        roll(lives)
    for _ in range(2):
        assert seen(lives) == [("b", b"2"), ("a", b"5"), ("b", b"6")]
        assert seen(lives, "a") == [("a", b"5")]
        assert seen(lives, "+") == [("b", b"2"), ("a", b"5"), ("b", b"6")]
        assert seen(lives, "$x/#") == [("$x/a", b"4")]
        assert listed(lives) == {"a": 1, "b": 2, "$x/a": 1}
        lives.restart()


def test_its_messages_may_be_in_many_generations_and_shards() -> None:
    lives = Lives(MemoryDisk(), StreamOptions(shards=3))
    for part in range(3):
        for key in range(9):
            lives.store.append("gone", b"%d" % part, b"%d" % key, b"", 0, 0)
        put(lives, "stays=1")
        roll(lives)
    delete(lives, "gone")
    assert (seen(lives), listed(lives)) == ([("stays", b"1")] * 3, {"stays": 3})
    delete(lives, "stays")
    put(lives, "gone=again")
    assert (seen(lives), listed(lives)) == ([("gone", b"again")], {"gone": 1})
    delete(lives, "gone")
    assert (seen(lives), listed(lives)) == ([], {})


def test_what_is_picked_of_a_sealed_stream_is_hidden_too() -> None:
    lives = Lives(MemoryDisk(), StreamOptions(shards=1))
    for number in range(400):
        lives.put("rare" if number % 100 == 0 else f"t/{number % 7}", b"%d" % number)
    lives.commit()
    delete(lives, "rare")
    put(lives, "rare=later")
    roll(lives)
    picked = lives.store.pick(0, 1, 0, BYTES_MAX, Wish(("rare",), 1 << 40))
    assert picked is not None
    assert len(picked.offsets) == 5
    taken = select_picked(picked, 1 << 40, 1 << 30, Matcher("rare"), 0)
    assert [one.body for one in all_stored(taken.frames)] == [b"later"]


def test_offsets_that_a_power_cut_took_are_not_given_to_new_messages() -> None:
    disk = MemoryDisk()
    lives = Lives(disk, StreamOptions(shards=1, sync=False))
    put(lives, *["a=1"] * 50)
    delete(lives, "a")
    disk.crash(random.Random(1))
    lives.store = lives._opened()
    put(lives, "a=new")
    assert seen(lives) == [("a", b"new")]
    assert lives.store.end(0) == 50 + STREAM_SKIP_MARGIN + 1


def test_there_is_room_for_the_list_wherever_its_shards_end() -> None:
    disk = MemoryDisk()
    lives = Lives(disk, StreamOptions(shards=3))
    put(lives, "a=1")
    size = lives.store.deleted_size("a")
    disk.capacity_bytes = disk.used_bytes() + size - 1
    before = disk.files()
    with pytest.raises(DiskFull):
        lives.store.reserve_deleted(size)
    assert disk.files() == before
    disk.capacity_bytes = None
    reserved = lives.store.reserve_deleted(size)
    # From here on the disk may be full.
    disk.capacity_bytes = disk.used_bytes()
    far = [DeletedUpto(shard, (1 << 64) - 1, 1 << 40, 1 << 40) for shard in range(3)]
    reserved.write(encoded({"a": far}))
    reserved.drop()
    assert decoded(disk.files()[PATH]) == {"a": far}
    assert not [path for path in disk.files() if path.endswith(TEMPORARY_SUFFIX)]


# --- the file ---------------------------------------------------------------------------------------


def test_the_file_of_this_release_is_read_as_ever() -> None:
    assert decoded(KEPT) == SOME
    assert encoded(SOME) == KEPT


def test_a_damaged_file_is_named_and_kept_and_takes_no_message() -> None:
    lives = Lives(MemoryDisk(), StreamOptions(shards=1))
    put(lives, "a=1", "b=2")
    delete(lives, "a")
    whole = lives.disk.files()[PATH]  # type: ignore[attr-defined]
    for place in range(len(whole)):
        if 8 <= place < 12:
            continue  # the version: the next test
        bad = bytearray(whole)
        bad[place] ^= 1
        with pytest.raises(Malformed):
            decoded(bytes(bad))
    lives.disk.write_whole(PATH, whole[:-1])
    lives.restart()
    (problem,) = lives.store.problems
    assert problem.kind == "deleted"
    assert lives.disk.exists(f"aside/{PATH}")
    assert seen(lives) == [("a", b"1"), ("b", b"2")]
    lives.restart()
    assert lives.store.problems == []


def test_a_file_of_a_later_version_is_refused() -> None:
    lives = Lives(MemoryDisk(), StreamOptions(shards=1))
    newer = bytearray(encoded({}))
    newer[8] = 2
    lives.disk.write_whole(PATH, bytes(newer))
    with pytest.raises(StartError, match="newer Moorline"):
        lives.restart()


def test_an_older_program_is_kept_from_a_folder_with_deleted_topics() -> None:
    lives = Lives(MemoryDisk(), StreamOptions(shards=1))
    put(lives, "a=1")
    files = lives.disk.files  # type: ignore[attr-defined]
    assert b"version=3" in files()[LAYOUT]
    delete(lives, "a")
    assert b"version=4" in files()[LAYOUT]
    lives.restart()
    assert b"version=4" in files()[LAYOUT]


def test_what_retention_took_needs_no_row() -> None:
    lives = Lives(MemoryDisk(), StreamOptions(shards=1, retention_s=3_600))
    put(lives, "a=1")
    delete(lives, "a")
    roll(lives)
    lives.clock.advance(7_200_000)
    assert drop_expired(lives.store, lives.now_us())
    put(lives, "b=1")
    delete(lives, "b")
    assert list(decoded(lives.disk.files()[PATH])) == ["b"]  # type: ignore[attr-defined]


def test_the_list_has_a_bound_and_is_as_it_was_behind_it() -> None:
    lives = Lives(MemoryDisk(), StreamOptions(shards=1))
    put(lives, "a=1")
    store = lives.store
    reaches = store.reaches_of("a")
    store.deleted.written({f"t/{number}": reaches for number in range(DELETED_TOPICS_MAX)})
    with pytest.raises(LimitReached, match="retention"):
        store.deleted_size("one more")
    assert len(store.with_deleted("t/0", reaches)) == DELETED_TOPICS_MAX
