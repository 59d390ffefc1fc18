"""Files of streams that are missing, short, foreign or older: named at the start, counted, never misread."""

from collections.abc import Iterator

import msgspec
import pytest
import xxhash
from tests.journal.streams.lives import drop_expired

from moorline.core.frames.block import Block
from moorline.core.frames.frame import all_stored
from moorline.core.stream import Gap
from moorline.journal.disk import parent
from moorline.journal.streams.check import StreamReport, check_streams
from moorline.journal.streams.manifest import read_manifest
from moorline.journal.streams.segment import SEGMENT_HEAD, STORE_BYTES, head_of
from moorline.journal.streams.shard_recovery import ASIDE
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.testing import MemoryDisk

OWNER = b"n" * 24
OTHER = b"o" * 24
OPTIONS = StreamOptions(shards=1, generation_bytes_max=400, sync=True)


def opened(disk: MemoryDisk, owner: bytes = OWNER, options: StreamOptions = OPTIONS) -> StreamStore:
    store = StreamStore(disk, "n1", options, iter(range(1_000, 10_000_000)).__next__, owner=owner)
    store.open()
    return store


def publish(store: StreamStore, *bodies: int) -> None:
    for body in bodies:
        store.append("t", b"%d" % body * 40, None, b"", 0, 0)
        batch = store.take_batch()
        assert batch is not None
        store.write(batch)
        store.committed(batch)


def seal(store: StreamStore) -> None:
    for shard, generation in store.upkeep.unsealed():
        store.upkeep.sealed(shard, generation, store.upkeep.seal(shard, generation)())


def filled(owner: bytes = OWNER, count: int = 20) -> MemoryDisk:
    """Some generations, all but the last sealed, and an orderly stop."""
    disk = MemoryDisk()
    store = opened(disk, owner)
    publish(store, *range(count))
    seal(store)
    store.leave()
    store.close()
    return disk


def copied(disk: MemoryDisk) -> MemoryDisk:
    copy = MemoryDisk()
    for path, data in disk.files().items():
        copy.make_folders(parent(path))
        copy.write_whole(path, data)
    return copy


def segments(disk: MemoryDisk) -> list[str]:
    return sorted(path for path in disk.files() if path.endswith(".seg") and path[:3] == "000")


def read(store: StreamStore) -> tuple[list[int], list[Gap]]:
    """The offsets that can be read, and the gaps."""
    found, gaps = [], []
    offset = store.first(0)
    while offset < store.end(0):
        got = store.read(0, store.generation_of(0, offset), offset, 1_000)
        if isinstance(got, Block):
            found += [one.offset for one in all_stored(got.data)]
            offset = got.upto
        else:
            assert isinstance(got, Gap)
            gaps.append(got)
            offset = got.upto
    return found, gaps


def kinds(store: StreamStore) -> list[tuple[str, int]]:
    return [(one.kind, one.generation) for one in store.problems]


def reopened(disk: MemoryDisk) -> Iterator[StreamStore]:
    """The first start tells; the second has nothing new to tell, and the same messages."""
    for _ in range(2):
        store = opened(disk)
        yield store
        store.close()


def test_nothing_is_told_of_a_whole_folder() -> None:
    for store in reopened(filled()):
        assert store.problems == []
        assert read(store) == (list(range(20)), [])


