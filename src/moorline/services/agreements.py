"""Room: services. Agreements that operators ask for: passed on to the service's own session, and waited for.

Only the client knows its own list, so it is the one that compares and repairs. Whoever asks while one is
under way hears what comes out of that one.
"""

import asyncio
import itertools
from collections.abc import Iterable

from moorline.errors import CallFailed, OutcomeUnknown
from moorline.limits import SERVICE_AGREEMENT_MS_MAX
from moorline.net.session import Session
from moorline.wire.message import Answer
from moorline.wire.service import Agreement, AgreementTold, AgreementWanted


class Agreements:
    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[Session, tuple[int, asyncio.Future[Agreement]]] = {}

    async def wanted(self, session: Session) -> Agreement:
        """Asks that session of a service; what came of it."""
        found = self._waiting.get(session)
        if found is None:
            number = next(self._numbers)
            future: asyncio.Future[Agreement] = asyncio.get_running_loop().create_future()
            found = self._waiting[session] = (number, future)
            session.at_end(lambda: self._over(session, number))
            session.send(AgreementWanted(number))
        try:
            async with asyncio.timeout(SERVICE_AGREEMENT_MS_MAX / 1_000):
                answer = await asyncio.shield(found[1])
        except TimeoutError:
            self._over(session, found[0])
            raise OutcomeUnknown(
                "the client of the service has not agreed in time; it may do so later"
            ) from None
        if answer.code:
            raise CallFailed.of(answer.code, f"the client of the service says: {answer.text}")
        return answer

    def told(self, session: Session, calls: list[AgreementTold]) -> Iterable[Answer]:
        """From the service itself; whatever was not asked for means nothing, and nothing is answered."""
        for told in calls:
            waiting = self._waiting.get(session)
            if waiting is not None and waiting[0] == told.number:
                del self._waiting[session]
                if not waiting[1].done():
                    waiting[1].set_result(told.agreement)
        return ()

    def _over(self, session: Session, number: int) -> None:
        waiting = self._waiting.get(session)
        if waiting is None or waiting[0] != number:
            return
        del self._waiting[session]
        if not waiting[1].done():
            waiting[1].set_exception(OutcomeUnknown("the client of the service has gone"))
            waiting[1].exception()  # it may be that nobody waits any more
