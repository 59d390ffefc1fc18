"""Scenarios of torn, missing and surplus files, C01 to C19: the queue goes on, and losses are counted."""

import pytest
from tests.journal.queues.queue_life import Damage

from moorline.core.queue.queue import QUOTA_MARKER

# --- state lines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 2, 30, 10_000], ids=["newline", "digit", "half", "all but one"])
def test_c01_the_last_state_line_is_torn(damage: Damage, cut: int) -> None:
    """C01: a backup is kept; the state is behind the files, and the files win."""
    queue = damage.stored(b"1", b"2")
    text = damage.read(damage.state_path(queue))
    start = text.index(b"\n") + 1
    damage.overwrite(damage.state_path(queue), text[: max(start + 1, len(text) - cut)])
    damage.restart()
    assert damage.bodies(queue) == [b"1", b"2"]
    assert damage.store.files.lost_messages == 0
    (backup,) = damage.backups(queue)
    assert damage.read(f"{damage.folder(queue)}/{backup}").startswith(text[:start])
    assert len(damage.lines(queue)) == 1
    damage.is_at_work(queue)


def test_c01_a_line_without_its_newline_is_whole(damage: Damage) -> None:
    """C01: its check is right; the next line does not run into it."""
    queue = damage.stored(b"1", b"2")
    files = damage.message_files(queue)
    damage.overwrite(damage.state_path(queue), damage.read(damage.state_path(queue))[:-1])
    damage.restart()
    damage.send_all(queue, b"3")
    damage.checkpoint()
    assert damage.message_files(queue) == files
    assert len(damage.lines(queue)) == 2
    assert damage.state(queue).size == 3
    damage.acknowledge_head(queue)
    damage.is_at_work(queue)


@pytest.mark.parametrize("lines_lost", [1, 2, 3])
def test_c01_lines_that_are_gone_without_a_trace(damage: Damage, lines_lost: int) -> None:
    """C01: every line that is left is whole; only the index knows of more."""
    queue = damage.stored(b"1", b"2", b"3")
    damage.acknowledge_head(queue)
    damage.checkpoint()
    lines = damage.read(damage.state_path(queue)).splitlines(keepends=True)
    damage.overwrite(damage.state_path(queue), b"".join(lines[:-lines_lost]))
    damage.restart()
    assert damage.bodies(queue) == [b"2", b"3"]
    assert damage.store.files.lost_messages == 0
    damage.acknowledge_head(queue)
    damage.is_at_work(queue)


def test_c01_a_torn_acknowledgement_is_not_forgotten(damage: Damage) -> None:
    """C01: the line before has the message that was acknowledged; the index counts one less."""
    queue = damage.stored(b"1", b"2")
    damage.acknowledge_head(queue)
    damage.checkpoint()
    damage.overwrite(damage.state_path(queue), damage.read(damage.state_path(queue))[:-5])
    damage.restart()
    assert damage.head(queue) is not None
    assert damage.bodies(queue) == [b"2"]
    assert damage.store.files.lost_messages == 0
    damage.is_at_work(queue)


def test_c01_torn_across_a_rotation_keeps_the_file_that_was_begun() -> None:
    """C01: the line that names the new file is the one that is lost; and with it the copy of the others."""
    damage = Damage()
    queue = damage.two_files()
    damage.overwrite(damage.state_path(queue), damage.read(damage.state_path(queue))[:-9])
    for name in damage.backups(queue):
        damage.disk.remove(f"{damage.folder(queue)}/{name}")
    damage.restart()
    assert damage.bodies(queue) == [b"1", b"2", b"3"]
    assert damage.store.files.lost_messages == 0
    damage.acknowledge_head(queue)
    damage.is_at_work(queue)


def test_c01_a_torn_line_and_a_lost_index_deliver_twice_and_say_so(damage: Damage) -> None:
    """C01: nothing knows of the last acknowledgement any more; nothing is lost."""
    queue = damage.stored(b"1", b"2")
    damage.acknowledge_head(queue)
    damage.send_all(queue, b"3")
    damage.checkpoint()
    damage.overwrite(damage.state_path(queue), damage.read(damage.state_path(queue))[:-5])
    damage.overwrite("index", b"no index")
    damage.restart()
    assert damage.bodies(queue) == [b"1", b"2", b"3"]
    files = damage.store.files
    assert (files.lost_messages, files.doubled_messages) == (0, 3)
    damage.acknowledge_head(queue)
    damage.is_at_work(queue)


@pytest.mark.parametrize("bad", [b"", b"read_file=", b"\x00" * 100, b"half a line\n"])
def test_c02_c03_the_only_state_line_is_torn_or_missing(damage: Damage, bad: bytes) -> None:
    """C02 the only state line torn, C03 the state file empty: the message files are read."""
    queue = damage.create()
    damage.send_all(queue, b"1", b"2", b"3")
    damage.checkpoint()
    assert len(damage.lines(queue)) == 1
    damage.overwrite(damage.state_path(queue), bad)
    damage.restart()
    assert damage.bodies(queue) == [b"1", b"2", b"3"]
    assert damage.store.files.lost_messages == 0
    (backup,) = damage.backups(queue)
    assert damage.read(f"{damage.folder(queue)}/{backup}") == bad
    damage.acknowledge_head(queue)
    damage.is_at_work(queue)