@pytest.mark.parametrize("place", ["first", "middle", "last", "last two", "all"])
def test_segments_that_vanish_are_named_and_counted(place: str) -> None:
    disk = filled()
    paths = segments(disk)
    assert len(paths) >= 5
    chosen = {"first": paths[:1], "middle": paths[2:3], "last": paths[-1:], "all": paths}
    taken = chosen.get(place, paths[-2:])
    before = opened(disk)
    extents = {extent.stream.generation: extent for extent in before.extents()}
    before.close()
    gone = [extents[int(path[4:12])] for path in taken]
    lost = sum(extent.end - extent.first for extent in gone)
    for path in taken:
        disk.remove(path)
    for number, store in enumerate(reopened(disk)):
        named = [("missing", extent.stream.generation) for extent in gone]
        assert kinds(store) == (named if number == 0 else [])
        if number == 0:
            assert sum(one.lost for one in store.problems) == lost
        # No offset is given twice, and no number of a stream: an archive may have both.
        assert store.end(0) >= 20
        found, _ = read(store)
        missing = {offset for extent in gone for offset in range(extent.first, extent.end)}
        assert [offset for offset in found if offset < 20] == sorted(set(range(20)) - missing)
        seal(store)
        assert store.lost_messages == lost
        publish(store, 100 + number)
        newest = store.extents()[-1]
        assert newest.stream.generation > max(extents) or place in ("first", "middle")
        store.leave()


def test_a_segment_with_less_than_it_had_is_named() -> None:
    for place in (1, -1):
        disk = filled()
        path = segments(disk)[place]
        file = disk.open(path, create=False)
        file.truncate(file.size() - 10)
        file.close()
        for number, store in enumerate(reopened(disk)):
            assert kinds(store) == ([("short", int(path[4:12]))] if number == 0 else [])
            found, gaps = read(store)
            assert len(found) == 19
            assert [gap.upto - gap.first for gap in gaps] == [1]
            assert store.end(0) >= 20
            seal(store)
            assert store.lost_messages == 1


def test_a_segment_of_another_node_is_set_aside() -> None:
    disk, other = filled(), filled(OTHER)
    path = segments(disk)[2]
    foreign = other.files()[path]
    own = disk.files()[path]
    disk.write_whole(path, foreign)
    generation = int(path[4:12])
    store = opened(disk)
    assert kinds(store) == [("foreign", generation), ("missing", generation)]
    assert disk.files()[f"{ASIDE}/000-{generation:08}.seg"] == foreign
    found, gaps = read(store)
    assert len(found) + sum(gap.upto - gap.first for gap in gaps) == 20
    store.close()
    assert own not in disk.files().values()


def test_files_of_the_same_number_that_were_set_aside_before_stay() -> None:
    disk, other = filled(), filled(OTHER)
    path = segments(disk)[-1]
    for body in (other.files()[path], filled(OTHER, 21).files()[path]):
        disk.write_whole(path, body)
        opened(disk).close()
        path = f"000/{int(segments(disk)[-1][4:12]):08}.seg"
    assert len([name for name in disk.files() if name.startswith(ASIDE) and ".seg" in name]) == 2


def test_a_segment_that_was_not_there_is_set_aside() -> None:
    disk = filled()
    paths = segments(disk)
    # The same node's, under a number that there never was.
    stray = f"000/{int(paths[-1][4:12]) + 7:08}.seg"
    disk.write_whole(stray, disk.files()[paths[-1]])
    store = opened(disk)
    assert [kind for kind, _ in kinds(store)] == ["unlisted"]
    assert read(store) == (list(range(20)), [])
    store.close()


def test_an_older_copy_of_a_generation_is_set_aside() -> None:
    """Put back from a copy of the folder that went another way."""
    disk, copy = filled(), filled()
    path = segments(disk)[3]
    disk.write_whole(path, copy.files()[path])
    store = opened(disk)
    assert [kind for kind, _ in kinds(store)] == ["replaced", "missing"]
    store.close()


def test_a_lost_manifest_costs_no_message() -> None:
    for damage in (b"", b"begun generation=1 first=0 seed=5 check=00\n" * 3):
        disk = filled()
        if damage:
            disk.write_whole("000/manifest", damage)
        else:
            disk.remove("000/manifest")
        for number, store in enumerate(reopened(disk)):
            assert kinds(store) == ([("manifest", 0)] if number == 0 else [])
            assert read(store) == (list(range(20)), [])


