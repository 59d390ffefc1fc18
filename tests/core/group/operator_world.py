"""Operators in the simulation of a group: their calls, their tickets, and nodes that are away."""

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from tests.core.group.group_world import (
    CATALOG,
    LEASE_MS,
    CatalogNode,
    Claim,
    Claimed,
    LeadingNode,
    World,
)

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import CancelTimer, Effect, Event, Received, Send, SetTimer, TimerFired
from moorline.core.group.events import Change, End, Kick, ShardsSeen
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
from moorline.core.stream import Shard

STEP_MS = 150
"""What the catalog has not answered by then it is not asked for any longer."""


class Work(msgspec.Struct, frozen=True):
    """What an operator asks for. A seek is to an offset, or to a time where that is None."""

    kind: str
    offset: int | None = None
    member: str = ""
    limit: int = 0

    @property
    def is_stored(self) -> bool:
        return self.kind != "kick"


class Asked(Event, frozen=True):
    """An operator asks a node; calls are numbered by the test."""

    call: int
    work: Work


class Start(msgspec.Struct, frozen=True):
    """Where the group begins in shards that it has no place in."""

    time_ms: int
    offset: int | None = None


class Row(msgspec.Struct):
    """A ticket in the catalog."""

    group: int
    until_ms: int
    is_done: bool = False


@dataclass
class OperatorWorld(World):
    now_ms: int = 0
    within_ms: int = LEASE_MS
    """How long the node that was asked waits for a Leader."""
    group: int = 1
    """The number of the group; one that is deleted is made again at once, from then on."""
    start: Start = field(default_factory=lambda: Start(0, 0))
    times_ms: dict[Shard, list[int]] = field(default_factory=dict)
    """When each message was published."""
    away: set[str] = field(default_factory=set)
    """Nodes whose streams nobody sees."""
    tickets: dict[int, Row] = field(default_factory=dict)
    tickets_opened: int = 0
    effects: dict[int, str] = field(default_factory=dict)
    """Tickets that had their effect, and which."""
    failed: set[int] = field(default_factory=set)
    """Tickets of calls that were answered as failed."""
    answers: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    floors: dict[Shard, int] = field(default_factory=dict)
    """Where the last seek has put the group."""
    is_moved: bool = False
    """It was moved since somebody looked."""
    checks_order: bool = False

    def publish(self, chance: random.Random) -> None:
        super().publish(chance)
        for shard in self.shards:
            times = self.times_ms.setdefault(shard, [])
            times += [self.now_ms] * (self.ends[shard] - len(times))

    def start_in(self, shard: Shard, start: Start) -> int:
        end = bisect_left(self.times_ms.get(shard, []), start.time_ms)
        return end if start.offset is None else min(start.offset, end)

    def shards_seen(self) -> ShardsSeen:
        return ShardsSeen(
            tuple(
                (shard, self.extents(shard), self.start_in(shard, self.start))
                for shard in self.shards
                if shard.home not in self.away
            )
        )

    def come_and_go(self, chance: random.Random, nodes: Sequence[str]) -> None:
        self.away ^= {chance.choice(nodes)}
        self.version += 1

    # --- effects ----------------------------------------------------------------------------------

    def effect(self, ticket: int, kind: str) -> None:
        assert ticket not in self.effects, "I16: a call has two effects"
        assert ticket not in self.failed, "I15: a call that was answered as failed has an effect"
        self.effects[ticket] = kind

    def answer(self, ticket: int, work: Work, outcome: Outcome) -> None:
        self.answers[work.kind, outcome] += 1
        if outcome is Outcome.FAILED:
            assert ticket not in self.effects, "I15: it has had its effect, and is told as failed"
            self.failed.add(ticket)
        elif outcome is Outcome.DONE:
            assert ticket in self.effects, "I15: it is told as done, and nothing was"

    def move(self, cursors: dict[Shard, Cursor], start: Start) -> None:
        """From here on the group has these places and no others."""
        self.cursors = dict(cursors)
        self.start = start
        self.epoch += 1
        self.holder, self.lease_until_ms = "", 0
        self.is_moved = True
        for shard in self.shards:
            known = cursors.get(shard)
            self.floors[shard] = known.offset if known else self.start_in(shard, start)
            for number in range(self.ends[shard]):
                if number < self.floors[shard] or not self.matches((shard, number)):
                    self.missing.discard((shard, number))
                else:
                    self.missing.add((shard, number))


# --- messages -------------------------------------------------------------------------------------


class OpenRow(msgspec.Struct, frozen=True):
    call: int


