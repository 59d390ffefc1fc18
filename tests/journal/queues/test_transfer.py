"""Export and import: every queue and message, unchanged, or nothing at all."""

import io
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.drawing import examples
from tests.journal.queues.stores import (
    NOW_MS,
    OPTIONS,
    acknowledge,
    contents,
    filled,
    flip,
    folder_of,
    message_file,
    now,
    opened,
    tree,
    unseen,
)

from moorline.core.queue.queue import QUOTA_MARKER
from moorline.core.sets.digest import Digest
from moorline.errors import ConfigError, ImportRefused, JournalDamaged
from moorline.ids import text_of
from moorline.journal.disk import FileDisk
from moorline.journal.queues import checkpoint
from moorline.journal.queues.check import check
from moorline.journal.queues.offline import every_queue
from moorline.journal.queues.report import Report
from moorline.journal.queues.transfer import Moved, export, import_rows
from moorline.journal.queues.transfer_rows import JsonWriter, read, read_json, written
from moorline.testing import Crashed, MemoryDisk

pytestmark = pytest.mark.slow

SUFFIXES = [".jsonl", ".parquet"]


def exported(disk: FileDisk, path: Path) -> Moved:
    with written(path) as writer:
        return export(disk, OPTIONS, now, writer, unseen)


def imported(disk: FileDisk, path: Path) -> Moved:
    return import_rows(disk, OPTIONS, now, lambda: read(path), unseen)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_j11_an_import_exports_the_same(tmp_path: Path, suffix: str) -> None:
    """J11: export then import into another folder gives the same export, byte for byte."""
    first, second = FileDisk(tmp_path / "first"), FileDisk(tmp_path / "second")
    filled(first)
    before = tree(tmp_path / "first")
    moved = exported(first, tmp_path / f"one{suffix}")
    assert tree(tmp_path / "first") == before
    assert (moved.queues, moved.messages) == (4, 20)
    assert imported(second, tmp_path / f"one{suffix}") == moved
    assert contents(second) == contents(first)
    assert exported(second, tmp_path / f"two{suffix}") == moved
    assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()
    assert check(second, OPTIONS, now, unseen) == Report(queues=4, messages=20)
    assert first.open_handles == second.open_handles == 0
    assert not list(tmp_path.glob("*.new"))