@pytest.mark.slow
def test_a_manifest_that_is_cut_anywhere_costs_no_message_and_raises_no_alarm_for_them() -> None:
    whole = filled()
    text = whole.files()["000/manifest"]
    for size in range(len(text)):
        disk = copied(whole)
        disk.write_whole("000/manifest", text[:size])
        store = opened(disk)
        assert read(store) == (list(range(20)), []), f"cut to {size} bytes"
        assert not [one for one in disk.files() if one.startswith(ASIDE)], f"cut to {size} bytes"
        assert {kind for kind, _ in kinds(store)} <= {"manifest"}, f"cut to {size} bytes"
        assert store.lost_messages == 0
        store.close()


def test_a_manifest_that_is_damaged_anywhere_costs_no_message() -> None:
    """One line after the other, and two neighbours: what the manifest lacks is not what is not there."""
    whole = filled()
    lines = whole.files()["000/manifest"].splitlines(keepends=True)
    for place in range(len(lines)):
        for count in (1, 2):
            disk = copied(whole)
            bad = [line.replace(b"=", b"+", 1) for line in lines[place : place + count]]
            disk.write_whole("000/manifest", b"".join(lines[:place] + bad + lines[place + count :]))
            for number, store in enumerate(reopened(disk)):
                assert kinds(store) == ([("manifest", 0)] if number == 0 else []), lines[place]
                assert read(store) == (list(range(20)), []), lines[place]
                assert store.lost_messages == 0
            assert not [one for one in disk.files() if one.startswith(ASIDE)]


def test_a_manifest_without_some_lines_costs_no_message() -> None:
    whole = filled()
    lines = whole.files()["000/manifest"].splitlines(keepends=True)
    for place in range(len(lines)):
        disk = copied(whole)
        disk.write_whole("000/manifest", b"".join(lines[:place] + lines[place + 1 :]))
        store = opened(disk)
        assert read(store) == (list(range(20)), []), lines[place]
        assert store.lost_messages == 0
        store.close()
        assert not [one for one in disk.files() if one.startswith(ASIDE)]


def test_the_manifest_of_another_node_or_shard_costs_no_message() -> None:
    options = StreamOptions(shards=2, generation_bytes_max=400, sync=True)
    other = MemoryDisk()
    store = opened(other, options=options)
    for number in range(20):
        store.append("t", b"%d" % number * 40, b"k%d" % number, b"", 0, 0)
        batch = store.take_batch()
        assert batch is not None
        store.write(batch)
        store.committed(batch)
    store.close()
    for manifest in (filled(OTHER).files()["000/manifest"], other.files()["001/manifest"]):
        disk = filled()
        disk.write_whole("000/manifest", manifest)
        for number, store in enumerate(reopened(disk)):
            assert kinds(store) == ([("manifest", 0)] if number == 0 else [])
            assert read(store) == (list(range(20)), [])


def test_a_manifest_that_vanishes_under_a_running_node_is_made_anew_as_a_whole() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    publish(store, *range(10))
    seal(store)
    disk.remove("000/manifest")
    publish(store, *range(10, 20))
    store.leave()
    store.close()
    listed = read_manifest(disk, "000", OWNER[:STORE_BYTES]).listed
    assert [f"000/{number:08}.seg" for number in listed] == segments(disk)
    for again in reopened(disk):
        assert again.problems == []
        assert read(again) == (list(range(20)), [])


def test_a_manifest_of_the_newest_generations_alone_costs_no_message() -> None:
    whole = filled()
    lines = whole.files()["000/manifest"].splitlines(keepends=True)
    disk = copied(whole)
    disk.write_whole("000/manifest", b"".join(lines[-4:]))
    for number, store in enumerate(reopened(disk)):
        assert kinds(store) == ([("manifest", 0)] if number == 0 else [])
        assert read(store) == (list(range(20)), [])