class RowOpened(msgspec.Struct, frozen=True):
    call: int
    ticket: int
    group: int


class WithdrawRow(msgspec.Struct, frozen=True):
    call: int
    ticket: int


class RowWithdrawn(msgspec.Struct, frozen=True):
    call: int
    is_taken: bool | None


class AskOver(msgspec.Struct, frozen=True):
    """From the node that was asked to the one that leads."""

    call: int
    home: str
    group: int
    epoch: int
    ticket: int
    work: Work


class Take(msgspec.Struct, frozen=True):
    """From the Leader to the catalog, with what a seek has looked up."""

    ask: AskOver
    cursors: tuple[tuple[Shard, Cursor], ...]
    start: Start


class Taken(msgspec.Struct, frozen=True):
    ask: AskOver
    ok: bool


class Did(msgspec.Struct, frozen=True):
    call: int
    ok: bool


class TicketCatalog(CatalogNode):
    """The catalog with tickets."""

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        world = self.world
        assert isinstance(world, OperatorWorld)
        match event:
            case Received(peer, OpenRow(call)):
                world.tickets_opened += 1
                world.tickets[world.tickets_opened] = Row(world.group, now_ms + 2 * LEASE_MS)
                return [Send(peer, RowOpened(call, world.tickets_opened, world.group))]
            case Received(peer, WithdrawRow(call, ticket)):
                row = world.tickets.pop(ticket, None)
                return [Send(peer, RowWithdrawn(call, row.is_done if row else None))]
            case Received(peer, Take() as take):
                ok = self.can_take(world, take.ask, now_ms)
                if ok:
                    self._take(world, take)
                return [Send(peer, Taken(take.ask, ok))]
            case _:
                return super().handle(event, now_ms)

    def can_take(self, world: OperatorWorld, ask: AskOver, now_ms: int) -> bool:
        row = world.tickets.get(ask.ticket)
        return (
            (ask.group, ask.epoch) == (world.group, world.epoch)
            and row is not None
            and row.group == ask.group
            and not row.is_done
            and now_ms < row.until_ms
        )

    def _take(self, world: OperatorWorld, take: Take) -> None:
        ask = take.ask
        asked = (ask.group, ask.epoch)
        assert asked == (world.group, world.epoch), "I16: it was asked of another Leader"
        if ask.ticket in world.tickets:
            world.tickets[ask.ticket].is_done = True
        if ask.work.is_stored:
            world.effect(ask.ticket, ask.work.kind)
        match ask.work.kind:
            case "delete":
                world.group += 1
                world.move({}, Start(world.now_ms))
            case "seek":
                world.move(dict(take.cursors), take.start)


