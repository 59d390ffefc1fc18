"""Room: client. The list of a service while it is used: is it whole, of which homes is it, and what
leaves it.

The list is in parts, one for each home. A part that fails its own check is *in doubt* until the next
agreement about it. It may have lost queues, so it takes none away from the node: what the node has
besides comes back.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from moorline.client.associations import UNSAID, Associations
from moorline.client.list_check import ListCheck
from moorline.client.list_thread import ListThread
from moorline.core.sets.digest import Digest
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.sketch import Words
from moorline.core.standing import Standing, is_gone, standing
from moorline.errors import ConfigError, WrongNode
from moorline.ids import ID_BYTES

Refusal = tuple[bytes, str]


class Home(NamedTuple):
    """A home as a node tells of it."""

    number: bytes
    name: str
    node_id: bytes
    addresses: tuple[str, ...] = ()
    is_alive: bool = True


class OwnList:
    """Works on the list in its thread. `is_bound` says that queues of unknown homes are the node's that
    we reach."""

    def __init__(self, associations: Associations, *, is_bound: bool) -> None:
        self.associations = associations
        self.thread = ListThread(associations)
        self.is_bound = is_bound
        """Whoever entered said that queues of homes that are away were moved to the one here."""
        self._parts: dict[bytes, OwnPart] = {}

    async def enter(self, here: Home, homes: Mapping[bytes, Home]) -> tuple[ListCheck, int]:
        """A list that is whole and whose homes are known; and what had to be mended in it."""
        found = await self.thread.run(self.associations.checked)
        mended = found.wrong_hashes + sum(not part.is_digest_right for part in found.parts.values())
        if mended:
            await self.thread.run(self.associations.mend)
            found = await self.thread.run(self.associations.checked)
        known = {**homes, here.number: here}
        for home, part in found.parts.items():
            # What the node here does not have of a home that is away, it sends back to that part.
            is_moved = self.is_bound and home in known and not known[home].is_alive
            if home in known and home != UNSAID and not is_moved:
                continue
            verdict = standing(part.node, known.values(), is_empty=part.is_empty)
            if self.is_bound and not part.is_empty:
                verdict = here.number
            elif home != UNSAID and verdict == UNSAID and not part.is_empty:
                verdict = None
            if verdict is None:
                raise WrongNode(
                    f"{self.path} has queues of {part.name or text_of_home(home)!r}, which is no home of "
                    f"this cluster: connect to the one that has it; {BIND}"
                )
            if verdict not in (UNSAID, home):
                await self.thread.run(self.associations.merge, home, verdict)
        found = await self.thread.run(self.associations.checked)
        self._parts.clear()
        self.part(here, tries_unsaid=not found.part(UNSAID).is_empty)
        return found, mended

    def part(self, home: Home, *, tries_unsaid: bool = False) -> "OwnPart":
        """The part of that home; at the node that was reached first also what nobody has said a home of."""
        part = self._parts.get(home.number)
        if part is None:
            part = self._parts[home.number] = OwnPart(self, home, tries_unsaid=tries_unsaid)
        return part

    async def take_in(self, away: Home, here: Home) -> bool:
        """What is listed of a home that is away is of the one here from now on; False if nothing is."""
        listed = (await self.digests()).get(away.number)
        if listed is None or not listed.count:
            return False
        await self.thread.run(self.associations.merge, away.number, here.number)
        self._parts.pop(away.number, None)
        return True

    async def remove(self, queues: Sequence[bytes]) -> int:
        return await self.thread.run(self.associations.remove, queues)

    async def digests(self) -> dict[bytes, Digest]:
        return await self.thread.run(self.associations.digests)

    async def homes_of(self, queues: Sequence[bytes]) -> dict[bytes, bytes]:
        """The homes of those that are in the list, where they are known."""
        found = await self.thread.run(self.associations.homes_of, queues)
        return {queue: home for queue, home in found.items() if home != UNSAID}

    @property
    def path(self) -> Path | str:
        return self.associations.path


class OwnPart:
    """What a list has of one home."""

    def __init__(self, whole: OwnList, home: Home, *, tries_unsaid: bool) -> None:
        self.home = home
        self.is_doubtful = False
        self._whole = whole
        self._associations = whole.associations
        self._thread = whole.thread
        self._standing = Standing.UNKNOWN if tries_unsaid else Standing.HOME
        self._is_named = False

    @property
    def numbers(self) -> tuple[bytes, ...]:
        if self._standing is Standing.UNKNOWN:
            return tuple(dict.fromkeys((self.home.number, UNSAID)))
        return (self.home.number,)

    async def enter(self, found: ListCheck) -> IdSet:
        """As it was when the list was checked."""
        part = found.part(*self.numbers)
        self.is_doubtful = part.is_doubtful
        if not part.is_empty:
            await self._name()
        return part.own

    async def id_set(self) -> IdSet:
        return await self._thread.run(self._associations.id_set, *self.numbers)

    def pages(self, own: IdSet, highs: Words) -> Iterable[list[bytes]]:
        return self._associations.queues_of(own, highs, *self.numbers)

    async def settle(self) -> list[bytes]:
        """Both sides agree: all of it is of this home, and whole. Returns what it lost and nobody told."""
        if self._standing is Standing.UNKNOWN:
            await self._thread.run(self._associations.merge, UNSAID, self.home.number)
            self._standing = Standing.HOME
            await self._name()
        self.is_doubtful = False
        return await self._thread.run(self._associations.settle, *self.numbers)

    def check_restorable(self) -> None:
        """What the node has may come back into the list only where it is known to be its own."""
        if self._standing is not Standing.HOME:
            raise WrongNode(
                f"{self._whole.path} fails its own check, and does not say of which node it is: {BIND}, and "
                "what is there comes back into it"
            )

    async def let_go(self, refused: Sequence[Refusal]) -> None:
        """What the node refused leaves the list and is set aside; nothing that may be another node's."""
        homes = await self._thread.run(self._associations.homes_of, [one for one, _ in refused])
        kept = [
            queue
            for queue, code in refused
            if homes.get(queue) == UNSAID and not is_gone(code, self._standing)
        ]
        if kept:
            raise WrongNode(
                f"{self._whole.path} does not say of which node it is, and {self.home.name!r} does not know "
                f"{len(kept)} of its queues: nothing was removed; connect to the node that has them; {BIND}"
            )
        await self._thread.run(self._associations.set_aside, refused)

    async def send_home(self, elsewhere: Sequence[tuple[bytes, bytes]]) -> set[bytes]:
        """Queues go to the parts of the homes that the node has named; which these are."""
        by_home: dict[bytes, list[bytes]] = {}
        for queue, home in elsewhere:
            by_home.setdefault(home, []).append(queue)
        for home, queues in by_home.items():
            await self._thread.run(self._associations.move, home, queues)
        return set(by_home)

    async def add(self, queues: Sequence[bytes]) -> int:
        check_ids(queues)
        # Before the first queue is in: whoever dies half way knows whose it is.
        await self._name()
        return await self._thread.run(self._associations.add, queues, self.home.number)

    async def forget(self, queues: Sequence[bytes]) -> None:
        await self._thread.run(self._associations.remove, queues)

    async def _name(self) -> None:
        if not self._is_named and self.home.number:
            home = self.home
            await self._thread.run(self._associations.bind, home.number, home.node_id, home.name)
            self._is_named = True


BIND = (
    "if they were moved here, `moor service repair … --bind`, or `moor.service(…, bind=True)`, makes them "
    "queues of this node"
)


def text_of_home(number: bytes) -> str:
    return number.hex()


def check_ids(queues: Sequence[bytes]) -> None:
    """What can be no id would stay in the list, and end every connection that sends it."""
    for queue in queues:
        if not can_be_id(queue):
            raise ConfigError(f"the id of a queue is {ID_BYTES} bytes, and not {queue!r:.80}")


def can_be_id(queue: bytes) -> bool:
    return isinstance(queue, bytes) and len(queue) == ID_BYTES
