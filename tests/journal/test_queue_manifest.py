"""What is gone of the queues' log is told by its numbers and by the manifest; foreign queues are refused."""

import logging

import pytest
from tests.journal.stores import contents, filled, now, opened

from moorline.errors import FolderUnusable
from moorline.journal.queue_manifest import (
    MANIFEST,
    check_owner,
    go_on_behind,
    read_manifest,
    write_manifest,
)
from moorline.testing import MemoryDisk


def logs(disk: MemoryDisk) -> list[str]:
    return sorted(path for path in disk.files() if path.endswith(".wal"))


def test_a_whole_store_raises_no_alarm() -> None:
    disk = MemoryDisk()
    filled(disk)
    for _ in range(2):
        store = opened(disk)
        go_on_behind(store, now)
        assert store.lost_changes == 0
        write_manifest(disk, "node", store.next_lsn)
        store.close()


def test_a_log_that_is_gone_is_told_and_no_number_is_given_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    filled(disk)
    store = opened(disk)
    reached = store.next_lsn
    write_manifest(disk, "node", reached)
    store.close()
    for path in logs(disk):
        disk.remove(path)
    store = opened(disk)
    assert store.next_lsn < reached
    with caplog.at_level(logging.ERROR):
        go_on_behind(store, now)
    assert store.lost_changes > 0
    assert "changes of queues are gone" in caplog.text
    queue = store.create(b"owner")
    assert store.send(queue, b"next", 1)
    store.commit()
    write_manifest(disk, "node", store.next_lsn)
    store.close()
    ((message, _, _),) = contents(disk)[queue.id]
    assert message >= reached
    again = opened(disk)
    go_on_behind(again, now)
    assert again.lost_changes == 0, "told once"
    again.close()


def test_queues_of_another_node_are_refused() -> None:
    disk = MemoryDisk()
    filled(disk)
    check_owner(disk, "one")
    write_manifest(disk, "one", 7)
    check_owner(disk, "one")
    with pytest.raises(FolderUnusable, match="node with the id one, and this one is two"):
        check_owner(disk, "two")


def test_a_damaged_manifest_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    filled(disk)
    write_manifest(disk, "one", 10**9)
    whole = disk.files()[MANIFEST]
    for size in range(1, len(whole)):
        disk.write_whole(MANIFEST, whole[:size])
        assert read_manifest(disk) is None
    disk.write_whole(MANIFEST, whole.replace(b"1000000000", b"1000000001"))
    store = opened(disk)
    go_on_behind(store, now)
    assert store.next_lsn < 10**9
    assert "the manifest of the queues is damaged" in caplog.text
    store.close()