def test_a_segment_that_the_manifest_lacks_and_whose_head_is_damaged_is_served() -> None:
    """Its seal knows it, and its first frame proves it."""
    disk = filled()
    lines = disk.files()["000/manifest"].splitlines(keepends=True)
    path = segments(disk)[2]
    wanted = b"generation=%d " % int(path[4:12])
    disk.write_whole("000/manifest", b"".join(one for one in lines if wanted not in one))
    data = bytearray(disk.files()[path])
    data[20] ^= 1
    disk.write_whole(path, bytes(data))
    store = opened(disk)
    assert read(store) == (list(range(20)), [])
    store.close()


def test_a_segment_of_ours_that_overlaps_what_is_listed_is_set_aside() -> None:
    """From a copy of the folder that went another way: one of two messages of one offset is served."""
    disk, copy = filled(), filled(count=40)
    newest, stray = segments(disk)[-1], segments(copy)[-1]
    far = int(stray[4:12])
    assert far > int(newest[4:12]) + 1
    head = head_of(copy.files()[stray][: SEGMENT_HEAD.size])
    assert head is not None
    disk.write_whole(
        stray, bytes(head._replace(first=5)) + copy.files()[stray][SEGMENT_HEAD.size :]
    )
    store = opened(disk)
    assert kinds(store) == [("unlisted", far)]
    assert read(store) == (list(range(20)), [])
    store.close()


KEPT_BYTES = StreamOptions(shards=1, generation_bytes_max=400, sync=True, retention_bytes=900)


def expired(owner: bytes, shard: int = 0) -> MemoryDisk:
    """Retention has taken the oldest generations."""
    options = msgspec.structs.replace(KEPT_BYTES, shards=shard + 1)
    disk = MemoryDisk()
    store = opened(disk, owner, options)
    keys = (b"%d" % number for number in range(99))
    key = next(one for one in keys if xxhash.xxh3_64_intdigest(one) % (shard + 1) == shard)
    for body in range(20):
        store.append("t", b"%d" % body * 40, key, b"", 0, 0)
        batch = store.take_batch()
        assert batch is not None
        store.write(batch)
        store.committed(batch)
    seal(store)
    assert drop_expired(store, 0)
    store.leave()
    store.close()
    return disk


@pytest.mark.parametrize("origin", ["another node", "another shard", "damaged"])
def test_no_file_is_removed_because_of_lines_that_are_not_of_this_shard(origin: str) -> None:
    logs = {
        "another node": expired(OTHER).files()["000/dropped.log"],
        "another shard": expired(OWNER, 1).files()["001/dropped.log"],
        "damaged": b"generation=1 first=0 upto=9 count=9 bytes=9 reason=AGE seed=0 check=00\n",
    }
    disk = filled()
    disk.write_whole("000/dropped.log", logs[origin])
    for number, store in enumerate(reopened(disk)):
        assert kinds(store) == ([("manifest", 0)] if number == 0 else [])
        assert read(store) == (list(range(20)), [])
    assert disk.files()[f"{ASIDE}/000-dropped.log"] == logs[origin], "kept as it was"


def test_lines_of_this_shard_stay_beside_those_that_are_not() -> None:
    disk = expired(OWNER)
    own = disk.files()["000/dropped.log"]
    disk.write_whole("000/dropped.log", own + expired(OTHER).files()["000/dropped.log"])
    first = opened(expired(OWNER)).first(0)
    for store in reopened(disk):
        assert store.first(0) == first
    assert disk.files()["000/dropped.log"] == own


def test_a_drop_removes_only_the_very_segment_that_retention_took() -> None:
    """The log is of this node, the segment of a copy that went another way: it is kept."""
    disk, copy = expired(OWNER), filled()
    path = segments(copy)[0]
    disk.write_whole(path, copy.files()[path])
    store = opened(disk)
    assert kinds(store) == [("replaced", int(path[4:12]))]
    assert disk.files()[f"{ASIDE}/000-{path[4:]}"] == copy.files()[path]
    store.close()


