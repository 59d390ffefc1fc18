"""Room: resolver. One who watches: the watches of a principal, what is yet to be matched, and to be told.

    watcher.put(batch)    what changed below a root that it watches; matched and told a moment later

Matching takes a time that the watcher chooses by its globs, so that it is done in slices of its own
principal's: whoever watches costly globs waits for itself. A glob is asked once for each path, however many
watch by it. What waits is bounded twice: changes to be matched, and paths to be told. Where there are more,
the watches hear that something was lost, and match again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Generator
from typing import NamedTuple, Protocol

from moorline.core.directory.glob import Glob
from moorline.limits import (
    WATCH_CHANGES_MAX,
    WATCH_FLUSH_MS,
    WATCH_PENDING_ALL_MAX,
    WATCH_PENDING_PATHS_MAX,
    WATCH_PENDING_PER_PRINCIPAL_MAX,
)
from moorline.net.session import Session
from moorline.net.session_rights import SessionRights
from moorline.net.slices import in_slices
from moorline.wire.resolver import PathsChanged

log = logging.getLogger("moorline.resolver")


class MayList(Protocol):
    def __call__(self, rights: SessionRights, path: str, /) -> bool: ...


class Batch(NamedTuple):
    """Paths at and below a root that came or went together."""

    number: int
    root: str
    paths: list[str]
    is_there: bool


class Pending:
    """How many paths wait to be told, of all watches of a node."""

    def __init__(self) -> None:
        self.count = 0


class Watch:
    __slots__ = ("glob", "is_lost", "is_over", "number", "pending", "session", "since")

    def __init__(self, session: Session, number: int, glob: Glob, since: int) -> None:
        self.session = session
        self.number = number
        self.glob = glob
        self.since = since
        """The last batch that was there before it."""
        self.pending: dict[str, bool] = {}
        """Paths that changed; true if they are there now."""
        self.is_lost = False
        self.is_over = False


class Watcher:
    """All watches of one principal."""

    def __init__(self, principal: str, may_list: MayList, pending: Pending) -> None:
        self._principal = principal
        self._may_list = may_list
        self._pending_of_all = pending
        self._by_root: dict[str, dict[str, set[Watch]]] = {}
        """By the root, and then by the text of the glob."""
        self._batches: deque[Batch] = deque()
        self._unmatched = 0
        """Paths of the batches."""
        self._pending = 0
        self._waiting: set[Watch] = set()
        self._telling: asyncio.Task[None] | None = None
        self.count = 0

    def watches_at(self, root: str) -> bool:
        return root in self._by_root

    def add(self, watch: Watch) -> None:
        globs = self._by_root.setdefault(watch.glob.root, {})
        globs.setdefault(watch.glob.text, set()).add(watch)
        self.count += 1

    def drop(self, watch: Watch) -> None:
        globs = self._by_root[watch.glob.root]
        globs[watch.glob.text].remove(watch)
        if not globs[watch.glob.text]:
            del globs[watch.glob.text]
        if not globs:
            del self._by_root[watch.glob.root]
        watch.is_over = True
        self._clear(watch)
        self._waiting.discard(watch)
        self.count -= 1

    def put(self, batch: Batch) -> None:
        self._unmatched += len(batch.paths)
        self._batches.append(batch)
        if self._unmatched > WATCH_CHANGES_MAX:
            self._lose_all()
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())
            self._telling.add_done_callback(self._told)

    def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()

    # --- matching ---------------------------------------------------------------------------------

    async def _tell(self) -> None:
        """Until all is matched and told."""
        try:
            while self._batches or self._waiting:
                await asyncio.sleep(WATCH_FLUSH_MS / 1_000)
                # What comes while it matches is for the next round: those whom it matched are told before.
                await in_slices(self._matching(len(self._batches)), self._principal)
                await in_slices(self._flushing(), self._principal)
        finally:
            # Here, and not when the task is done: what is put between the two begins another one.
            self._telling = None

    def _told(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a watcher failed", exc_info=error)

    def _matching(self, count: int) -> Generator[None]:
        for _ in range(count):
            if not self._batches:
                return  # they were lost meanwhile
            batch = self._batches.popleft()
            self._unmatched -= len(batch.paths)
            for path in batch.paths:
                for watches in list(self._by_root.get(batch.root, {}).values()):
                    self._match(batch, path, watches)
                    yield

    def _match(self, batch: Batch, path: str, watches: set[Watch]) -> None:
        """For those that watch by the same glob."""
        hearing = [one for one in watches if not one.is_lost and one.since < batch.number]
        if not hearing or not hearing[0].glob.matches(path):
            return
        for watch in hearing:
            if self._may_list(watch.session.rights, path):
                self._note(watch, path, batch.is_there)

    def _note(self, watch: Watch, path: str, is_there: bool) -> None:
        self._waiting.add(watch)
        if path not in watch.pending:
            if (
                len(watch.pending) >= WATCH_PENDING_PATHS_MAX
                or self._pending >= WATCH_PENDING_PER_PRINCIPAL_MAX
                or self._pending_of_all.count >= WATCH_PENDING_ALL_MAX
            ):
                self._lose(watch)
                return
            self._pending += 1
            self._pending_of_all.count += 1
        watch.pending[path] = is_there

    def _lose(self, watch: Watch) -> None:
        self._clear(watch)
        watch.is_lost = True

    def _lose_all(self) -> None:
        self._batches.clear()
        self._unmatched = 0
        for globs in self._by_root.values():
            for watches in globs.values():
                for watch in watches:
                    self._lose(watch)
                    self._waiting.add(watch)

    def _clear(self, watch: Watch) -> None:
        self._pending -= len(watch.pending)
        self._pending_of_all.count -= len(watch.pending)
        watch.pending.clear()

    # --- telling ----------------------------------------------------------------------------------

    def _flushing(self) -> Generator[None]:
        for watch in list(self._waiting):
            if watch.is_over or self._is_flushed(watch):
                self._waiting.discard(watch)
            yield

    def _is_flushed(self, watch: Watch) -> bool:
        """Whether nothing waits any more."""
        if not watch.session.is_open:
            return True
        if not watch.session.writable:
            return False
        added = [path for path, is_there in watch.pending.items() if is_there]
        removed = [path for path, is_there in watch.pending.items() if not is_there]
        watch.session.send(PathsChanged(watch.number, added, removed, watch.is_lost))
        self._clear(watch)
        watch.is_lost = False
        return True
