"""Scenarios of damaged queues, C12, C13, C18: made whole, or set aside with their files; others serve."""

from collections.abc import Callable

import msgspec
import pytest
from tests.journal.queues.queue_life import Damage

from moorline.core.queue.journal import parse_line
from moorline.core.queue.queue import QUOTA_MARKER
from moorline.ids import text_of
from moorline.journal.queues.record import seed_of
from moorline.testing import MemoryDisk


def two_bad_lines(damage: Damage, queue: bytes) -> None:
    damage.overwrite(damage.state_path(queue), b"".join([b"bad\n", b"worse\n"]))


def two_bad_lines_behind_good_ones(damage: Damage, queue: bytes) -> None:
    text = damage.read(damage.state_path(queue))
    damage.overwrite(damage.state_path(queue), text + b"bad\nworse")


def broken_invariants(damage: Damage, queue: bytes) -> None:
    state = msgspec.structs.replace(damage.state(queue), read_msg=9)
    assert parse_line(state.line(seed_of(queue)), seed_of(queue)) == state, (
        "the line itself is whole"
    )
    damage.overwrite(damage.state_path(queue), state.line(seed_of(queue)).encode())


def short_message_file(damage: Damage, queue: bytes) -> None:
    path = damage.message_path(queue, damage.state(queue).write_file)
    damage.overwrite(path, damage.read(path)[:-1])


def wrong_check(damage: Damage, queue: bytes) -> None:
    path = damage.message_path(queue, damage.state(queue).write_file)
    content = bytearray(damage.read(path))
    content[-1] ^= 1
    damage.overwrite(path, bytes(content))


def wrong_length(damage: Damage, queue: bytes) -> None:
    path = damage.message_path(queue, damage.state(queue).write_file)
    content = bytearray(damage.read(path))
    content[8] = 0xFF
    damage.overwrite(path, bytes(content))


def two_bad_lines_and_a_bad_record(damage: Damage, queue: bytes) -> None:
    wrong_check(damage, queue)
    two_bad_lines(damage, queue)


def broken_invariants_and_a_bad_record(damage: Damage, queue: bytes) -> None:
    wrong_length(damage, queue)
    broken_invariants(damage, queue)


STATES = [two_bad_lines, two_bad_lines_behind_good_ones, broken_invariants]
"""Harm to the state alone: the index and the records say the same, and it is made anew."""

HARMS = [
    short_message_file,
    wrong_check,
    wrong_length,
    two_bad_lines_and_a_bad_record,
    broken_invariants_and_a_bad_record,
]
"""Harm to a message: an operator must decide to go on without it."""


@pytest.mark.parametrize("harm", STATES)
def test_c12_c13_a_state_that_says_nothing_is_made_anew_from_the_records(
    damage: Damage, harm: Callable[[Damage, bytes], None]
) -> None:
    """C12 two bad lines, C13 broken invariants: the index and whole records leave nothing in doubt."""
    bad, good = damage.stored(b"1", b"2", b"3"), damage.stored(b"fine")
    damage.acknowledge_head(bad)
    damage.checkpoint()
    harm(damage, bad)
    before = damage.read(damage.state_path(bad))
    damage.restart()
    damage.send_all(bad, b"4")
    assert damage.head(bad) is not None
    assert damage.bodies(bad) == [b"2", b"3", b"4"], "nor does what was acknowledged come again"
    files = damage.store.files
    assert (files.lost_messages, files.doubled_messages, files.quarantined) == (0, 0, 0)
    copies = [damage.read(f"{damage.folder(bad)}/{name}") for name in damage.backups(bad)]
    assert before in copies, "the bad file is kept"
    damage.acknowledge_head(bad)
    damage.is_at_work(bad)
    damage.is_at_work(good)


@pytest.mark.parametrize("harm", HARMS)
def test_c12_c13_a_damaged_queue_is_set_aside_with_its_files(
    damage: Damage, harm: Callable[[Damage, bytes], None]
) -> None:
    """C12, C13 where a message cannot be read: files kept, seen by an operator, others serve."""
    bad, good = damage.stored(b"1", b"2"), damage.stored(b"fine")
    harm(damage, bad)
    before = {name: damage.read(f"{damage.folder(bad)}/{name}") for name in damage.names(bad)}
    damage.restart()
    damage.send_all(bad, b"promised")
    assert damage.head(bad) is None
    assert damage.queue(bad).damaged
    assert damage.store.files.quarantined == 1
    aside = f"quarantine/{text_of(bad)}"
    for name, content in before.items():
        assert damage.read(f"{aside}/{name}") == content
    assert damage.read(f"{aside}/why.txt").strip(), "it says why"
    assert b"promised" in damage.read(f"{aside}/pending.log")
    assert not damage.disk.exists(damage.folder(bad))
    # Every other queue serves, and the damage is known after a restart.
    for _ in range(2):
        assert damage.bodies(good) == [b"fine"]
        damage.checkpoint()
        damage.restart("all")
        assert damage.queue(bad).damaged
        assert damage.head(bad) is None
        assert b"promised" in damage.read(f"{aside}/pending.log"), "whoever asks for it"
    damage.is_at_work(good)