def test_a_drop_that_a_crash_cut_short_is_finished() -> None:
    whole = filled()
    path = segments(whole)[0]
    store = opened(whole, options=KEPT_BYTES)
    before = copied(whole)
    assert drop_expired(store, 0)
    store.close()
    before.write_whole("000/dropped.log", whole.files()["000/dropped.log"])
    store = opened(before)
    assert store.problems == []
    assert path not in before.files()
    store.close()


def test_a_shard_whose_folder_is_gone_is_named() -> None:
    disk = filled()
    disk.remove_folder("000")
    store = opened(disk)
    assert [(one.kind, one.shard) for one in store.problems] == [("missing", 0)]
    store.close()


@pytest.mark.parametrize("is_newest", [True, False])
def test_a_file_that_vanishes_under_a_running_node_is_noticed(is_newest: bool) -> None:
    disk = MemoryDisk()
    store = opened(disk)
    publish(store, *range(20))
    seal(store)
    path = segments(disk)[-1 if is_newest else 1]
    extent = store.extent(0, int(path[4:12]))
    assert extent is not None
    disk.remove(path)
    store.new_damage()
    (problem,) = store.upkeep.look_at_files()
    count = extent.end - extent.first
    assert (problem.kind, problem.generation, problem.lost) == (
        "missing",
        extent.stream.generation,
        count,
    )
    assert store.lost_messages == count
    assert store.upkeep.look_at_files() == [], "told once"
    assert [(file_gap.first, file_gap.upto) for _, file_gap in store.new_damage()] == [
        (extent.first, extent.end)
    ]
    publish(store, 100)
    found, gaps = read(store)
    store._shards[0].tail.clear()
    found, gaps = read(store)
    assert [(gap.first, gap.upto, gap.reason) for gap in gaps] == [
        (extent.first, extent.end, "DAMAGE")
    ]
    assert found[-1] == 20, "what came behind it is safe"
    seal(store)
    store.leave()
    store.close()
    again = opened(disk)
    assert read(again)[0][-1] == 20
    again.close()


def test_what_follows_a_newest_segment_that_vanished_is_sealed_and_dropped() -> None:
    disk = MemoryDisk()
    store = opened(disk, options=KEPT_BYTES)
    publish(store, *range(8))
    seal(store)
    newest = segments(disk)[-1]
    gone = store.extent(0, int(newest[4:12]))
    assert gone is not None
    store.append("t", b"x", None, b"", 0, 0)
    batch = store.take_batch()
    assert batch is not None
    disk.remove(newest)
    assert len(store.upkeep.look_at_files()) == 1
    # A commit that was under way when it was noticed.
    store.write(batch)
    store.committed(batch)
    publish(store, *range(20))
    assert store.lost_messages == 9 - gone.first, "with the one that was under way"
    assert store.upkeep.unsealed()
    seal(store)
    assert store.upkeep.unsealed() == []
    extents = store.extents()
    dropped = drop_expired(store, 0)
    assert gone.stream.generation in {one.generation for one in dropped}
    assert len(dropped) == len(extents) - len(store.extents())
    assert store.lost_messages == 9 - gone.first, "what retention took stays counted"
    store.close()


def test_damage_that_retention_took_is_not_remembered() -> None:
    disk = MemoryDisk()
    store = opened(disk, options=KEPT_BYTES)
    publish(store, *range(20))
    disk.remove(segments(disk)[0])
    store.upkeep.look_at_files()
    seal(store)
    assert len(store.new_damage()) == 1
    assert store.new_damage() == []
    assert drop_expired(store, 0)
    assert store.new_damage() == []
    assert store._told == set()
    store.close()


