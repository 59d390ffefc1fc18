"""Room: spark. `materialize`: the current state of a table in Parquet, out of the topic that it feeds.

    read     every shard of the topic, from where the last state was up to one moment of all of them
    stage    tasks put what it says of each key into files by bucket
    merge    tasks make a new file of each bucket that something was said of
    commit   the next state names them: one small file, written whole
    clean    what no state names goes

Killed before the commit, a run has changed nothing, and the next one begins at the same place; behind it, the
state is there. There is no other memory: no checkpoint, and nothing on the node.

The proof is the digest of key and seq over the files, against the digests that a witness hears of the table
itself while the run goes on (client/records/witness.py). A table that changes all the time is never asked
for one moment: any moment that the witness saw will do, and each round that follows is another chance.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from moorline.core.sets.digest import Digest
from moorline.core.topic import check_topic
from moorline.errors import ConfigError, ConnectionLost, DriftFound, MessagesGone
from moorline.limits import (
    ARCHIVE_TASK_MESSAGES,
    MATERIALIZE_LOOK_MS,
    MATERIALIZE_NOTE_MS,
    MATERIALIZE_PROOF_MS,
    MATERIALIZED_BUCKETS,
    MATERIALIZED_BUCKETS_MAX,
)
from moorline.spark.jobs import tasks
from moorline.spark.jobs.failures import explained
from moorline.spark.jobs.materialize_tasks import (
    BucketWork,
    Checked,
    FileCheck,
    StagedPart,
    StreamRange,
    check_file,
    merge_bucket,
    stage_range,
)
from moorline.spark.jobs.materialized import LOCK, BucketFile, MaterializedTable, TableState
from moorline.spark.jobs.node_side import opened_streams
from moorline.spark.jobs.patience import Patience, Told, now_ms, silent, wait_for_nodes
from moorline.spark.jobs.table_proof import TableProof
from moorline.spark.jobs.watching import Seen, Stopping, never, nobody
from moorline.spark.planning import Range, ends, firsts, ranges
from moorline.spark.streams import Streams, described

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANEW = "`moor records publish NAME --stop`, then `moor records publish NAME --topic TOPIC`, begins it anew"


class MaterializeOptions(msgspec.Struct, frozen=True):
    """`table` is the name that it is served under; without one nothing is proven."""

    where: str
    source: dict[str, str]
    topic: str
    table: str = ""
    buckets: int = 0
    """0: as the folder has them, or the default for a new one."""
    rebuild: bool = False
    every_s: float = 0.0
    """More than 0: it goes on, and this is the time between two rounds."""
    proof_ms: int = MATERIALIZE_PROOF_MS


class Kept(msgspec.Struct, frozen=True):
    """What a run did. `is_proven` is None where nobody asked for a proof."""

    messages: int
    rounds: int
    rows: int
    snapshot: int
    state: int
    strangers: int = 0
    """Messages of the topic that are none of a published table: they were passed over."""
    is_proven: bool | None = None
    digest: str | None = None
    table_rows: int | None = None
    """As the table said last."""
    damaged: list[str] = []


def materialize(
    spark: "SparkSession",
    options: MaterializeOptions,
    seen: Seen = nobody,
    stopping: Stopping = never,
    told: Told = silent,
) -> Kept:
    """Until all that is stored now is merged and proven; with `every_s`, until `stopping`."""
    target = MaterializedTable(options.where)
    busy = f"another run of `moor pipeline materialize` works on {target.where}: there can be one"
    with target.alone(LOCK, busy), _witnessed(options) as proof:
        state = opened(target, options)
        target.clean()
        run = _Run(spark, options, target, state, proof, seen)
        if options.every_s:
            run.follow(stopping, told)
        else:
            run.catch_up()
        return run.kept()


def opened(target: MaterializedTable, options: MaterializeOptions) -> TableState:
    """Where it goes on: the last state, or one with nothing in it. Refused if it is of something else."""
    check_topic(options.topic)
    if not 0 <= options.buckets <= MATERIALIZED_BUCKETS_MAX:
        raise ConfigError(f"buckets is 1 to {MATERIALIZED_BUCKETS_MAX}, not {options.buckets}")
    if options.rebuild:
        return TableState(
            target.next_number() - 1, options.topic, options.buckets or MATERIALIZED_BUCKETS
        )
    state = target.latest()
    if state is None:
        return TableState(0, options.topic, options.buckets or MATERIALIZED_BUCKETS)
    if state.topic != options.topic:
        raise ConfigError(
            f"{target.where} is kept from the topic {state.topic}, not {options.topic}: give another folder"
        )
    if options.buckets not in (0, state.buckets):
        raise ConfigError(
            f"{target.where} has {state.buckets} buckets, not {options.buckets}: --rebuild makes it anew"
        )
    return state


@contextmanager
def _witnessed(options: MaterializeOptions) -> Iterator[TableProof | None]:
    if not options.table:
        yield None
        return
    proof = TableProof(options.source, options.table)
    try:
        proof.witness()
        yield proof
    finally:
        proof.close()


def check(done: Kept) -> None:
    """Raises if what is kept was not proven to be the table."""
    if done.damaged:
        raise DriftFound(
            f"{len(done.damaged)} files are not as they were written: {done.damaged[0]}: --rebuild reads all "
            "of the topic anew"
        )
    if done.is_proven is False:
        raise DriftFound(
            f"what is kept has {done.rows:,} rows, the table has {done.table_rows or 0:,}, and their digests "
            "differ: is the table still published (`moor records list`)? If it is, --rebuild reads all of "
            "the topic anew"
        )


class _Run:
    def __init__(
        self,
        spark: "SparkSession",
        options: MaterializeOptions,
        target: MaterializedTable,
        state: TableState,
        proof: TableProof | None,
        seen: Seen,
    ) -> None:
        self._spark = spark
        self._options = options
        self._target = target
        self._state = state
        self._proof = proof
        self._seen = seen
        self._messages = self._strangers = self._rounds = 0
        self._is_proven = False
        self._damaged: list[str] = []
        self._has_begun = bool(state.snapshot)
        self._noted_ms = now_ms()
        self._is_noted = True
        """Whether the state is written down; how far shards were read that said nothing may not be."""

    # --- rounds -----------------------------------------------------------------------------------

    def catch_up(self) -> None:
        self.advance()
        deadline_ms = now_ms() + self._options.proof_ms
        while self._proof is not None and not self._look() and now_ms() < deadline_ms:
            # Its publisher is a moment behind the table, or the table changes all the time.
            time.sleep(MATERIALIZE_LOOK_MS / 1_000)
            self.advance()
        self._note()
        self._check_files()

    def follow(self, stopping: Stopping, told: Told) -> None:
        patience = Patience(now_ms())
        while not stopping():
            begun_ms = now_ms()
            try:
                with explained():
                    self.advance()
                if now_ms() - self._noted_ms >= MATERIALIZE_NOTE_MS:
                    self._note()
            except ConnectionLost as error:
                wait_for_nodes([self._options.source], error, patience, told, stopping)
                continue
            next_ms = begun_ms + round(self._options.every_s * 1_000)
            while not stopping() and now_ms() < next_ms:
                self._look()
                time.sleep(MATERIALIZE_LOOK_MS / 1_000)
        self._note()
        self._check_files()

    def advance(self) -> None:
        """One round: everything that is stored at this moment."""
        state = self._state
        streams = opened_streams(self._options.source)
        try:
            bounds = described(streams, {}).bounds
            upto = ends(bounds)
            start = firsts(bounds) | state.reached
            extents = described(streams, start).shard_extents
            found, gaps = ranges(start, upto, extents)
            items = self._items(streams, found)
        finally:
            streams.close()
        parts = tasks.run(self._spark, stage_range, items, StagedPart, self._seen)
        self._messages += sum(part.messages for part in parts)
        self._strangers += sum(part.strangers for part in parts)
        if parts or self._is_other_salt():
            self._merge(parts, upto, [str(gap) for gap in gaps])
        if not self._has_begun:
            raise MessagesGone(
                f"{self._options.topic} has no beginning of a table: if retention has taken it, {ANEW}; "
                "if nothing was published there yet, `moor records publish`"
            )

    def _items(self, streams: Streams, found: list[Range]) -> list[StreamRange]:
        run = uuid.uuid4().hex
        return [
            StreamRange(
                self._target.where,
                run,
                self._options.source,
                list(streams.addresses(one.stream.home)),
                one.stream,
                first,
                min(first + ARCHIVE_TASK_MESSAGES, one.upto),
                self._options.topic,
                self._state.buckets,
            )
            for one in found
            for first in range(one.first, one.upto, ARCHIVE_TASK_MESSAGES)
        ]

    # --- the next state ---------------------------------------------------------------------------

    def _merge(self, parts: list[StagedPart], reached: dict[str, int], gaps: list[str]) -> None:
        state = self._state
        snapshot = max([state.snapshot, *(part.snapshot for part in parts)])
        begun = {number: table for part in parts for number, table in part.begun}
        if snapshot != state.snapshot and snapshot not in begun:
            # Rows without their beginning: how many were before them, nobody can tell.
            raise MessagesGone(
                f"the beginning of what {self._options.topic} says now is gone: {ANEW}"
            )
        if gaps and snapshot == state.snapshot and state.snapshot:
            raise MessagesGone(f"gone before they were merged: {'; '.join(gaps)}: {ANEW}")
        salt = self._salt()
        files = self._merged(parts, snapshot, salt)
        reached = {**state.reached, **reached}
        if files is None and salt == state.salt and snapshot == state.snapshot:
            # Messages of others. To have read them is nothing that would be worth a state of its own.
            self._is_noted = self._is_noted and reached == state.reached
            self._state = msgspec.structs.replace(state, reached=reached)
            return
        kept = state.files if files is None else files
        self._state = msgspec.structs.replace(
            state,
            snapshot=snapshot,
            table=begun.get(snapshot, state.table),
            reached=reached,
            files=[file for file in kept if file.rows],
            salt=salt,
        )
        self._has_begun = bool(snapshot)
        self._rounds += 1
        self._is_proven = self._is_noted = False
        self._note()

    def _note(self) -> None:
        """The moment at which everything since the last one happens."""
        if self._is_noted:
            return
        self._state = msgspec.structs.replace(
            self._state, number=self._state.number + 1, made_ms=time.time_ns() // 1_000_000
        )
        self._target.commit(self._state)
        self._is_noted, self._noted_ms = True, now_ms()
        self._target.clean()

    def _merged(self, parts: list[StagedPart], snapshot: int, salt: str) -> list[BucketFile] | None:
        """The files of the next state; None where they are those of this one."""
        state = self._state
        staged: dict[int, list[tuple[str, list[int]]]] = {}
        for part in parts:
            groups: dict[int, list[int]] = {}
            for bucket, group in part.groups:
                groups.setdefault(bucket, []).append(group)
            for bucket, some in groups.items():
                staged.setdefault(bucket, []).append((part.path, some))
        before = {file.bucket: file for file in state.files}
        # Of another snapshot, no row stays; with another salt, every digest is another.
        touched = {*staged}
        if snapshot != state.snapshot or salt != state.salt:
            touched |= before.keys()
        if not touched:
            return None
        works = [
            BucketWork(
                self._target.where,
                state.number + 1,
                bucket,
                snapshot,
                before.get(bucket),
                staged.get(bucket, []),
                salt,
            )
            for bucket in sorted(touched)
        ]
        made = tasks.run(self._spark, merge_bucket, works, BucketFile, self._seen)
        assert {file.bucket for file in made} == touched, "every bucket has its file"
        kept = [file for bucket, file in before.items() if bucket not in touched]
        return sorted([*kept, *made], key=lambda file: file.bucket)

    # --- the proof --------------------------------------------------------------------------------

    def _salt(self) -> str:
        return "" if self._proof is None else self._proof.salt()

    def _is_other_salt(self) -> bool:
        return self._has_begun and self._salt() != self._state.salt

    def _look(self) -> bool:
        if self._proof is not None and not self._is_proven:
            digest = self._state.digest()
            self._is_proven = digest is not None and self._proof.has_seen(digest)
        return self._is_proven

    def _check_files(self) -> None:
        """All files of the state: those that no run has read since they were written, too."""
        items = [FileCheck(self._target.where, file) for file in self._state.files]
        found = tasks.run(self._spark, check_file, items, Checked, self._seen)
        self._damaged = sorted(one.problem for one in found if one.problem is not None)

    def kept(self) -> Kept:
        digest: Digest | None = self._state.digest()
        latest = None if self._proof is None else self._proof.latest()
        return Kept(
            self._messages,
            self._rounds,
            self._state.rows,
            self._state.snapshot,
            self._state.number,
            self._strangers,
            None if self._proof is None else self._is_proven and not self._damaged,
            None if digest is None else str(digest),
            None if latest is None else latest.count,
            self._damaged,
        )
