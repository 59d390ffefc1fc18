"""Room: journal. Staged rows, and the log of the decisions to publish them.

    staging/commits                 the commit log
    staging/stages/<32 hex>.stage   what one attempt of one task wrote

    stage   magic   8 bytes "MOORSTG1"
            length  u32     bytes of the facts
            check   u64     XXH3-64 of the facts
            facts   msgpack of `StageFacts`
    chunk   length  u32     bytes of its rows, never 0
            count   u32     how many rows
            check   u64     XXH3-64 of the rows
            rows    as they came over the wire (wire.staging)
    end     zero    u32     no chunk has this length
            count   u64     rows of all chunks
            hash    16 bytes, XXH3-128 of the rows of all chunks
            check   u64     XXH3-64 of the two

All numbers are little-endian. A stage without an end is garbage. The log (journal.commit_log) is written
anew at every start, and when it has grown, with what matters of it.

Everything here is synchronous; one thread calls it.
"""

import logging
import secrets
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import xxhash

from moorline.errors import (
    CallFailed,
    JournalDamaged,
    Malformed,
    MoorlineError,
    NotFound,
    TooLarge,
)
from moorline.journal.commit_log import (
    Advanced,
    CommitLog,
    Completed,
    Decided,
    Fence,
    Record,
)
from moorline.journal.disk import Disk, DiskFile
from moorline.limits import KIB, MIB
from moorline.wire.staging import HASH_BYTES, ROWS_MAX, STAGE_BYTES

log = logging.getLogger("moorline.journal")

STAGES_MAX = 65_536
"""Stages of a node: a day of leftovers of a busy cluster; a file and some 1 KB each."""

STAGE_KEPT_S = 86_400
"""A stage that nobody has committed by then is a leftover: its driver is gone for good."""

QUERY_KEPT_S = 30 * 86_400
"""A query that has committed nothing for so long is forgotten, and with it what fences its batches."""

QUERIES_MAX = 65_536
"""Queries whose last batch is remembered: some 10 MB; every batch write is one."""

COMMIT_LOG_BYTES_MAX = 16 * MIB
"""The commit log is not compacted below this: some 100,000 commits."""

FACTS_BYTES_MAX = 4 * KIB

STAGES, COMMITS, SUFFIX = "stages", "commits", ".stage"

_STAGE_HEAD = struct.Struct("<8sIQ")
_STAGE_MAGIC = b"MOORSTG1"
_CHUNK = struct.Struct("<IIQ")
_END = struct.Struct(f"<IQ{HASH_BYTES}sQ")
_END_CHECKED = struct.Struct(f"<Q{HASH_BYTES}s")

_check = xxhash.xxh3_64_intdigest


class StageFacts(msgspec.Struct, frozen=True, array_like=True):
    query: str
    batch: int
    partition: int
    attempt: int
    target: int
    created_s: int


_encoder = msgspec.msgpack.Encoder()
_facts_decoder = msgspec.msgpack.Decoder(StageFacts)


class Place(NamedTuple):
    """How far the publishing of a decision has come: rows before `row` of the stage at `stage`."""

    stage: int = 0
    row: int = 0


class Chunk(NamedTuple):
    first_row: int
    upto_row: int
    rows: bytes


class Stage:
    """One stage; `file` is there while it is written."""

    __slots__ = ("count", "facts", "file", "hash", "hasher", "path", "start")

    def __init__(self, path: str, facts: StageFacts, start: int) -> None:
        self.path = path
        self.facts = facts
        self.start = start
        """Where its first chunk begins."""
        self.count = 0
        self.hash = b""
        self.hasher = xxhash.xxh3_128()
        self.file: DiskFile | None = None

    @property
    def is_closed(self) -> bool:
        return self.file is None