def test_producers_are_remembered_past_a_segment_that_vanished() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    store.append("t", b"x", None, b"", 0, 0, producer=7, sequence=5)
    publish(store, *range(6))
    seal(store)
    disk.remove(segments(disk)[-1])
    store.upkeep.look_at_files()
    publish(store, *range(6))
    seal(store)
    (sealed, *_) = [one for _, one in reversed(store.all_generations()) if one.summary is not None]
    found = store.seal_of(0, sealed.number)
    assert found is not None
    assert found.producers == {7: 5}
    store.close()


def test_the_manifest_is_written_when_generations_begin_and_end_only() -> None:
    disk = MemoryDisk()
    store = opened(disk, options=StreamOptions(shards=1, generation_bytes_max=1 << 20))
    before = disk.files()["000/manifest"]
    publish(store, *range(200))
    assert disk.files()["000/manifest"] == before
    store.leave()
    store.close()
    reading = read_manifest(disk, "000", OWNER[:STORE_BYTES])
    assert [(one.generation, one.upto) for one in reading.listed.values()] == [(1, 200)]


# --- a check from outside ---------------------------------------------------------------------------


def checked(disk: MemoryDisk) -> StreamReport:
    before = disk.files()
    report = check_streams(disk, OWNER, lambda: 1_000_000, lambda _done, _total: None, sync=True)
    assert disk.files() == before, "a check changes nothing"
    return report


def test_a_check_reads_every_message_and_changes_nothing() -> None:
    report = checked(filled())
    assert (report.messages, report.problems, report.known_lost) == (20, [], 0)


def test_a_check_names_what_a_start_would_name() -> None:
    disk = filled()
    for path in (segments(disk)[0], segments(disk)[-1]):
        disk.remove(path)
    report = checked(disk)
    store = opened(disk)
    assert [
        (one.kind, one.generation) for one in report.problems if one.kind == "missing"
    ] == kinds(store)
    seal(store)
    store.leave()
    store.close()
    again = checked(disk)
    assert (again.problems, again.known_lost) == ([], report.lost)


def test_a_check_finds_a_damaged_message() -> None:
    disk = filled()
    path = segments(disk)[1]
    data = bytearray(disk.files()[path])
    data[-3] ^= 1
    disk.write_whole(path, bytes(data))
    (problem,) = checked(disk).problems
    assert (problem.kind, problem.generation, problem.lost) == ("damage", int(path[4:12]), 1)


@pytest.mark.parametrize("left_bytes", [None, 0, 10, 63])
def test_a_newest_segment_that_is_lost_behind_a_crash_is_told_and_its_offsets_stay_given(
    left_bytes: int | None,
) -> None:
    """Nobody knows how many messages it had: no stop has said it. Readers get a gap, which is a bound."""
    disk = MemoryDisk()
    store = opened(disk)
    publish(store, *range(10))
    end = store.end(0)
    first = store.extents()[-1].first
    assert first < end
    store.close()  # as a crash does: nothing is said of how far it came
    newest = segments(disk)[-1]
    if left_bytes is None:
        disk.remove(newest)
    else:
        file = disk.open(newest, create=False)
        file.truncate(left_bytes)
        file.close()
    assert checked(disk).problems
    for store in reopened(disk):
        assert store.end(0) >= end
        _, gaps = read(store)
        assert [(gap.first, gap.reason) for gap in gaps] == [(first, "DAMAGE")]
        assert gaps[0].upto >= end
    store = opened(disk)
    publish(store, 11)
    found, _ = read(store)
    assert found[-1] >= end
    store.close()


def test_a_segment_without_a_head_whose_bytes_are_no_offsets_costs_no_more_than_it_held() -> None:
    """Somebody cut it to nothing while the node ran on: its frames stand where the head was."""
    disk = MemoryDisk()
    store = opened(disk)
    publish(store, *range(10))
    end = store.end(0)
    store.close()
    newest = segments(disk)[-1]
    file = disk.open(newest, create=False)
    frames = file.read_at(64, file.size())
    file.truncate(0)
    file.append(frames * 3)
    file.close()
    for store in reopened(disk):
        assert end <= store.end(0) < 1_000_000
