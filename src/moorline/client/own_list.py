"""Room: client. The list of a service while it is used: is it whole, of which node is it, and what leaves it.

A list that fails its own check is *in doubt* until the next agreement. It may have lost queues, so it takes
none away from the node: what the node has besides comes back into it.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from moorline.client.associations import Associations
from moorline.client.list_thread import ListThread
from moorline.core.sets.id_set import IdSet
from moorline.core.standing import Standing, is_gone, standing
from moorline.errors import CallFailed, ConfigError, OutcomeUnknown, WrongNode
from moorline.ids import ID_BYTES

Refusal = tuple[bytes, str]


class OwnList:
    """Works on the list in its thread. `is_bound` says that the node we reach is its home from now on."""

    def __init__(self, associations: Associations, *, is_bound: bool) -> None:
        self.associations = associations
        self.thread = ListThread(associations)
        self.is_doubtful = False
        self._is_bound = is_bound
        self._node, self._name = b"", ""
        self._standing = Standing.UNKNOWN
        self._is_to_be_bound = False

    async def enter(self, node: bytes, name: str) -> tuple[IdSet, int]:
        """The hashes of a list that is whole and of this node; and what had to be mended in it."""
        self._node, self._name = node, name
        found = await self.thread.run(self.associations.checked)
        mended = found.wrong_hashes + (not found.is_digest_right)
        if mended:
            await self.thread.run(self.associations.mend)
            found = await self.thread.run(self.associations.checked)
        self.is_doubtful = found.is_doubtful
        home, home_name = found.home
        self._standing = standing(home, node, is_empty=found.is_empty)
        if self._is_bound and node:
            self._standing = Standing.HOME
        if self._standing is Standing.ELSEWHERE:
            # Two nodes may well have one name: it is the one that is given to those that ask for none.
            this = "another one of that name" if name == home_name else repr(name)
            raise WrongNode(
                f"{self._path} is the list of the node {home_name!r}, where its queues are, and this is "
                f"{this}: connect to that one; {_BIND}"
            )
        self._is_to_be_bound = self._standing is Standing.HOME and home != node
        if not found.is_empty:
            await self._bind()
        return found.own, mended

    async def settle(self, count: int) -> list[bytes]:
        """Both sides agree: the list is of this node, and whole. Returns what it lost and nobody told."""
        if self._node and self._standing is Standing.UNKNOWN:
            self._standing, self._is_to_be_bound = Standing.HOME, True
            if count:
                await self._bind()
        self.is_doubtful = False
        return await self.thread.run(self.associations.settle)

    def check_restorable(self) -> None:
        """What the node has may come back into the list only where it is known to be its own."""
        if self._standing is not Standing.HOME:
            raise WrongNode(
                f"{self._path} fails its own check, and does not say of which node it is: {_BIND}, and what "
                "is there comes back into it"
            )

    async def let_go(self, refused: Sequence[Refusal]) -> None:
        """What the node refused leaves the list and is set aside; nothing that may be another node's."""
        kept = [queue for queue, code in refused if not is_gone(code, self._standing)]
        if kept:
            raise WrongNode(
                f"{self._path} does not say of which node it is, and {self._name!r} does not know "
                f"{len(kept)} of its queues: nothing was removed; connect to the node that has them; {_BIND}"
            )
        await self.thread.run(self.associations.set_aside, refused)

    async def _bind(self) -> None:
        if self._is_to_be_bound:
            await self.thread.run(self.associations.bind, self._node, self._name)
            self._is_to_be_bound = False

    async def add(self, queues: Sequence[bytes]) -> int:
        check_ids(queues)
        # Before the first queue is in: whoever dies half way must not be taken in elsewhere.
        await self._bind()
        return await self.thread.run(self.associations.add, queues)

    async def remove(self, queues: Sequence[bytes]) -> int:
        return await self.thread.run(self.associations.remove, queues)

    @contextlib.asynccontextmanager
    async def added(self, queue: bytes) -> AsyncIterator[None]:
        """The queue is in the list before the node is asked; if it refuses, it is not."""
        is_new = await self.add([queue])
        try:
            yield
        except OutcomeUnknown:
            # Both sides may have it: the next agreement finds out.
            raise
        except CallFailed:
            if is_new:
                await self.remove([queue])
            raise

    @property
    def _path(self) -> Path | str:
        return self.associations.path


_BIND = (
    "if they were moved here, `moor service repair … --bind`, or `moor.service(…, bind=True)`, makes this "
    "node the list's own"
)


def check_ids(queues: Sequence[bytes]) -> None:
    """What can be no id would stay in the list, and end every connection that sends it."""
    for queue in queues:
        if not can_be_id(queue):
            raise ConfigError(f"the id of a queue is {ID_BYTES} bytes, and not {queue!r:.80}")


def can_be_id(queue: bytes) -> bool:
    return isinstance(queue, bytes) and len(queue) == ID_BYTES