class StagingStore:
    """The stages and the decisions of a node."""

    def __init__(
        self,
        disk: Disk,
        now_s: Callable[[], int],
        *,
        sync: bool = True,
        draw: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._disk = disk
        self._now_s = now_s
        self._sync = sync
        self._draw = draw
        self._stages: dict[bytes, Stage] = {}
        self._fences: dict[str, tuple[int, int]] = {}
        self.pending: dict[str, tuple[Decided, Place]] = {}
        """By query: what is decided and not published to its end."""
        self._log = CommitLog(disk, COMMITS, sync=sync, draw=draw)

    # --- start and stop ---------------------------------------------------------------------------

    def open(self) -> None:
        """Recovery: what is left in `pending` is to be published now."""
        self._disk.make_folders(STAGES)
        if self._sync:
            self._disk.sync_folder("")
        for record in self._log.read():
            self._apply(record)
        self._compact()
        for name in self._disk.list_folder(STAGES):
            self._find_stage(name)
        self.expire()

    def close(self) -> None:
        for stage in [one for one, facts in self._stages.items() if not facts.is_closed]:
            self.discard(stage)
        self._log.close()

    def _find_stage(self, name: str) -> None:
        path = f"{STAGES}/{name}"
        stage = _read_stage(self._disk, path) if name.endswith(SUFFIX) else None
        if stage is None:
            self._disk.remove(path)
        else:
            self._stages[bytes.fromhex(name.removesuffix(SUFFIX))] = stage

    # --- stages -----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._stages)

    def begin(self, query: str, batch: int, partition: int, attempt: int, target: int) -> bytes:
        """A new stage; its name."""
        if len(self._stages) >= STAGES_MAX:
            raise CallFailed(
                f"the node has {STAGES_MAX} stages that nobody committed; they go after a day"
            )
        name = self._draw(STAGE_BYTES)
        facts = StageFacts(query, batch, partition, attempt, target, self._now_s())
        encoded = _encoder.encode(facts)
        head = _STAGE_HEAD.pack(_STAGE_MAGIC, len(encoded), _check(encoded)) + encoded
        stage = Stage(f"{STAGES}/{name.hex()}{SUFFIX}", facts, len(head))
        stage.file = self._disk.open(stage.path, create=True)
        self._stages[name] = stage
        try:
            stage.file.append(head)
        except (OSError, MoorlineError):
            self.discard(name)
            raise
        return name

    def facts(self, name: bytes) -> StageFacts:
        return self._found(name).facts

    def append(self, name: bytes, rows: bytes, count: int) -> int:
        """One more chunk; how many rows there are now. After an error the stage is of no use."""
        stage = self._open(name)
        if stage.count + count > ROWS_MAX:
            raise TooLarge(f"a stage has at most {ROWS_MAX} rows")
        if count:
            assert stage.file is not None
            stage.file.append_many([_CHUNK.pack(len(rows), count, _check(rows)), rows])
            stage.hasher.update(rows)
            stage.count += count
        return stage.count

    def finish(self, name: bytes, count: int, hash_: bytes) -> None:
        """The stage is whole, and durable when this returns."""
        stage = self._open(name)
        stage.hash = stage.hasher.digest()
        if (stage.count, stage.hash) != (count, hash_):
            raise Malformed(f"the stage has {stage.count} rows, and not those {count} of its task")
        assert stage.file is not None
        checked = _END_CHECKED.pack(count, hash_)
        stage.file.append(_END.pack(0, count, hash_, _check(checked)))
        if self._sync:
            stage.file.sync()
            self._disk.sync_folder(STAGES)
        stage.file.close()
        stage.file = None

    def discard(self, name: bytes) -> None:
        """Gives a stage up; one that is gone already is fine."""
        stage = self._stages.pop(name, None)
        if stage is None:
            return
        if stage.file is not None:
            stage.file.close()
        if self._disk.exists(stage.path):
            self._disk.remove(stage.path)

    def chunks(self, name: bytes, first_row: int = 0) -> Iterator[Chunk]:
        """The chunks of a closed stage, from the one with that row on."""
        stage = self._found(name)
        assert stage.is_closed
        file = self._disk.open(stage.path, create=False)
        try:
            row, place = 0, stage.start
            while row < stage.count:
                length, count, check = _CHUNK.unpack(_exactly(file, stage, place, _CHUNK.size))
                if row + count > first_row:
                    rows = _exactly(file, stage, place + _CHUNK.size, length)
                    if _check(rows) != check:
                        raise _damaged(stage, place)
                    yield Chunk(row, row + count, rows)
                row += count
                place += _CHUNK.size + length
        finally:
            file.close()

    def expire(self) -> int:
        """Removes leftovers: stages too old, and of batches that are published; forgets old queries."""
        now_s = self._now_s()
        decided = {name for one, _ in self.pending.values() for name in one.stages}
        gone = [
            name
            for name, stage in self._stages.items()
            if stage.is_closed
            and name not in decided
            and (
                stage.facts.created_s < now_s - STAGE_KEPT_S
                or stage.facts.batch <= self.last_batch(stage.facts.query)
            )
        ]
        for name in gone:
            self.discard(name)
        self._forget_queries(now_s)
        return len(gone)

    def _open(self, name: bytes) -> Stage:
        stage = self._found(name)
        if stage.is_closed:
            raise NotFound("this stage is closed")
        return stage

    def _found(self, name: bytes) -> Stage:
        stage = self._stages.get(name)
        if stage is None:
            raise NotFound("there is no such stage: aborted, older than a day, or at another node")
        return stage

    # --- decisions --------------------------------------------------------------------------------

    def last_batch(self, query: str) -> int:
        """The last batch that was decided, whether or not it is published to its end; -1 for none."""
        pending = self.pending.get(query)
        return pending[0].batch if pending else self._fences.get(query, (-1, 0))[0]

    def check(self, query: str, batch: int, stages: list[tuple[bytes, int, bytes]]) -> int:
        """Refuses what must not be decided; the target of the stages. Every byte is read."""
        partitions: set[int] = set()
        targets: set[int] = set()
        for name, count, hash_ in stages:
            stage = self._found(name)
            facts = stage.facts
            if not stage.is_closed:
                raise NotFound("a stage that is not closed cannot be committed")
            if (facts.query, facts.batch) != (query, batch):
                raise CallFailed(f"a stage of {facts.query}/{facts.batch}, not {query}/{batch}")
            if facts.partition in partitions:
                raise CallFailed(f"partition {facts.partition} has two stages in one commit")
            if (stage.count, stage.hash) != (count, hash_):
                raise CallFailed(f"the stage of partition {facts.partition} is another than staged")
            self._check_rows(name, stage)
            partitions.add(facts.partition)
            targets.add(facts.target)
        if len(targets) > 1:
            raise CallFailed("one commit publishes to topics or to queues, not to both")
        return targets.pop() if targets else 0

    def _check_rows(self, name: bytes, stage: Stage) -> None:
        hasher = xxhash.xxh3_128()
        for chunk in self.chunks(name):
            hasher.update(chunk.rows)
        if hasher.digest() != stage.hash:
            raise _damaged(stage, stage.start)

    def decide(self, query: str, batch: int, target: int, names: list[bytes]) -> Decided:
        """The decision is durable when this returns. After an error nobody knows: the node must end."""
        assert query not in self.pending, "one decision of a query at a time"
        assert batch > self.last_batch(query), "this batch is decided"
        in_order = sorted(names, key=lambda name: self._stages[name].facts.partition)
        decided = Decided(query, batch, target, in_order, self._now_s())
        self._write(decided)
        return decided

    def advance(self, query: str, place: Place) -> None:
        """So much is published, durably. A node that starts here goes on from there."""
        self._write(Advanced(query, place.stage, place.row))

    def complete(self, query: str) -> None:
        """All is published: the stages go."""
        decided, _ = self.pending[query]
        self._write(Completed(query, self._now_s()))
        for name in decided.stages:
            self.discard(name)
        self._forget_queries(self._now_s())
        if self._log.size_bytes > COMMIT_LOG_BYTES_MAX:
            self._compact()

    def abort(self, query: str, batch: int, names: list[bytes]) -> int:
        """Removes the stages of a batch that no decision names; how many."""
        decided = self.pending[query][0].stages if query in self.pending else []
        found = [
            name
            for name in names
            if name in self._stages
            and name not in decided
            and (self._stages[name].facts.query, self._stages[name].facts.batch) == (query, batch)
        ]
        for name in found:
            self.discard(name)
        return len(found)

    def _apply(self, record: Record) -> None:
        match record:
            case Fence():
                self._fences[record.query] = (record.batch, record.time_s)
            case Decided():
                self.pending[record.query] = (record, Place())
            case Advanced():
                decided, _ = self.pending[record.query]
                self.pending[record.query] = (decided, Place(record.place, record.row))
            case Completed():
                decided, _ = self.pending.pop(record.query)
                # At the end again: the first are those that have been quiet for longest.
                self._fences.pop(record.query, None)
                self._fences[record.query] = (decided.batch, record.time_s)

    def _forget_queries(self, now_s: int) -> None:
        while self._fences:
            query, (_, time_s) = next(iter(self._fences.items()))
            if len(self._fences) <= QUERIES_MAX and time_s >= now_s - QUERY_KEPT_S:
                break
            del self._fences[query]

    def _write(self, record: Record) -> None:
        self._log.write(record)
        self._apply(record)

    def _compact(self) -> None:
        """The same state in as few records as it needs."""
        self._forget_queries(self._now_s())
        records: list[Record] = [
            Fence(query, batch, time_s) for query, (batch, time_s) in self._fences.items()
        ]
        for decided, place in self.pending.values():
            records += [decided, Advanced(decided.query, place.stage, place.row)]
        self._log.rewrite(records)


def _read_stage(disk: Disk, path: str) -> Stage | None:
    """A stage that was closed; None for one that was not."""
    file = disk.open(path, create=False)
    try:
        size = file.size()
        head = file.read_at(0, _STAGE_HEAD.size)
        if len(head) < _STAGE_HEAD.size or size < _STAGE_HEAD.size + _END.size:
            return None
        magic, length, check = _STAGE_HEAD.unpack(head)
        if magic != _STAGE_MAGIC or length > FACTS_BYTES_MAX:
            return None
        encoded = file.read_at(_STAGE_HEAD.size, length)
        zero, count, hash_, end_check = _END.unpack(file.read_at(size - _END.size, _END.size))
    finally:
        file.close()
    if _check(encoded) != check or zero or _check(_END_CHECKED.pack(count, hash_)) != end_check:
        return None
    stage = Stage(path, _facts_decoder.decode(encoded), _STAGE_HEAD.size + length)
    stage.count, stage.hash = count, hash_
    return stage


def _exactly(file: DiskFile, stage: Stage, place: int, length: int) -> bytes:
    data = file.read_at(place, length)
    if len(data) < length:
        raise _damaged(stage, place)
    return data


def _damaged(stage: Stage, place: int) -> JournalDamaged:
    return JournalDamaged(f"the staged rows in {stage.path} are damaged at byte {place}")