def test_c03_no_state_file_at_all_and_two_message_files(damage: Damage) -> None:
    """C03: the index says how many of them wait; the files say which."""
    queue = damage.two_files()
    damage.disk.remove(damage.state_path(queue))
    damage.restart()
    assert damage.bodies(queue) == [b"1", b"2", b"3"]
    damage.acknowledge_head(queue)
    damage.is_at_work(queue)


def test_c03_the_quota_is_remembered_without_a_state(damage: Damage) -> None:
    """C03: the index says that senders are held off."""
    queue = damage.create()
    damage.send_all(queue, b"1", b"2", b"3")
    damage.send(queue, b"refused")
    damage.checkpoint()
    damage.overwrite(damage.state_path(queue), b"")
    damage.restart()
    assert damage.entries(queue)[-1].kind == QUOTA_MARKER
    assert damage.send(queue, b"refused") == 0


def test_c03_no_state_and_an_old_file_that_was_read_to_its_end() -> None:
    """C03 with C19: the file that a crash kept from being removed is not read again."""
    damage = Damage()
    queue = damage.two_files()
    old = damage.message_path(queue, damage.state(queue).read_file)
    content = damage.read(old)
    for _ in range(2):
        damage.acknowledge_head(queue)
    damage.checkpoint()
    assert len(damage.message_files(queue)) == 1
    damage.overwrite(old, content)
    damage.overwrite(damage.state_path(queue), b"")
    damage.restart()
    assert damage.head(queue) is not None
    assert damage.bodies(queue) == [b"3"]
    damage.is_at_work(queue)


@pytest.mark.parametrize("bad", [b"", b"read_file="])
def test_c02_c03_without_an_index_the_message_files_are_read_from_their_start(bad: bytes) -> None:
    """C02, C03: two kinds of damage at once lose nothing that a file still has."""
    damage = Damage()
    queue = damage.create()
    damage.send_all(queue, b"1", b"2")
    damage.checkpoint()
    damage.overwrite(damage.state_path(queue), bad)
    damage.overwrite("index", b"no index")
    damage.restart()
    assert damage.bodies(queue) == [b"1", b"2"]


