"""Room: groups. What operators ask of a group: passed on to its Leader, performed once, answered truly.

At the node that is asked, the machine in core/group/operation.py decides what the answer is; here its
steps are
performed. At the node that leads, `perform` takes the ticket of the call in the transaction of its effect.
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import assert_never

from moorline.access.guard import demand
from moorline.catalog.groups import GroupRow
from moorline.catalog.operations import Taking, Ticket, Tickets
from moorline.config.settings import Groups as Settings
from moorline.config.shown import escaped
from moorline.core.access.right import ADMINISTER
from moorline.core.effects import Event
from moorline.core.group.events import Change, End, Kick
from moorline.core.group.leader import LeaderState
from moorline.core.group.operation import (
    AnswerOperator,
    Ask,
    Begun,
    CloseTicket,
    FindLeader,
    LeaderDid,
    LeaderFailed,
    LeaderFound,
    OpenTicket,
    Operation,
    Outcome,
    Settled,
    StepFailed,
    TicketOpened,
    Withdraw,
)
from moorline.errors import CallFailed, ConnectionLost, MoorlineError, NotFound, OutcomeUnknown
from moorline.groups.cursor_commits import row_of
from moorline.groups.find_or_create import cursors_at
from moorline.groups.leader_host import LeaderHost
from moorline.groups.leaders import Leaders
from moorline.groups.rights import Judge, originator_of, rights_of_originator
from moorline.limits import OPERATION_MS_MAX, OPERATOR_LENGTH_MAX
from moorline.net.driver import Driver
from moorline.net.session import Session
from moorline.topics.paths import path_of_group
from moorline.topics.start import start_of
from moorline.wire.group import AskLeader, ChangeGroup, DeleteGroup, KickMember, SeekGroup, Work
from moorline.wire.message import Answer
from moorline.wire.queue import Done

log = logging.getLogger("moorline.groups")


class Operations:
    """Those that this node was asked for, and those that it performs."""

    def __init__(
        self, leaders: Leaders, tickets: Tickets, settings: Settings, judge: Judge
    ) -> None:
        self._leaders = leaders
        self._judge = judge
        self._tickets = tickets
        self._settings = settings

    async def ask(self, session: Session, row: GroupRow, work: Work) -> None:
        """Done when it returns. `OutcomeUnknown`: nobody can say; any other error: it never will be."""
        asking = Asking(self._leaders, self._tickets, self._settings, session, row, work, self)
        await asking.answered()

    async def asked(self, session: Session, call: AskLeader) -> Answer:  # noqa: ARG002
        """Another node passes on what it was asked for."""
        host = self._leaders.led.get(call.reader)
        if host is None or host.leader.epoch != call.epoch:
            raise _fenced()
        group = host.group.name.group
        path = path_of_group(group)
        rights = rights_of_originator(self._judge, call.originator, path)
        demand(rights, ADMINISTER, path, host.group.owner)
        await self.perform(host, Ticket(call.ticket, call.reader, call.epoch), call.work)
        log.info(
            "an operator's call",
            extra={
                "group": str(host.group.name),
                "call_of": type(call.work).__name__,
                "asked_by": call.asked_by,
            },
        )
        return Done(call.call)

    async def perform(self, host: LeaderHost, ticket: Ticket, work: Work) -> None:
        """The Leader's part; the ticket is taken with the effect, or there is none."""
        match work:
            case DeleteGroup():
                # Removed first: a member that is told of it and subscribes again founds a new group.
                _check(await self._tickets.delete(ticket))
                host.post(End("DELETED"))
                await host.stopped
            case SeekGroup():
                await self._seek(host, ticket, work)
            case KickMember():
                await self._kick(host, ticket, work.member)
            case ChangeGroup():
                _check(await self._tickets.change(ticket, deliveries_max=work.deliveries_max))
                host.post(Change(work.deliveries_max))
            case _:
                assert_never(work)

    async def _seek(self, host: LeaderHost, ticket: Ticket, work: SeekGroup) -> None:
        """Exact where nodes answer; wherever else there are streams, the group begins at the start.

        So a node that is away now is no exception: its streams have no place any more, and whoever leads when
        it is back finds the start there. The last seek is the one that counts.
        """
        start = start_of(work.start)
        # Before the places are looked up: what is published from now on is behind the start.
        start_us = start.kept_us(self._leaders.directory.local.clock.start_us())
        # A node that hangs is not to use up the time of the call: it is one that is away.
        cursors = await cursors_at(
            self._leaders.directory, start, within_ms=max(1, self._settings.lease_ms // 2)
        )
        taking = await self._tickets.seek(
            ticket,
            start_us=start_us,
            start_offset=start.offset,
            cursors=[row_of(shard, cursor) for shard, cursor in cursors],
        )
        _check(taking)
        host.post(End("SOUGHT"))
        await host.stopped

    async def _kick(self, host: LeaderHost, ticket: Ticket, member: str) -> None:
        # By the ids of their Borrowers, which are never used again: one that comes meanwhile is not meant.
        views = host.leader.borrowers.values()
        borrowers = [view.id for view in views if member in (view.id, view.member)]
        if not borrowers:
            raise NotFound(f"{member!r} is no member of {host.group.name} now")
        _check(await self._tickets.take(ticket))
        for borrower in borrowers:
            host.post(Kick(borrower))
        if host.leader.state is not LeaderState.LEADING:
            raise OutcomeUnknown(
                f"whether {member!r} is still a member is not known: the Leader of {host.group.name} "
                "has ended just now; look with `moor group show`"
            )


class Asking:
    """One call on its way: runs its machine."""

    def __init__(
        self,
        leaders: Leaders,
        tickets: Tickets,
        settings: Settings,
        session: Session,
        row: GroupRow,
        work: Work,
        operations: Operations,
    ) -> None:
        self._leaders = leaders
        self._tickets = tickets
        self._settings = settings
        self._session = session
        self._row = row
        self._work = work
        self._operations = operations
        self._led_at = ""
        self._asked_by = escaped(session.rights.principal)[:OPERATOR_LENGTH_MAX]
        self._answer: asyncio.Future[AnswerOperator] = asyncio.get_running_loop().create_future()
        self._driver = Driver(
            Operation(
                f"{type(work).__name__} of {row.name}",
                # A Leader that says nothing for as long as its lease is none any more.
                within_ms=settings.lease_ms,
                is_stored=not isinstance(work, KickMember),
            ),
            {
                OpenTicket: self._open,
                FindLeader: self._find,
                Ask: self._ask,
                Withdraw: self._withdraw,
                CloseTicket: self._close,
                AnswerOperator: self._answered,
            },
            self._failed,
        )

    async def answered(self) -> None:
        try:
            self._driver.post(Begun())
            answer = await self._answer
        finally:
            self._driver.close()
        what = type(self._work).__name__
        match answer.outcome:
            case Outcome.DONE:
                log.info(
                    "an operator's call is done",
                    extra={
                        "group": str(self._row.name),
                        "call_of": what,
                        "asked_by": self._asked_by,
                    },
                )
            case Outcome.FAILED:
                if isinstance(answer.error, CallFailed):
                    raise answer.error
                raise CallFailed(
                    f"nothing was done, and nothing will be: {answer.error or self._silence()}; try again"
                )
            case Outcome.UNKNOWN:
                if isinstance(answer.error, OutcomeUnknown):
                    raise answer.error
                raise OutcomeUnknown(
                    f"whether it was done is not known: {answer.error or self._silence()}; look with "
                    "`moor group show` before you ask again"
                )
            case _:
                assert_never(answer.outcome)

    def _silence(self) -> str:
        return (
            f"the group is led by {self._led_at}, which gave no answer within "
            f"{self._settings.lease_ms} ms"
        )

    # --- what the machine asks for ----------------------------------------------------------------

    async def _open(self, _: OpenTicket) -> Event:
        return await _step(self._opened())

    async def _opened(self) -> Event:
        ticket = await self._tickets.open(
            self._row.reader,
            type(self._work).__name__,
            asked_by=self._asked_by,
            asked_at=self._leaders.links.node,
            within_ms=self._settings.lease_ms + OPERATION_MS_MAX,
        )
        return TicketOpened(ticket)

    async def _find(self, _: FindLeader) -> Event:
        return await _step(self._found())

    async def _found(self) -> Event:
        found = await self._leaders.lead(self._row.reader)
        if found is None:
            raise CallFailed(f"nobody can lead {self._row.name} now: try again in a moment")
        if not self._session.is_open:
            # A node that was stopped meanwhile, and whose client has long given up.
            raise ConnectionLost("the client went while its call was at work")
        if isinstance(found, LeaderHost):
            return LeaderFound(self._leaders.links.node, found.leader.epoch)
        return LeaderFound(found.node, found.epoch)

    async def _ask(self, ask: Ask) -> Event:
        reader, self._led_at = self._row.reader, ask.node
        try:
            if ask.node == self._leaders.links.node:
                host = self._leaders.led.get(reader)
                if host is None or host.leader.epoch != ask.epoch:
                    raise _fenced()
                await self._perform(host, Ticket(ask.ticket, reader, ask.epoch))
            else:
                await self._leaders.links.ask(
                    ask.node,
                    lambda call: AskLeader(
                        call,
                        reader,
                        ask.epoch,
                        ask.ticket,
                        self._asked_by,
                        self._work,
                        originator_of(self._session.rights),
                    ),
                    Done,
                    # The machine has a timer of its own, which is sooner.
                    within_ms=self._settings.lease_ms + OPERATION_MS_MAX,
                )
        except CallFailed as error:
            return LeaderFailed(error)
        except (MoorlineError, OSError) as error:
            return LeaderFailed(f"the group is led by {ask.node}, and {error}")
        return LeaderDid()

    async def _perform(self, host: LeaderHost, ticket: Ticket) -> None:
        """To its end, also when the call is answered meanwhile: the members are to hear of it."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def performed() -> None:
            try:
                await self._operations.perform(host, ticket, self._work)
            except (MoorlineError, OSError) as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(None)

        self._leaders.spawn(performed())
        await done

    async def _withdraw(self, withdraw: Withdraw) -> Event:
        return await _step(self._settled(withdraw.ticket))

    async def _settled(self, ticket: int) -> Event:
        # The operator is not to wait until a catalog that hangs is given up.
        try:
            async with asyncio.timeout(self._settings.lease_ms / 1_000):
                return Settled(await self._tickets.withdraw(ticket))
        except TimeoutError:
            return StepFailed("the catalog does not answer")

    def _close(self, close: CloseTicket) -> None:
        self._leaders.spawn(self._closed(close.ticket))

    async def _closed(self, ticket: int) -> None:
        try:
            await self._tickets.withdraw(ticket)
        except (MoorlineError, OSError) as error:
            log.debug("a ticket is forgotten later", extra={"error": str(error)})

    def _answered(self, answer: AnswerOperator) -> None:
        if not self._answer.done():
            self._answer.set_result(answer)

    def _failed(self, error: Exception) -> None:
        """A mistake of ours: then nobody knows how far it came."""
        log.error("an operator's call failed", exc_info=error)
        self._answered(AnswerOperator(Outcome.UNKNOWN, type(error).__name__))


async def _step(step: Awaitable[Event]) -> Event:
    try:
        return await step
    except (MoorlineError, OSError) as error:
        return StepFailed(error)


def _check(taking: Taking) -> None:
    match taking:
        case Taking.TAKEN:
            return
        case Taking.FENCED:
            raise _fenced()
        case Taking.TOO_LATE:
            raise CallFailed("the call was given up before it could be done: try again")
        case _:
            assert_never(taking)


def _fenced() -> CallFailed:
    return CallFailed("the group has another Leader now: try again")