def test_c12_a_damaged_queue_can_be_deleted(damage: Damage) -> None:
    """C12: then nothing of it is left."""
    queue = damage.stored(b"1")
    two_bad_lines_and_a_bad_record(damage, queue)
    damage.restart()
    damage.head(queue)
    damage.checkpoint()
    damage.store.delete(damage.queue(queue))
    damage.store.commit()
    damage.checkpoint()
    damage.restart()
    assert damage.store.find(queue) is None
    assert damage.disk.list_folder("quarantine") == []
    assert len(damage.store) == 0


def test_c12_damage_found_by_a_checkpoint_keeps_what_was_promised(damage: Damage) -> None:
    """C12: found when changes are to be flushed, not when somebody reads."""
    queue = damage.stored(b"1")
    two_bad_lines_and_a_bad_record(damage, queue)
    damage.restart()
    damage.send_all(queue, b"promised")
    damage.checkpoint()
    assert damage.queue(queue).damaged
    assert b"promised" in damage.read(f"quarantine/{text_of(queue)}/pending.log")
    assert damage.store.log.size_bytes == 0


def test_c12_killed_after_a_queue_was_set_aside_keeps_what_is_promised_then() -> None:
    """C12: the index did not learn of the damage, so sends are taken once more."""
    damage = Damage()
    queue = damage.stored(b"1")
    two_bad_lines_and_a_bad_record(damage, queue)
    damage.restart()
    damage.head(queue)
    damage.restart("none")
    assert damage.send(queue, b"promised"), "nothing is known of the damage yet"
    damage.checkpoint()
    assert damage.queue(queue).damaged
    assert isinstance(damage.disk, MemoryDisk)
    assert [path for path, data in damage.disk.files().items() if b"promised" in data]


def test_c12_what_was_never_committed_takes_no_place_of_what_was() -> None:
    """C12: set aside with a send that a crash kept from the log; its number is another message's then."""
    damage = Damage()
    queue = damage.stored(b"1", b"2")
    wrong_check(damage, queue)
    damage.restart()
    damage.store.send(damage.queue(queue), b"not committed", damage.clock.wall_ms())
    damage.head(queue)
    assert damage.queue(queue).damaged
    damage.restart("none")
    other = damage.create()
    assert damage.send(other, b"its number")
    damage.head(queue)
    damage.checkpoint()
    assert damage.queue(queue).damaged
    assert damage.queue(queue).size == 2
    pending = f"quarantine/{text_of(queue)}/pending.log"
    assert not damage.disk.exists(pending)


def test_c12_a_power_cut_after_a_queue_was_set_aside_loses_no_file() -> None:
    """C12: its files are kept, here or there."""
    damage = Damage()
    queue = damage.stored(b"the only copy")
    two_bad_lines_and_a_bad_record(damage, queue)
    damage.restart()
    damage.head(queue)
    damage.restart("all")
    assert isinstance(damage.disk, MemoryDisk)
    assert [path for path, data in damage.disk.files().items() if b"the only cop" in data]


@pytest.mark.parametrize("harm", HARMS)
def test_c18_one_bad_queue_never_stops_the_start(
    damage: Damage, harm: Callable[[Damage, bytes], None]
) -> None:
    """C18: with the index, and without it, when every folder is visited."""
    bad, good = damage.stored(b"1", b"2"), damage.stored(b"fine")
    harm(damage, bad)
    damage.restart()
    assert damage.bodies(good) == [b"fine"]
    damage.overwrite("index", b"no index")
    damage.restart()
    assert damage.bodies(good) == [b"fine"]
    damage.head(bad)
    assert damage.queue(bad).damaged
    damage.checkpoint()
    damage.is_at_work(good)


@pytest.mark.parametrize("index", [None, b"", b"garbage" * 100], ids=["none", "empty", "garbage"])
def test_c18_a_lost_index_is_rebuilt_from_the_folders_and_the_log(
    damage: Damage, index: bytes | None
) -> None:
    """C18: messages in files and in the log are all there."""
    stored, over_quota = damage.two_files(), damage.create()
    damage.send_all(over_quota, b"1", b"2", b"3")
    damage.send(over_quota, b"refused")
    damage.checkpoint()
    damage.acknowledge_head(stored)
    damage.send_all(stored, b"4")
    if index is None:
        damage.disk.remove("index")
    else:
        damage.overwrite("index", index)
    damage.restart()
    assert damage.bodies(stored) == [b"2", b"3", b"4"]
    assert damage.send(over_quota, b"refused") == 0
    assert [entry.kind for entry in damage.entries(over_quota)] == [0, 0, 0, QUOTA_MARKER]
    assert len(damage.store) == 2
    damage.acknowledge_head(stored)
    damage.is_at_work(stored)