def test_c04_a_message_whose_state_line_was_lost_is_cut(damage: Damage) -> None:
    """C04: never acknowledged to its sender, so cut; the order of the rest holds."""
    queue = damage.stored(b"1", b"2")
    name = damage.message_path(queue, damage.state(queue).write_file)
    content = damage.read(name)
    one = len(content) // 2
    # A whole record whose state never came, and then half of another.
    damage.overwrite(name, content + content[one:] + content[: one // 2])
    damage.restart()
    assert damage.bodies(queue) == [b"1", b"2"]
    assert damage.read(name) == content
    damage.is_at_work(queue)
    assert damage.store.files.lost_messages == 0


# --- message files --------------------------------------------------------------------------------


def test_c06_the_only_message_file_is_missing(damage: Damage) -> None:
    """C06: the queue goes on, empty; what was lost is reported by count."""
    queue = damage.stored(b"1", b"2")
    damage.disk.remove(damage.message_path(queue, damage.state(queue).read_file))
    damage.restart()
    assert damage.head(queue) is None
    assert (damage.bodies(queue), damage.store.files.lost_messages) == ([], 2)
    damage.is_at_work(queue)


def test_c07_the_read_file_is_missing_and_the_write_file_is_there(damage: Damage) -> None:
    """C07: goes on with the write file; one message is lost."""
    queue = damage.two_files()
    damage.disk.remove(damage.message_path(queue, damage.state(queue).read_file))
    damage.restart()
    assert damage.head(queue) is not None
    assert (damage.bodies(queue), damage.store.files.lost_messages) == ([b"2", b"3"], 1)
    damage.is_at_work(queue)


def test_c07_an_acknowledgement_in_the_log_takes_no_other_message_along(damage: Damage) -> None:
    """C07: the one that it names went with the read file."""
    queue = damage.two_files()
    damage.acknowledge_head(queue)
    damage.disk.remove(damage.message_path(queue, damage.state(queue).read_file))
    damage.restart()
    assert damage.head(queue) is not None
    assert (damage.bodies(queue), damage.store.files.lost_messages) == ([b"2", b"3"], 0)
    damage.is_at_work(queue)


def test_c08_the_write_file_is_missing_and_the_read_file_is_there(damage: Damage) -> None:
    """C08: goes on with the read file; two messages are lost."""
    queue = damage.two_files()
    damage.disk.remove(damage.message_path(queue, damage.state(queue).write_file))
    damage.restart()
    assert damage.head(queue) is not None
    assert (damage.bodies(queue), damage.store.files.lost_messages) == ([b"1"], 2)
    damage.is_at_work(queue)


def test_c09_both_files_are_missing(damage: Damage) -> None:
    """C09: goes on empty; three messages are lost, once."""
    queue = damage.two_files()
    for name in damage.message_files(queue):
        damage.disk.remove(f"{damage.folder(queue)}/{name}")
    damage.restart()
    assert damage.head(queue) is None
    assert (damage.bodies(queue), damage.store.files.lost_messages) == ([], 3)
    damage.is_at_work(queue)
    assert damage.store.files.lost_messages == 0, "not counted again after a restart"


def test_c09_the_whole_folder_is_missing(damage: Damage) -> None:
    """C09: as if both files were."""
    queue = damage.two_files()
    damage.disk.remove_folder(damage.folder(queue))
    damage.restart()
    assert damage.head(queue) is None
    assert damage.store.files.lost_messages == 3
    damage.is_at_work(queue)


def test_c09_a_queue_that_was_over_quota_opens_when_its_files_are_missing(damage: Damage) -> None:
    """C09: with its marker gone nobody could ever acknowledge it."""
    queue = damage.create()
    damage.send_all(queue, b"1", b"2", b"3")
    damage.send(queue, b"refused")
    damage.checkpoint()
    damage.disk.remove_folder(damage.folder(queue))
    damage.restart()
    assert damage.head(queue) is None
    damage.is_at_work(queue)


def test_c06_a_message_file_that_goes_while_the_node_runs_harms_one_queue() -> None:
    """C06, C18: the checkpoint goes on with the others."""
    damage = Damage()
    queue, other = damage.stored(b"1", b"2"), damage.stored(b"other")
    assert damage.bodies(queue) == [b"1", b"2"]
    damage.acknowledge_head(queue)
    damage.send_all(other, b"more")
    # Other queues have taken its handle in the meantime.
    damage.store.files.handles.close()
    damage.disk.remove(damage.message_path(queue, damage.state(queue).read_file))
    damage.checkpoint()
    damage.restart()
    assert damage.bodies(other) == [b"other", b"more"]


def test_c15_a_message_file_longer_than_its_state_is_cut(damage: Damage) -> None:
    """C15: both files are cut to the state."""
    queue = damage.two_files()
    state = damage.state(queue)
    paths = [damage.message_path(queue, name) for name in (state.read_file, state.write_file)]
    contents = [damage.read(path) for path in paths]
    for path, content in zip(paths, contents, strict=True):
        damage.overwrite(path, content + b"torn")
    damage.restart()
    assert damage.bodies(queue) == [b"1", b"2", b"3"]
    assert [damage.read(path) for path in paths] == contents
    damage.acknowledge_head(queue)
    damage.is_at_work(queue)


@pytest.mark.parametrize("is_newer", [True, False])
def test_c15_c19_records_that_nothing_accounts_for_are_set_aside(
    damage: Damage, is_newer: bool
) -> None:
    """C15, C19: whole records, in no state and not in the log, of no file of ours: not ours to remove."""
    if is_newer:
        queue, other = damage.stored(b"1"), damage.stored(b"foreign")
    else:
        other, queue = damage.stored(b"foreign"), damage.stored(b"1")
    foreign = damage.read(damage.message_path(other, damage.state(other).write_file))
    path = damage.message_path(queue, damage.state(queue).write_file)
    content = damage.read(path)
    damage.overwrite(path, content + foreign)
    orphan = f"{damage.folder(queue)}/messages.AAAAAAAAAAAAAAAA.log"
    damage.overwrite(orphan, foreign)
    damage.restart()
    assert damage.bodies(queue) == [b"1"]
    assert damage.store.files.records_aside == 2
    kept = [name for name in damage.names(queue) if ".aside-" in name]
    assert [damage.read(f"{damage.folder(queue)}/{name}") for name in kept] == [foreign, foreign]
    assert damage.read(path) == content
    assert not damage.disk.exists(orphan)
    damage.restart()
    assert damage.bodies(queue) == [b"1"]
    assert damage.store.files.records_aside == 0, "told once"


def test_c19_orphan_message_files_are_collected(damage: Damage) -> None:
    """C19: files that no state names, and what a crash left half written."""
    queue = damage.stored(b"1")
    folder = damage.folder(queue)
    before = damage.names(queue)
    damage.overwrite(f"{folder}/messages.AAAAAAAAAAAAAAAA.log", b"orphan")
    damage.overwrite(f"{folder}/messages.BBBBBBBBBBBBBBBB.log", b"")
    damage.overwrite(f"{folder}/queue.log.new", b"half")
    damage.restart()
    assert damage.bodies(queue) == [b"1"]
    assert damage.names(queue) == before
    damage.is_at_work(queue)
