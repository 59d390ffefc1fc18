"""Room: resolver. Who watches which globs: all watches of a node, and their bounds.

What changes is handed to those whose globs begin at or above it, and matched and told later
(resolver/watcher.py): a change costs the loop its levels here, not what others watch by. Each path is judged
for each reader: who may not list it does not hear of it.
"""

from collections.abc import Iterable

from moorline.core.directory.glob import Glob
from moorline.core.directory.path import parent_of
from moorline.core.directory.registry import Changed
from moorline.errors import AlreadyThere, LimitReached
from moorline.limits import (
    WATCHES_MAX,
    WATCHES_PER_PRINCIPAL_MAX,
    WATCHES_PER_SESSION_MAX,
)
from moorline.net.session import Session
from moorline.resolver.watcher import Batch, MayList, Pending, Watch, Watcher
from moorline.resolver.whose import whose


class Watches:
    """All of a node."""

    def __init__(self, may_list: MayList) -> None:
        self._may_list = may_list
        self._watchers: dict[str, Watcher] = {}
        self._by_root: dict[str, dict[str, Watcher]] = {}
        """Who watches globs that begin there, by their names."""
        self._by_session: dict[Session, dict[int, Watch]] = {}
        self._pending = Pending()
        self._number = 0
        """Of the last batch of changes."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, session: Session, number: int, glob: Glob) -> None:
        own = self._by_session.get(session)
        if own is None:
            own = self._by_session[session] = {}
            session.at_end(lambda: self._forget(session))
        if number in own:
            raise AlreadyThere(
                f"this connection watches {own[number].glob.text[:80]!r} under the number {number}: each "
                "call has a number of its own"
            )
        if len(own) >= WATCHES_PER_SESSION_MAX:
            raise LimitReached(f"this connection watches {len(own)} globs: unwatch some first")
        name = whose(session)
        watcher = self._watchers.get(name)
        if watcher is not None and watcher.count >= WATCHES_PER_PRINCIPAL_MAX:
            raise LimitReached(
                f"{name} watches {watcher.count} globs on this node: unwatch some first"
            )
        if self._count >= WATCHES_MAX:
            raise LimitReached(f"{self._count} globs are watched on this node: try again later")
        if watcher is None:
            principal = session.rights.principal
            watcher = self._watchers[name] = Watcher(principal, self._may_list, self._pending)
        watch = own[number] = Watch(session, number, glob, self._number)
        watcher.add(watch)
        self._by_root.setdefault(glob.root, {})[name] = watcher
        self._count += 1

    def remove(self, session: Session, number: int) -> bool:
        watch = self._by_session.get(session, {}).pop(number, None)
        if watch is None:
            return False
        self._drop(watch)
        return True

    def close(self) -> None:
        for watcher in self._watchers.values():
            watcher.close()

    def tell(self, changed: Changed) -> None:
        """Hands it to all who may watch it."""
        if self._by_root:
            self._number += 1
            self._hand_out(changed.added, is_there=True)
            self._hand_out(changed.removed, is_there=False)

    def _hand_out(self, paths: Iterable[str], *, is_there: bool) -> None:
        below: dict[str, list[str]] = {}
        for path in paths:
            at = path
            while True:
                # What is watched begins at a root: only those at and above the path can match.
                if at in self._by_root:
                    below.setdefault(at, []).append(path)
                if at == "/":
                    break
                at = parent_of(at)
        for root, some in below.items():
            batch = Batch(self._number, root, some, is_there)
            for watcher in self._by_root[root].values():
                watcher.put(batch)

    def _forget(self, session: Session) -> None:
        for watch in self._by_session.pop(session, {}).values():
            self._drop(watch)

    def _drop(self, watch: Watch) -> None:
        name, root = whose(watch.session), watch.glob.root
        watcher = self._watchers[name]
        watcher.drop(watch)
        if not watcher.watches_at(root):
            del self._by_root[root][name]
            if not self._by_root[root]:
                del self._by_root[root]
        if not watcher.count:
            watcher.close()
            del self._watchers[name]
        self._count -= 1
