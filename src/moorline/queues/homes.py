"""Room: queues. Where a queue is that is not here: of which home, and which node has that home now.

    here?  ──yes──►  this node's, whatever its id ends with
      │ no
      └──►  an exception in the catalog?  ──yes──►  the home that it names
                │ no
                └──►  the home whose number the id ends with, if there is one

An id that is older than the numbers may end with one by chance. No harm comes of it: the node that has the
queue finds it before anybody is asked, and to all others the exception says more than the id.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence

from moorline.catalog.homes import HomeRow, Homes
from moorline.core.access.right import SUBSCRIBE
from moorline.errors import Elsewhere, HomeAway, MoorlineError, NotFound
from moorline.ids import home_number
from moorline.limits import HOME_ADDRESSES_MAX, HOMES_AGAIN_MS, HOMES_ASKED_MAX, HOMES_KEPT_MS
from moorline.net.clock import monotonic_ms
from moorline.net.session_rights import SessionRights

log = logging.getLogger("moorline.queues")

NOT_HERE = "there is no queue of that id"

HOMES = "/homes"
"""Where resolvers tell of homes; whoever is denied `s` there learns nothing of them here either."""


class QueueHomes:
    """What a node knows of all homes; the rows are asked anew when they are old."""

    def __init__(
        self, homes: Homes, number: bytes, now_ms: Callable[[], int] = monotonic_ms
    ) -> None:
        self._homes = homes
        self._number = number
        self._now_ms = now_ms
        self._rows: dict[bytes, HomeRow] = {}
        self._asked_ms: int | None = None
        self._unknown = asyncio.Event()
        """Somebody asked for a home that is not known, or away: it may be new, or back."""
        self._waiting: list[asyncio.Future[None]] = []
        """Those who wait for the next look."""

    async def home_of(self, queue_ids: Sequence[bytes]) -> dict[bytes, HomeRow]:
        """The homes of queues that are not here; an id that no home has is left out.

        One statement for the exceptions of `HOMES_ASKED_MAX` queues, if any home has some, and one for the
        homes if those that are known are old or do not say it all.
        """
        is_fresh = await self._look_if_old()
        numbers = {queue_id: home_number(queue_id) for queue_id in queue_ids}
        if not is_fresh and not self._tell(numbers.values()):
            await self._look()
            is_fresh = True
        if any(row.has_exceptions for row in self._rows.values()):
            for first in range(0, len(queue_ids), HOMES_ASKED_MAX):
                asked = queue_ids[first : first + HOMES_ASKED_MAX]
                numbers |= await self._homes.exceptions_of(asked)
            if not is_fresh and not self._tell(numbers.values()):
                await self._look()
        rows = self._rows
        return {queue_id: rows[number] for queue_id, number in numbers.items() if number in rows}

    def _tell(self, numbers: Iterable[bytes]) -> bool:
        """Whether what is known will do: a home that is not in it may be new.

        Neither will it do for our own number: the queue is not here, so there should be an exception.
        """
        return all(number in self._rows and number != self._number for number in numbers)

    def absence(self, rights: SessionRights, queue_id: bytes) -> NotFound | HomeAway:
        """What a client is told of a queue that is not here, by what is known without asking anybody."""
        row = self._rows.get(home_number(queue_id))
        if row is None or not row.is_alive:
            self._unknown.set()
        return self._told(rights, row, "by its id it is")

    def knows(self, queue_id: bytes) -> bool:
        """Whether the end of its id is the number of a home that is known."""
        number = home_number(queue_id)
        return number in self._rows or number == self._number

    async def looked(self) -> None:
        """Returns when the catalog was asked behind this moment, or could not be: by the one who looks for
        everybody, so that whoever invents ids has it asked no more often."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._unknown.set()
        await waiter

    async def whereabouts(self, rights: SessionRights, queue_id: bytes) -> NotFound | HomeAway:
        """The same for one who may wait for the catalog: it knows of queues whose ids do not say it."""
        try:
            row = (await self.home_of([queue_id])).get(queue_id)
        except (MoorlineError, OSError, TimeoutError):
            return self.absence(rights, queue_id)
        return self._told(rights, row, "it is")

    async def numbers_elsewhere(
        self, rights: SessionRights, queue_ids: Sequence[bytes]
    ) -> dict[bytes, bytes]:
        """Of queues that are not here, those that other homes have, with the numbers of these. The node
        of such a home may be away."""
        found = await self.home_of(queue_ids)
        hidden = {
            number
            for number in {row.number for row in found.values()}
            if number == self._number or rights.denied(SUBSCRIBE, f"{HOMES}/{number.hex()}")
        }
        return {one: row.number for one, row in found.items() if row.number not in hidden}

    def _told(self, rights: SessionRights, row: HomeRow | None, how: str) -> NotFound | HomeAway:
        """The redirect to a home, for whoever may find homes by a resolver. It says nothing of the queue."""
        if row is None or row.number == self._number:
            return NotFound(NOT_HERE)
        if rights.denied(SUBSCRIBE, f"{HOMES}/{row.number.hex()}"):
            return NotFound(NOT_HERE)
        if not row.is_alive:
            # Not "there is no such queue": a program would believe it, and give up what is only away.
            return HomeAway(
                f"{how} of the home {row.name!r}, which no node serves now: nothing was done; try again"
            )
        text = f"{NOT_HERE} here: {how} of the home {row.name!r}, which the node {row.node!r} has"
        return Elsewhere(text, row.name, tuple(row.addresses[:HOME_ADDRESSES_MAX]))

    async def look_forever(self) -> None:
        """Keeps what `absence` says up to date."""
        while True:
            self._unknown.clear()
            waiting, self._waiting = self._waiting, []
            if waiting:
                self._asked_ms = None
            try:
                await self._look_if_old()
            except (MoorlineError, OSError, TimeoutError) as error:
                log.info("the homes of other nodes are not known", extra={"error": str(error)})
            except Exception:
                log.exception("the homes of other nodes are not known")
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)
            await asyncio.sleep(HOMES_AGAIN_MS / 1_000)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((HOMES_KEPT_MS - HOMES_AGAIN_MS) / 1_000):
                    await self._unknown.wait()
                    self._asked_ms = None

    async def _look_if_old(self) -> bool:
        """Whether it was so."""
        is_old = self._asked_ms is None or self._now_ms() - self._asked_ms >= HOMES_KEPT_MS
        if is_old:
            await self._look()
        return is_old

    async def _look(self) -> None:
        asked_ms = self._now_ms()
        self._rows = await self._homes.all()
        self._asked_ms = asked_ms
