"""What is gone of the queues' log is told by its numbers and by the manifest; foreign queues are refused."""

import logging
import shutil
from pathlib import Path

import msgspec
import pytest
from tests.journal.queues.stores import OPTIONS, contents, filled, now, opened, unseen

from moorline.config.settings import Queues
from moorline.errors import FolderUnusable
from moorline.journal.queues.check import check, repair
from moorline.journal.queues.manifest import (
    MANIFEST,
    check_owner,
    go_on_behind,
    read_manifest,
    write_manifest,
)
from moorline.journal.queues.report import Problem
from moorline.node.queues import open_queues
from moorline.testing import MemoryDisk

OURS = msgspec.structs.replace(OPTIONS, node="one")


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


def test_a_log_without_any_file_is_told(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    write_manifest_of_start(disk)
    filled(disk)
    for path in logs(disk):
        disk.remove(path)
    (problem,) = checked(disk)
    assert (problem.kind, problem.text[:25]) == ("log", "no file of it is there: w")
    store = opened(disk)
    with caplog.at_level(logging.ERROR):
        go_on_behind(store, now)
    assert "no file of the write-ahead log is there" in caplog.text
    store.close()
    assert checked(disk) == [], "told once"


def write_manifest_of_start(disk: MemoryDisk) -> None:
    store = opened(disk)
    write_manifest(disk, "one", store.next_lsn)
    store.close()


def checked(disk: MemoryDisk) -> list[Problem]:
    """What is wrong; the disk is proven to stay as it is."""
    before = disk.files()
    found = check(disk, OURS, now, unseen)
    assert disk.files() == before
    return found.problems


def test_a_check_compares_the_manifest_with_the_log() -> None:
    disk = MemoryDisk()
    filled(disk)
    reached = opened(disk).next_lsn
    write_manifest(disk, "one", reached)
    assert checked(disk) == []
    write_manifest(disk, "one", reached + 7)
    (problem,) = checked(disk)
    assert problem.kind == "log"
    assert f"changes {reached} to {reached + 6} are in no file, 7 in all" in problem.text
    assert repair(disk, OURS, now, unseen).problems == [problem]
    assert checked(disk) == []
    store = opened(disk)
    assert store.next_lsn == reached + 7, "no number is given twice"
    store.close()


def test_a_check_names_a_manifest_that_is_missing_or_damaged() -> None:
    disk = MemoryDisk()
    filled(disk)
    for damage in ("missing", "damaged"):
        if damage == "damaged":
            disk.write_whole(MANIFEST, b'{"node": "on')
        (problem,) = checked(disk)
        assert (problem.kind, problem.text.partition(":")[0]) == (
            "manifest",
            f"manifest is {damage}",
        )
        assert problem.is_mended_by_a_start
        repair(disk, OURS, now, unseen)
        assert checked(disk) == []
        found = read_manifest(disk)
        assert found is not None
        assert found.node == "one"
        disk.remove(MANIFEST)


def test_a_check_names_queues_of_another_node_and_a_repair_refuses_them() -> None:
    disk = MemoryDisk()
    filled(disk)
    write_manifest(disk, "two", 7)
    (problem,) = checked(disk)
    assert problem.kind == "foreign"
    assert "all of the 4 queues are those of the node with the id two" in problem.text
    before = disk.files()
    with pytest.raises(FolderUnusable, match="node with the id two, and this one is one"):
        repair(disk, OURS, now, unseen)
    assert disk.files() == before


@pytest.mark.parametrize("sync", ["power", "process"])
async def test_a_lost_end_of_the_log_is_told_in_both_modes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sync: str
) -> None:
    settings = msgspec.convert({"sync": sync}, Queues)
    async with open_queues(tmp_path, settings, owner="one") as broker:
        queue = broker.store.create(b"owner")
        assert broker.store.send(queue, b"ahoy", now())
        broker.store.commit()
        reached = broker.store.next_lsn
    for path in (tmp_path / "queues").rglob("*"):
        if path.is_file() and path.name not in (MANIFEST, "layout.json"):
            path.unlink()
    shutil.rmtree(tmp_path / "queues" / "messages")
    async with open_queues(tmp_path, settings, owner="one") as broker:
        assert broker.store.lost_changes == reached - 1
        assert broker.store.next_lsn == reached
    assert "changes of queues are gone" in caplog.text
