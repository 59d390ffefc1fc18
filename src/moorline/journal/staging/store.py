"""Room: journal/staging. Staged rows, and the log of the decisions to publish them.

    staging/commits                 the commit log
    staging/stages/<32 hex>.stage   what one attempt of one task wrote

The files of stages are journal.staging.stage_file. Those that are written are open, up to so many: one
that waits for long is closed, and opened again for what comes next. So however many stages there are, and
whoever left them, they take no more descriptors. The log (journal.staging.commit_log) is written anew at
every
start, and when it has grown, with what matters of it.

Everything here is synchronous; one thread calls it.
"""

import logging
import secrets
from collections.abc import Callable, Container, Generator
from typing import NamedTuple

from moorline.errors import (
    CallFailed,
    LimitReached,
    Malformed,
    MoorlineError,
    NotFound,
    TooLarge,
)
from moorline.journal.disk import Disk, DiskFile
from moorline.journal.handles import Handles
from moorline.journal.staging.commit_log import (
    Advanced,
    CommitLog,
    Completed,
    Decided,
    Fence,
    Record,
)
from moorline.journal.staging.stage_file import Chunk, Look, Stage, StageFacts, begun, read_stage
from moorline.limits import (
    COMMIT_LOG_BYTES_MAX,
    STAGE_FILES_OPEN_MAX,
    STAGE_KEPT_S,
    STAGED_QUERIES_MAX,
    STAGED_QUERY_KEPT_S,
    STAGES_MAX,
)
from moorline.wire.staging import ROWS_MAX, STAGE_BYTES, TOPICS, key_before, query_name

log = logging.getLogger("moorline.journal")

STAGES, COMMITS, SUFFIX = "stages", "commits", ".stage"


class StagePosition(NamedTuple):
    """How far the publishing of a decision has come: rows before `row` of the stage at `stage`."""

    stage: int = 0
    row: int = 0


def queries_under_way(disk: Disk) -> list[str]:
    """Queries with a commit to topics that is decided and not published to its end; changes nothing."""
    store = StagingStore(disk, lambda: 0)
    store.read_decisions()
    return [
        query
        for query, (decided, _) in store.pending.items()
        if decided.target == TOPICS or decided.aside
    ]