bodies = st.one_of(
    st.binary(max_size=40),
    st.just(b""),
    st.builds(lambda byte: bytes([byte]) * 16_384, st.integers(0, 255)),
)
drawn_queues = st.lists(
    st.tuples(
        st.binary(max_size=32),
        st.lists(bodies, max_size=40),
        st.integers(0, 5),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    max_size=6,
)


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn_queues, st.sampled_from(SUFFIXES))
def test_j11_for_any_queues(
    drawn: list[tuple[bytes, list[bytes], int, bool, bool, bool]], suffix: str
) -> None:
    """J11, with empty and large bodies, quota markers, two files, blocked and suspended queues."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        first, second = FileDisk(root / "first"), FileDisk(root / "second")
        store = opened(first)
        for owner, messages, acknowledged, blocked, suspended, is_flushed in drawn:
            queue = store.create(owner)
            for number, body in enumerate(messages):
                store.send(queue, body, NOW_MS + number)
            if is_flushed:
                checkpoint.run(store, now)
            acknowledge(store, queue, min(acknowledged, queue.size))
            if suspended:
                store.suspend(queue)
            store.block(queue, blocked=blocked)
        store.commit()
        store.close()
        moved = exported(first, root / f"one{suffix}")
        assert imported(second, root / f"one{suffix}") == moved
        exported(second, root / f"two{suffix}")
        assert (root / f"one{suffix}").read_bytes() == (root / f"two{suffix}").read_bytes()
        assert contents(second) == contents(first)
        assert check(second, OPTIONS, now, unseen).problems == []


def test_owners_flags_and_the_quota_come_along(tmp_path: Path) -> None:
    first, second = FileDisk(tmp_path / "first"), FileDisk(tmp_path / "second")
    store = opened(first)
    full, shut = store.create(b"alice"), store.create(b"bob")
    while store.send(full, b"x", NOW_MS):
        pass
    store.suspend(shut)
    store.block(shut, blocked=True)
    store.close_to_strangers(shut, closed=True)
    store.commit()
    store.close()
    exported(first, tmp_path / "q.jsonl")
    imported(second, tmp_path / "q.jsonl")
    store = opened(second)
    found = {queue.id: queue for queue in every_queue(store)}
    assert store.owners[found[full.id].owner] == b"alice"
    assert store.owners[found[shut.id].owner] == b"bob"
    assert (found[shut.id].blocked, found[shut.id].suspended) == (True, True)
    assert (found[shut.id].closed, found[full.id].closed) == (True, False)
    queue = store.find(full.id)
    assert queue is not None
    last = store.peek(queue, queue.size - 1)
    assert last is not None
    assert last.kind == QUOTA_MARKER
    assert store.send(queue, b"still refused", NOW_MS) == 0
    acknowledge(store, queue, queue.size)
    assert store.send(queue, b"taken again", NOW_MS)
    store.close()


def test_new_messages_get_ids_above_the_imported_ones(tmp_path: Path) -> None:
    first, second = FileDisk(tmp_path / "first"), FileDisk(tmp_path / "second")
    ids = filled(first)
    exported(first, tmp_path / "q.jsonl")
    store = opened(second)
    local = store.create(b"local")
    store.send(local, b"was here before", NOW_MS)
    store.commit()
    store.close()
    imported(second, tmp_path / "q.jsonl")
    store = opened(second)
    assert len(store) == 5
    highest = max(lsn for messages in contents(first).values() for lsn, _, _ in messages)
    queue = store.find(ids[0])
    assert queue is not None
    assert store.send(queue, b"new", NOW_MS) > highest
    store.commit()
    store.close()
    after = contents(second)
    assert [body for _, _, body in after[ids[0]]][-1] == b"new"
    assert [body for _, _, body in after[local.id]] == [b"was here before"]


def test_the_digest_is_over_every_message(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path / "first")
    filled(disk)
    expected = Digest.empty()
    times = {b"in the log": NOW_MS + 99}
    for queue_id, messages in contents(disk).items():
        for lsn, kind, body in messages:
            time_ms = times.get(body) or NOW_MS + int(body[7:8])
            data = queue_id + lsn.to_bytes(8, "big") + time_ms.to_bytes(8, "big") + bytes([kind])
            expected = expected.add(data + body)
    assert exported(disk, tmp_path / "q.jsonl").digest == expected


# --- refused --------------------------------------------------------------------------------------


def lines_of(tmp_path: Path) -> list[str]:
    disk = FileDisk(tmp_path / "first")
    filled(disk, queues=2)
    exported(disk, tmp_path / "q.jsonl")
    return (tmp_path / "q.jsonl").read_text().splitlines(keepends=True)


def changed(line: str, **fields: object) -> str:
    return json.dumps({**json.loads(line), **fields}) + "\n"


Lines = list[str]
BAD: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "no JSON": (lambda x: [*x[:2], "{nonsense\n", *x[3:]], "line 3: JSON is malformed"),
    "bad base64": (lambda x: [*x[:2], changed(x[2], body="%%"), *x[3:]], "line 3: Invalid base64"),
    "wrong type": (
        lambda x: [*x[:2], changed(x[2], message="7"), *x[3:]],
        "line 3: Expected `int`",
    ),
    "negative id": (
        lambda x: [*x[:2], changed(x[2], message=-7), *x[3:]],
        "line 3: Expected `int`",
    ),
    "huge time": (lambda x: [*x[:2], changed(x[2], time_ms=1 << 60), *x[3:]], "line 3: Expected"),
    "unknown field": (lambda x: [*x[:2], changed(x[2], more=1), *x[3:]], "line 3: Object contains"),
    "bad id": (lambda x: [x[0], changed(x[1], queue="../../etc"), *x[2:]], "line 2: Expected"),
    "not UTF-8": (lambda x: [*x[:2], "\udcff\n", *x[3:]], "line 3: "),
    "empty line": (lambda x: [*x[:2], "\n", *x[2:]], "line 3: "),
    "cut in a line": (lambda x: [*x[:-2], x[-2][:9]], "line 13 is cut off"),
    "cut behind a line": (lambda x: x[:-1], "line 13: the file ends without its last row"),
    "empty": (lambda _: [], "the file: not the head"),
    "no head": (lambda x: x[1:], "line 1: not the head"),
    "another version": (lambda x: [changed(x[0], version=9), *x[1:]], "line 1: not the head"),
    "second head": (lambda x: [x[0], x[0], *x[1:]], "line 2: a second head"),
    "behind the end": (lambda x: [*x, x[1]], "line 15: nothing may stand behind"),
    "a line is missing": (lambda x: [*x[:3], *x[4:]], "line 13: it promises 2 queues, 10 messages"),
    "another body": (
        lambda x: [*x[:2], changed(x[2], body="eA=="), *x[3:]],
        "line 14: it promises",
    ),
    "out of order": (lambda x: [*x[:2], x[3], x[2], *x[4:]], "line 4: message"),
    "of another queue": (lambda x: [*x[:2], x[8], *x[3:]], "line 3: the message is not behind"),
    "twice": (lambda x: [*x[:7], x[1], *x[7:]], "line 8: the queue"),
    "marker with a body": (
        lambda x: [*x[:2], changed(x[2], is_quota_marker=True), *x[3:]],
        "line 3: a quota marker has no body",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_by_line_and_changes_nothing(tmp_path: Path, name: str) -> None:
    damage, text = BAD[name]
    data = "".join(damage(lines_of(tmp_path))).encode("utf-8", "surrogateescape")
    (tmp_path / "bad.jsonl").write_bytes(data)
    second = FileDisk(tmp_path / "second")
    filled(second)
    before = tree(tmp_path / "second")
    with pytest.raises(ImportRefused) as caught:
        imported(second, tmp_path / "bad.jsonl")
    assert str(caught.value).startswith(text), caught.value
    assert tree(tmp_path / "second") == before


def test_a_line_without_an_end_is_not_read_into_memory() -> None:
    with pytest.raises(ImportRefused, match="line 1 is too long"):
        list(read_json(io.BytesIO(b" " * (3 << 20))))


def test_a_queue_that_is_there_is_refused(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path / "first")
    ids = filled(disk)
    exported(disk, tmp_path / "q.jsonl")
    before = tree(tmp_path / "first")
    with pytest.raises(ImportRefused, match=f"line 2: the queue {text_of(ids[0])} is in the store"):
        imported(disk, tmp_path / "q.jsonl")
    assert tree(tmp_path / "first") == before


@pytest.mark.parametrize("size", [0, 3, 1_000, -1, -9])
def test_a_cut_parquet_file_is_refused(tmp_path: Path, size: int) -> None:
    disk = FileDisk(tmp_path / "first")
    filled(disk)
    exported(disk, tmp_path / "q.parquet")
    data = (tmp_path / "q.parquet").read_bytes()
    (tmp_path / "q.parquet").write_bytes(data[:size])
    with pytest.raises(ImportRefused, match="cannot be read as Parquet"):
        imported(FileDisk(tmp_path / "second"), tmp_path / "q.parquet")
    assert tree(tmp_path / "second") == {}


def test_a_strange_parquet_file_is_refused(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), tmp_path / "q.parquet")
    with pytest.raises(ImportRefused, match="other columns"):
        imported(FileDisk(tmp_path / "second"), tmp_path / "q.parquet")


def test_a_name_that_says_nothing_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"\.jsonl, \.json or \.parquet"),
        written(tmp_path / "q.csv"),
    ):
        pass


def test_a_failed_export_leaves_no_file(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path / "first")
    victim = filled(disk)[0]
    flip(message_file(folder_of(tmp_path / "first", victim)), 300)
    before = tree(tmp_path / "first")
    with pytest.raises(JournalDamaged, match="check --repair"):
        exported(disk, tmp_path / "q.jsonl")
    assert list(tmp_path.glob("q.*")) == []
    assert tree(tmp_path / "first") == before


def test_an_import_keeps_what_stands_in_the_place_of_a_queue(tmp_path: Path) -> None:
    """A folder that no row names may be of another node, or of another time."""
    first, second = FileDisk(tmp_path / "first"), FileDisk(tmp_path / "second")
    (queue_id, *_) = filled(first)
    exported(first, tmp_path / "one.jsonl")
    opened(second).close()
    place = folder_of(tmp_path / "second", queue_id)
    shutil.copytree(folder_of(tmp_path / "first", queue_id), place)
    there = message_file(place).read_bytes()
    imported(second, tmp_path / "one.jsonl")
    assert contents(second) == contents(first)
    (kept,) = (tmp_path / "second" / "quarantine").rglob("messages.*.log")
    assert kept.read_bytes() == there
    assert len(check(second, OPTIONS, now, unseen).kept) == 1


def test_an_import_that_is_killed_is_all_or_nothing() -> None:
    """At every step: a store with all of it or nothing of it, and the import can be done again."""
    source = MemoryDisk()
    filled(source, queues=2)
    out = io.BytesIO()
    export(source, OPTIONS, now, JsonWriter(out), unseen)
    data = out.getvalue()
    whole = contents(source)
    step = 0
    while True:
        disk = MemoryDisk()
        store = opened(disk)
        local = store.create(b"").id
        store.commit()
        store.close()
        disk.crash_at = disk.steps + step
        try:
            import_rows(disk, OPTIONS, now, lambda: read_json(io.BytesIO(data)), unseen)
            break
        except Crashed:
            disk.crash(random.Random(step), "all" if step % 2 else "some")
        after = contents(disk)
        assert after in ({local: []}, {local: [], **whole}), step
        if after == {local: []}:
            import_rows(disk, OPTIONS, now, lambda: read_json(io.BytesIO(data)), unseen)
        assert contents(disk) == {local: [], **whole}, step
        step += 1
    assert step > 20
