"""The audit trail of a node: written before it is answered, summed, published, and true to a full disk."""

import asyncio
import random
import threading
from pathlib import Path

import msgspec
import pytest
from tests.journal.audit_pages import read_all_pages
from tests.waiting import until

from moorline.access.audit import GAP, Audit, open_audit
from moorline.core.access.audit import (
    Act,
    AuditProof,
    Detail,
    Kind,
    StoredLine,
    Verdict,
    decoded,
)
from moorline.errors import NotAudited
from moorline.journal.audit import FOLDER, Wanted, name_of
from moorline.journal.disk import DiskFile, FileDisk
from moorline.limits import AUDIT_PENDING_LINES_MAX, AUDIT_SUM_MS
from moorline.testing.memory_disk import MemoryDisk
from moorline.wire.message import Message
from moorline.wire.queue import Send

WAIT_S = 20


def refusal(principal: str = "mallory", path: str = "/topics/a") -> Act:
    return Act(
        Kind.REFUSAL,
        principal,
        AuditProof.CERTIFICATE,
        "10.0.0.1:5",
        "Publish",
        path,
        Verdict.DENIED,
    )


GRANT = Act(
    Kind.GRANT,
    "olga",
    AuditProof.PASSWORD,
    "127.0.0.1:9",
    "ChangeRows",
    "/topics/a",
    Verdict.GRANTED,
    Detail(subject="alice", letters="+sw", version=7),
)
OPERATOR = Act(
    Kind.OPERATOR, "olga", AuditProof.PASSWORD, "", "DeleteQueue", "/queues/x", Verdict.GRANTED
)

LOOK = msgspec.structs.replace(OPERATOR, act="BrowseStream", path="/topics/olga", is_look=True)


def stored(disk: MemoryDisk) -> list[StoredLine]:
    found: list[bytes] = []
    read_all_pages(disk, Wanted(), found.extend)
    return [line for line in map(decoded, found) if line is not None]


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.ms = 1_000

    def __call__(self) -> int:
        return self.ms