class StagingStore:
    """The stages and the decisions of a node."""

    def __init__(
        self,
        disk: Disk,
        now_s: Callable[[], int],
        *,
        expiry_s: Callable[[], int] | None = None,
        sync: bool = True,
        draw: Callable[[int], bytes] = secrets.token_bytes,
        files_max: int = STAGE_FILES_OPEN_MAX,
    ) -> None:
        self._disk = disk
        self._now_s = now_s
        self._expiry_s = expiry_s or now_s
        self._sync = sync
        self._draw = draw
        self._stages: dict[bytes, Stage] = {}
        self._files = Handles(disk, files_max)
        self._fences: dict[str, tuple[int, int]] = {}
        self.pending: dict[str, tuple[Decided, StagePosition]] = {}
        """By query: what is decided and not published to its end."""
        self._log = CommitLog(disk, COMMITS, sync=sync, draw=draw)

    # --- start and stop ---------------------------------------------------------------------------

    def open(self) -> None:
        """Recovery: what is left in `pending` is to be published now."""
        self._disk.make_folders(STAGES)
        if self._sync:
            self._disk.sync_folder("")
        self.read_decisions()
        self._compact()
        decided = {
            f"{stage.hex()}{SUFFIX}" for one, _ in self.pending.values() for stage in one.stages
        }
        for name in self._disk.list_folder(STAGES):
            self._find_stage(name, decided)
        self.remove_leftovers()

    def read_decisions(self) -> None:
        for record in self._log.read():
            self._apply(record)

    def close(self) -> None:
        for stage in [one for one, facts in self._stages.items() if not facts.is_closed]:
            self.discard(stage)
        self._files.close()
        self._log.close()

    def _find_stage(self, name: str, decided: Container[str]) -> None:
        path = f"{STAGES}/{name}"
        stage = read_stage(self._disk, path) if name.endswith(SUFFIX) else None
        if stage is not None:
            self._stages[bytes.fromhex(name.removesuffix(SUFFIX))] = stage
        elif name not in decided:
            # One that is decided was closed, so somebody damaged it: what is left of it stays.
            self._disk.remove(path)

    # --- stages -----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._stages)

    def begin(self, query: str, batch: int, partition: int, attempt: int, target: int) -> bytes:
        """A new stage; its name."""
        if len(self._stages) >= STAGES_MAX:
            raise LimitReached(
                f"the node has {STAGES_MAX} stages that nobody committed; they go after a day"
            )
        name = self._draw(STAGE_BYTES)
        facts = StageFacts(query, batch, partition, attempt, target, self._now_s())
        stage, head = begun(f"{STAGES}/{name.hex()}{SUFFIX}", facts)
        file = self._files.get(stage.path, create=True)
        self._stages[name] = stage
        try:
            file.append(head)
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
            stage.append(self._file_of(stage), rows, count)
        return stage.count

    def finish(self, name: bytes, count: int, hash_: bytes) -> None:
        """The stage is whole, and durable when this returns."""
        stage = self._open(name)
        stage.hash = stage.hasher.digest()
        if (stage.count, stage.hash) != (count, hash_):
            raise Malformed(f"the stage has {stage.count} rows, and not those {count} of its task")
        file = self._file_of(stage)
        stage.append_end(file)
        if self._sync:
            # All of the file, also what was written before it was closed in between.
            file.sync()
            self._disk.sync_folder(STAGES)
        self._files.forget(stage.path)
        stage.is_closed = True

    def discard(self, name: bytes) -> None:
        """Gives a stage up; one that is gone already is fine."""
        stage = self._stages.pop(name, None)
        if stage is None:
            return
        self._files.forget(stage.path)
        if self._disk.exists(stage.path):
            self._disk.remove(stage.path)

    def chunks(self, name: bytes, first_row: int = 0) -> Generator[Chunk, None, None]:
        """The chunks of a closed stage, from the one with that row on."""
        return self._found(name).chunks(self._disk, first_row)

    def remove_leftovers(self) -> int:
        """Removes leftovers: stages too old, and of batches that are published; forgets old queries."""
        now_s = self._expiry_s()
        decided = {name for one, _ in self.pending.values() for name in one.stages}
        gone = [
            name
            for name, stage in self._stages.items()
            if stage.is_closed
            and name not in decided
            and (
                stage.facts.created_s < now_s - STAGE_KEPT_S
                or self.is_decided(stage.facts.query, stage.facts.batch)
            )
        ]
        for name in gone:
            self.discard(name)
        self._forget_queries(now_s)
        return len(gone)

    def _file_of(self, stage: Stage) -> DiskFile:
        try:
            return self._files.get(stage.path, create=False)
        except FileNotFoundError:
            raise stage.damaged(0) from None

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

    def is_decided(self, query: str, batch: int) -> bool:
        """Whether a batch was written already: its commit, or that of a later one, is decided."""
        return batch <= self.last_batch(query)

    def last_batch(self, query: str) -> int:
        """The last batch that was decided, whether or not it is published to its end; -1 for none."""
        # A batch that an older program committed is not committed once more.
        return max(self._last_batch(query), self._last_batch(key_before(query)))

    def _last_batch(self, query: str) -> int:
        pending = self.pending.get(query)
        return pending[0].batch if pending else self._fences.get(query, (-1, 0))[0]

    def check_stages(
        self,
        query: str,
        batch: int,
        stages: list[tuple[bytes, int, bytes]],
        look: Look | None = None,
    ) -> int:
        """Refuses what must not be decided; the target of the stages. Every byte is read, once, and `look`
        sees it."""
        partitions: set[int] = set()
        targets: set[int] = set()
        for name, count, hash_ in stages:
            stage = self._found(name)
            facts = stage.facts
            if not stage.is_closed:
                raise NotFound("a stage that is not closed cannot be committed")
            if facts.query != query:
                # Of which one is not said: it may be another principal's.
                raise CallFailed(f"a stage that is not of {query_name(query)}")
            if facts.batch != batch:
                shown = query_name(query)
                raise CallFailed(f"a stage of {shown}/{facts.batch}, not {shown}/{batch}")
            if facts.partition in partitions:
                raise CallFailed(f"partition {facts.partition} has two stages in one commit")
            if (stage.count, stage.hash) != (count, hash_):
                raise CallFailed(f"the stage of partition {facts.partition} is another than staged")
            stage.check(self._disk, look)
            partitions.add(facts.partition)
            targets.add(facts.target)
        if len(targets) > 1:
            raise CallFailed("one commit publishes to topics or to queues, not to both")
        return targets.pop() if targets else 0

    def decide(
        self, query: str, batch: int, target: int, names: list[bytes], aside: str = ""
    ) -> Decided:
        """The decision is durable when this returns. After an error nobody knows: the node must end."""
        assert query not in self.pending, "one decision of a query at a time"
        assert not self.is_decided(query, batch), "this batch is decided"
        in_order = sorted(names, key=lambda name: self._stages[name].facts.partition)
        decided = Decided(query, batch, target, in_order, self._now_s(), aside)
        self._write(decided)
        return decided

    def advance(self, query: str, position: StagePosition) -> None:
        """So much is published, durably. A node that starts here goes on from there."""
        self._write(Advanced(query, position.stage, position.row))

    def complete(self, query: str) -> None:
        """All is published: the stages go."""
        decided, _ = self.pending[query]
        self._write(Completed(query, self._now_s()))
        for name in decided.stages:
            self.discard(name)
        self._forget_queries(self._expiry_s())
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
                self.pending[record.query] = (record, StagePosition())
            case Advanced():
                decided, _ = self.pending[record.query]
                self.pending[record.query] = (decided, StagePosition(record.place, record.row))
            case Completed():
                decided, _ = self.pending.pop(record.query)
                # At the end again: the first are those that have been quiet for longest.
                self._fences.pop(record.query, None)
                self._fences[record.query] = (decided.batch, record.time_s)

    def _forget_queries(self, now_s: int) -> None:
        while self._fences:
            query, (_, time_s) = next(iter(self._fences.items()))
            if len(self._fences) <= STAGED_QUERIES_MAX and time_s >= now_s - STAGED_QUERY_KEPT_S:
                break
            del self._fences[query]

    def _write(self, record: Record) -> None:
        self._log.write(record)
        self._apply(record)

    def _compact(self) -> None:
        """The same state in as few records as it needs."""
        self._forget_queries(self._expiry_s())
        records: list[Record] = [
            Fence(query, batch, time_s) for query, (batch, time_s) in self._fences.items()
        ]
        for decided, position in self.pending.values():
            records += [decided, Advanced(decided.query, position.stage, position.row)]
        self._log.rewrite(records)