class OperatedNode(LeadingNode):
    """A node that operators ask, and that asks others for them."""

    def __init__(self, name: str, world: World) -> None:
        super().__init__(name, world)
        assert isinstance(world, OperatorWorld)
        self.operators = world
        self.calls: dict[int, tuple[Operation, Work]] = {}
        self.tickets: dict[int, tuple[int, int]] = {}
        """Ticket and group of a call."""
        self.finding: dict[int, None] = {}
        self.looking: dict[int, Take] = {}
        """Seeks whose places were looked up, by their tickets."""
        self.taking: dict[int, None] = {}

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        self.now_ms = now_ms
        match event:
            case Asked(call, work):
                within_ms = self.operators.within_ms
                operation = Operation(f"{call}", within_ms=within_ms, is_stored=work.is_stored)
                self.calls[call] = (operation, work)
                return self._tell(call, Begun())
            case Received(_, RowOpened(call, ticket, group)):
                # One that comes twice, or too late, is nobody's.
                if call in self.calls and call not in self.tickets:
                    self.tickets[call] = (ticket, group)
                return self._tell(call, TicketOpened(ticket))
            case Received(_, RowWithdrawn(call, is_taken)):
                return self._tell(call, Settled(is_taken))
            case Received(_, AskOver() as ask):
                return self._asked(ask)
            case Received(_, Taken(ask, ok)) if ask.ticket in self.taking:
                # A statement is answered once, whatever the net does.
                del self.taking[ask.ticket]
                return self._taken(ask, ok=ok)
            case Received(_, Did(call, ok)):
                return self._tell(call, LeaderDid() if ok else LeaderFailed("refused"))
            case Received(_, Claimed() as claimed):
                return super().handle(event, now_ms) + self._found(claimed)
            case TimerFired(name) if name.startswith("call "):
                _, call_text, timer = name.split(" ", 2)
                failed = timer.startswith("step")
                return self._tell(
                    int(call_text), StepFailed("no answer") if failed else TimerFired(timer)
                )
            case TimerFired(name) if name.startswith("look up "):
                take = self.looking.pop(int(name.split()[2]), None)
                return [] if take is None else self._take(take)
            case _:
                return super().handle(event, now_ms)

    # --- the node that is asked -------------------------------------------------------------------

    def _tell(self, call: int, event: Event) -> list[Effect]:
        if call not in self.calls:
            return []
        operation, work = self.calls[call]
        ticket, group = self.tickets.get(call, (0, 0))
        effects: list[Effect] = []
        # Only the step that is under way may run out of time.
        told = operation.handle(event, self.now_ms)
        operation.check()
        for effect in told:
            step = SetTimer(f"call {call} step", STEP_MS)
            match effect:
                case OpenTicket():
                    effects += [Send(CATALOG, OpenRow(call)), step]
                case FindLeader():
                    effects += [*self._find(call), step]
                case Ask(asked, node, epoch):
                    effects.append(CancelTimer(f"call {call} step"))
                    ask = AskOver(call, self.name, group, epoch, asked, work)
                    effects += self._asked(ask) if node == self.name else [Send(node, ask)]
                case Withdraw(asked):
                    effects += [Send(CATALOG, WithdrawRow(call, asked)), step]
                case CloseTicket(asked):
                    effects.append(Send(CATALOG, WithdrawRow(0, asked)))
                case AnswerOperator(outcome):
                    effects.append(CancelTimer(f"call {call} step"))
                    self.operators.answer(ticket, work, outcome)
                case SetTimer(name, after_ms):
                    effects.append(SetTimer(f"call {call} {name}", after_ms))
                case CancelTimer(name):
                    effects.append(CancelTimer(f"call {call} {name}"))
                case _:
                    raise AssertionError(effect)
        return effects

    def _find(self, call: int) -> list[Effect]:
        self.finding[call] = None
        if self.leader is not None:
            # The word of the catalog, as the registry would have it: through the same claim.
            return [Send(self.name, Claimed(0, self.name, (), self.now_ms, self.leader.epoch))]
        return [Send(CATALOG, Claim(self.now_ms))]

    def _found(self, claimed: Claimed) -> list[Effect]:
        finding, self.finding = self.finding, {}
        epoch = claimed.epoch or claimed.holder_epoch
        effects: list[Effect] = []
        for call in finding:
            effects += self._tell(call, LeaderFound(claimed.holder, epoch))
        return effects

    # --- the node that leads ----------------------------------------------------------------------

    def _answer(self, ask: AskOver, *, ok: bool) -> list[Effect]:
        if ask.home == self.name:
            return self._tell(ask.call, LeaderDid() if ok else LeaderFailed("refused"))
        return [Send(ask.home, Did(ask.call, ok))]

    def _asked(self, ask: AskOver) -> list[Effect]:
        if self.leader is None or self.leader.epoch != ask.epoch:
            return self._answer(ask, ok=False)
        world, work = self.operators, ask.work
        if work.kind != "seek":
            return self._take(Take(ask, (), Start(0)))
        end = Start(1 << 60, work.offset)
        cursors = tuple(
            (shard, Cursor(world.start_in(shard, end)))
            for shard in world.shards
            if shard.home not in world.away
        )
        self.looking[ask.ticket] = Take(ask, cursors, Start(self.now_ms, work.offset))
        return [SetTimer(f"look up {ask.ticket}", 5)]

    def _take(self, take: Take) -> list[Effect]:
        self.taking[take.ask.ticket] = None
        return [Send(CATALOG, take)]

    def _taken(self, ask: AskOver, *, ok: bool) -> list[Effect]:
        leader, work = self.leader, ask.work
        is_ours = leader is not None and leader.epoch == ask.epoch
        if not ok:
            return self._answer(ask, ok=False)
        effects: list[Effect] = []
        if is_ours:
            match work.kind:
                case "delete":
                    effects = self._lead(End("DELETED"))
                case "seek":
                    effects = self._lead(End("SOUGHT"))
                case "change":
                    effects = self._lead(Change(work.limit))
                case "kick":
                    effects = self._lead(Kick(work.member))
                    is_ours = self.leader is not None and (self.leader.state is LeaderState.LEADING)
                    if is_ours:
                        self.operators.effect(ask.ticket, "kick")
        return effects + self._answer(ask, ok=is_ours or work.is_stored)