class HeldDisk(MemoryDisk):
    """A disk whose appends wait while it hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.goes = threading.Event()
        self.goes.set()
        self.is_waited_for = threading.Event()

    def open(self, path: str, *, create: bool) -> DiskFile:
        file = super().open(path, create=create)
        append = file.append

        def held(data: bytes | bytearray | memoryview) -> None:
            if not self.goes.is_set():
                self.is_waited_for.set()
            assert self.goes.wait(WAIT_S)
            append(data)

        file.append = held  # type: ignore[method-assign]
        return file


async def test_what_was_recorded_survives_a_crash_of_the_machine() -> None:
    disk = MemoryDisk()
    async with open_audit(disk, "node-1", sync=True) as audit:
        await audit.recorded(GRANT)
        await audit.recorded(OPERATOR)
        disk.crash(random.Random(1), lose="all")
        lines = stored(disk)
        assert [(line.act, line.path, line.node) for line in lines] == [
            ("ChangeRows", "/topics/a", "node-1"),
            ("DeleteQueue", "/queues/x", "node-1"),
        ]
        assert lines[0].detail == Detail(subject="alice", letters="+sw", version=7)


@pytest.mark.slow
async def test_a_refusal_is_written_soon_and_those_like_it_when_their_sum_is_over() -> None:
    disk, now = MemoryDisk(), Hand()
    async with open_audit(disk, "node-1", sync=True, now_ms=now) as audit:
        for _ in range(1_000):
            audit.heard(refusal())
        await until(lambda: len(stored(disk)) == 1)
        now.ms += AUDIT_SUM_MS
        audit.heard(refusal("alice"))
        await until(lambda: len(stored(disk)) == 3)
    assert [(line.principal, line.count) for line in stored(disk)] == [
        ("mallory", 1),
        ("mallory", 999),
        ("alice", 1),
    ]
    assert audit.lines == 3


async def test_a_sum_is_written_when_it_is_over_though_nothing_else_happens() -> None:
    disk, now = MemoryDisk(), Hand()
    async with open_audit(disk, "node-1", sync=True, now_ms=now) as audit:
        audit.heard(refusal())
        audit.heard(refusal())
        now.ms += AUDIT_SUM_MS - 10  # the rest passes by itself: the task has asked for its end
        await until(lambda: len(stored(disk)) == 1)
        now.ms += 10
        await until(lambda: len(stored(disk)) == 2)


async def test_the_end_writes_all_that_is_open() -> None:
    disk = MemoryDisk()
    async with open_audit(disk, "node-1", sync=False) as audit:
        for number in range(5_000):
            audit.heard(refusal(path=f"/topics/{number % 10}"))
    assert sum(line.count for line in stored(disk)) == 5_000
    assert len(stored(disk)) == 20
    assert disk.open_handles == 0


async def test_many_that_wait_share_a_write() -> None:
    disk = HeldDisk()
    async with open_audit(disk, "node-1", sync=True) as audit:
        disk.goes.clear()
        first = asyncio.create_task(audit.recorded(GRANT))
        await asyncio.to_thread(disk.is_waited_for.wait, WAIT_S)
        before = disk.steps
        others = [asyncio.create_task(audit.recorded(GRANT)) for _ in range(500)]
        await asyncio.sleep(0)
        disk.goes.set()
        await asyncio.gather(first, *others)
        assert disk.steps - before <= 4, "an append and a sync, twice"
    assert len(stored(disk)) == 501


async def test_the_trail_is_in_the_folder_of_a_real_disk(tmp_path: Path) -> None:
    for number in range(3):
        async with open_audit(FileDisk(tmp_path / FOLDER), f"node-{number}", sync=True) as audit:
            await audit.recorded(GRANT)
            audit.heard(refusal())
            page = await audit.read(await audit.first_place(Wanted()), Wanted(kind="grant"))
            assert len(page.lines) == number + 1
    (file,) = (tmp_path / FOLDER).iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_bytes().count(b"\n") == 6


async def test_behind_the_end_nothing_is_recorded_and_nobody_waits() -> None:
    async with open_audit(MemoryDisk(), "node-1", sync=True) as audit:
        pass
    with pytest.raises(NotAudited, match="stopping"):
        await audit.recorded(GRANT)


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_full_disk_is_counted_and_told_and_acts_go_on() -> None:
    """A42: what was lost is a line of its own behind it."""
    disk = MemoryDisk(capacity_bytes=0)
    async with open_audit(disk, "node-1", sync=True, full="go_on") as audit:
        await audit.recorded(GRANT)
        audit.heard(refusal())
        await until(lambda: audit.lost == 2)
        assert "no room left" in audit.problem()
        assert "2 acts" in audit.problem()
        disk.capacity_bytes = None
        await until(lambda: audit.problem() == "")
        await audit.recorded(OPERATOR)
    gap, after = stored(disk)
    assert (gap.act, gap.count, gap.verdict, gap.principal) == (GAP, 2, "failed", "$node/node-1")
    assert after.act == "DeleteQueue"


async def test_a_full_disk_refuses_what_must_be_recorded_where_the_operator_says_so() -> None:
    """A42: by the setting."""
    disk = MemoryDisk(capacity_bytes=0)
    async with open_audit(disk, "node-1", sync=True, full="stop") as audit:
        with pytest.raises(NotAudited, match=r"access\.audit_full"):
            await audit.recorded(GRANT)
        audit.heard(refusal())  # a refusal is not undone for want of a line
        assert "are refused" in audit.problem()
        disk.capacity_bytes = None
        await audit.recorded(GRANT)
        assert audit.problem() == ""


async def test_the_first_look_waits_for_its_line_and_those_behind_it_are_one() -> None:
    disk = MemoryDisk()
    async with open_audit(disk, "node-1", sync=True) as audit:
        for _ in range(50):
            await audit.looked(LOOK)
        (first,) = stored(disk)
        assert (first.act, first.count) == ("BrowseStream", 1)
    assert [line.count for line in stored(disk)] == [1, 49]


async def test_no_look_is_allowed_by_a_full_disk_where_the_operator_says_so() -> None:
    """A42: nor one that would only be added up."""
    disk = MemoryDisk(capacity_bytes=0)
    async with open_audit(disk, "node-1", sync=True, full="stop") as audit:
        for _ in range(2):
            with pytest.raises(NotAudited, match=r"access\.audit_full"):
                await audit.looked(LOOK)
        disk.capacity_bytes = None
        await until(lambda: audit.problem() == "")
        await audit.looked(LOOK)


async def test_a_failed_sync_is_no_success() -> None:
    disk = MemoryDisk()
    async with open_audit(disk, "node-1", sync=True, full="stop") as audit:
        disk.fail_sync = True
        with pytest.raises(NotAudited):
            await audit.recorded(GRANT)
        disk.fail_sync = False
        await audit.recorded(OPERATOR)


async def test_a_disk_that_hangs_costs_bounded_memory_and_every_act_is_counted() -> None:
    disk, extra = HeldDisk(), 1_000
    async with open_audit(disk, "node-1", sync=False) as audit:
        disk.goes.clear()
        waiting = asyncio.create_task(audit.recorded(GRANT))
        await asyncio.to_thread(disk.is_waited_for.wait, WAIT_S)
        now = Hand()
        audit._now_ms = now
        for number in range(AUDIT_PENDING_LINES_MAX + extra):
            now.ms += AUDIT_SUM_MS
            audit.heard(refusal(f"p{number}"))
        assert len(audit._pending) == AUDIT_PENDING_LINES_MAX
        assert audit.lost == extra
        disk.goes.set()
        await waiting
        await until(lambda: not audit._pending)
    assert sum(line.count for line in stored(disk)) == AUDIT_PENDING_LINES_MAX + extra + 1
    assert next(line for line in stored(disk) if line.act == GAP).count == extra


async def test_a_torn_line_is_kept_and_counted() -> None:
    disk = MemoryDisk()
    async with open_audit(disk, "node-1", sync=True) as audit:
        await audit.recorded(GRANT)
    disk.open(name_of(1), create=False).append(b'{"time":"20')
    async with open_audit(disk, "node-1", sync=True) as audit:
        assert audit.torn == 1
        await audit.recorded(OPERATOR)
        page = await audit.read(await audit.first_place(Wanted()), Wanted())
    assert (len(page.lines), page.unreadable) == (2, 1)


# --- as messages ----------------------------------------------------------------------------------


class Stream:
    """Where lines are published; it may fail, or hang."""

    def __init__(self) -> None:
        self.found: list[tuple[str, bytes]] = []
        self.fails = False
        self.goes = asyncio.Event()
        self.goes.set()

    async def __call__(self, topic: str, body: bytes) -> None:
        await self.goes.wait()
        if self.fails:
            raise RuntimeError("no stream")
        self.found.append((topic, body))


async def test_lines_are_published_under_their_kind() -> None:
    disk, stream = MemoryDisk(), Stream()
    async with open_audit(disk, "node-1", sync=True) as audit:
        await audit.recorded(OPERATOR)  # before there is a stream
        audit.publish = stream
        await audit.recorded(GRANT)
        audit.heard(refusal())
        await until(lambda: len(stream.found) == 2)
    assert [topic for topic, _ in stream.found] == ["$SYS/audit/grant", "$SYS/audit/refusal"]
    assert [msgspec.json.decode(body)["act"] for _, body in stream.found] == [
        "ChangeRows",
        "Publish",
    ]
    assert len(stored(disk)) == 3


@pytest.mark.parametrize("proof", [AuditProof.NOTHING, AuditProof.NODE])
async def test_who_merely_connects_is_in_the_file_and_puts_no_message_among_others(
    proof: AuditProof,
) -> None:
    disk, stream = MemoryDisk(), Stream()
    quiet = Act(Kind.LOGIN, "anonymous", proof, "127.0.0.1", "Login", "/", Verdict.GRANTED)
    proven = msgspec.structs.replace(quiet, principal="alice", proof=AuditProof.PASSWORD)
    refused = msgspec.structs.replace(quiet, verdict=Verdict.FAILED)
    async with open_audit(disk, "node-1", sync=True) as audit:
        audit.publish = stream
        for act in (quiet, quiet, quiet, proven, refused):
            audit.heard(act)
        await until(lambda: len(stream.found) == 2)
    published = [msgspec.json.decode(body) for _, body in stream.found]
    assert [(one["principal"], one["verdict"]) for one in published] == [
        ("alice", "granted"),
        ("anonymous", "failed"),
    ]
    lines = stored(disk)
    assert [line.count for line in lines if line.verdict == "granted"] == [1, 1, 2]


async def test_a_stream_that_fails_or_hangs_loses_and_delays_no_line_of_the_file() -> None:
    disk, stream = MemoryDisk(), Stream()
    async with open_audit(disk, "node-1", sync=True) as audit:
        audit.publish = stream
        stream.fails = True
        await audit.recorded(GRANT)
        await until(lambda: audit.unpublished == 1)
        stream.fails = False
        stream.goes.clear()
        async with asyncio.timeout(WAIT_S):
            for _ in range(10):
                await audit.recorded(OPERATOR)
        assert len(stored(disk)) == 11
        stream.goes.set()
        await until(lambda: len(stream.found) == 10)
    assert audit.problem() == ""


# --- secrets --------------------------------------------------------------------------------------

MARK = b"xyzzy-secret"


def act_of(call: Message, audit: Audit) -> None:
    """As a guard does it: by the type of the message, never by what is in it."""
    audit.heard(
        Act(
            Kind.REFUSAL,
            "mallory",
            AuditProof.TOKEN,
            "10.0.0.1:5",
            type(call).__name__,
            "/queues/x",
            Verdict.DENIED,
            Detail(reason="DENIED", letters="w"),
        )
    )


async def test_no_bytes_of_a_body_or_a_proof_are_in_a_file_or_a_message() -> None:
    """A40."""
    disk, stream = MemoryDisk(), Stream()
    async with open_audit(disk, "node-1", sync=True) as audit:
        audit.publish = stream
        act_of(Send(1, b"q" * 24, MARK), audit)
        for field in ("act", "path", "principal"):
            forged = msgspec.structs.replace(GRANT, **{field: MARK})
            with pytest.raises((AssertionError, TypeError)):
                await audit.recorded(forged)
        await audit.recorded(GRANT)
        await until(lambda: len(stream.found) == 2)
    assert len(stored(disk)) == 2
    assert not any(MARK in content for content in disk.files().values())
    assert not any(MARK in body for _, body in stream.found)
