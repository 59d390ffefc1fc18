"""`moor journal migrate`: another depth of folders, and every message stays."""

import random
from pathlib import Path

import msgspec
import pytest
from tests.journal.queues.stores import OPTIONS, contents, filled, folder_of, now, opened, unseen

from moorline.errors import ConfigError
from moorline.ids import text_of
from moorline.journal.disk import FileDisk
from moorline.journal.queues.folder import path_of
from moorline.journal.queues.layout import Layout, check_layout, read_layout
from moorline.journal.queues.offline import migrate
from moorline.testing import Crashed, Lose, MemoryDisk


def test_j13_a_path_has_as_many_levels_as_are_set() -> None:
    """J13: a 32-character id becomes 2/2/2/2/24."""
    queue_id = bytes(range(24))
    text = text_of(queue_id)
    parts = path_of(queue_id, 4).split("/")
    assert [len(part) for part in parts[1:]] == [2, 2, 2, 2, 24]
    assert "".join(parts[1:]) == text
    assert path_of(queue_id, 0) == f"messages/{text}"


@pytest.mark.parametrize(("old", "new"), [(4, 2), (2, 4), (0, 4), (4, 0), (8, 1), (3, 3)])
def test_j13_every_message_stays(tmp_path: Path, old: int, new: int) -> None:
    """J13: a store moves to another depth and keeps every message."""
    disk = FileDisk(tmp_path)
    before_options = msgspec.structs.replace(OPTIONS, levels=old)
    ids = filled(disk, options=before_options)
    before = contents(disk)
    heard: list[tuple[int, int]] = []
    moved = migrate(disk, before_options, new, now, lambda *seen: heard.append(seen))
    assert moved == (0 if old == new else 4)
    assert heard == [(count, 4) for count in range(1, moved + 1)]
    after_options = msgspec.structs.replace(OPTIONS, levels=new)
    check_layout(disk, new)
    for queue_id in ids:
        assert folder_of(tmp_path, queue_id, after_options).is_dir()
    if old != new:
        with pytest.raises(ConfigError, match=f"queues.folder_levels is {old}"):
            check_layout(disk, old)
        assert not any(folder_of(tmp_path, one, before_options).exists() for one in ids)
    assert contents(disk) == before
    assert migrate(disk, after_options, new, now, unseen) == 0


def test_the_log_is_empty_before_anything_moves(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path)
    filled(disk)
    migrate(disk, OPTIONS, 3, now, unseen)
    store = opened(disk, msgspec.structs.replace(OPTIONS, levels=3))
    assert store.replay.count == 0
    store.close()


@pytest.mark.parametrize("lose", ["none", "some", "all"])
@pytest.mark.parametrize(("old", "new"), [(4, 2), (1, 3)])
def test_j13_a_move_that_is_killed_goes_on(old: int, new: int, lose: Lose) -> None:
    """J13, killed or without power at every step: every message is there afterwards."""
    options = msgspec.structs.replace(OPTIONS, levels=old)
    step = 0
    while True:
        disk = MemoryDisk()
        filled(disk, queues=3, options=options)
        before = contents(disk)
        disk.crash_at = disk.steps + step
        try:
            migrate(disk, options, new, now, unseen)
            break
        except Crashed:
            disk.crash(random.Random(step), lose)
        layout = read_layout(disk)
        assert layout in (Layout(old), Layout(old, new), Layout(new))
        if layout == Layout(old, new):
            with pytest.raises(ConfigError, match=f"migrate --levels {new}"):
                check_layout(disk, old)
        levels = new if layout == Layout(new) else old
        migrate(disk, msgspec.structs.replace(OPTIONS, levels=levels), new, now, unseen)
        assert read_layout(disk) == Layout(new)
        assert contents(disk) == before, step
        step += 1
    assert step > 20


def test_another_target_waits_for_the_first_move(tmp_path: Path) -> None:
    """Or the folders that are there already would be found by nobody."""
    disk = FileDisk(tmp_path)
    filled(disk)
    (tmp_path / "layout.json").write_text('{"levels":2,"moving_to":3}')
    with pytest.raises(ConfigError, match="migrate --levels 3"):
        migrate(disk, OPTIONS, 4, now, unseen)
