"""A subscriber of the simulation of the whole: the real durable subscriptions and batches of questions."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from tests.core.values.durable_states import state_of
from tests.core.values.whole_net import DELAY_MS, Network, Pipe, Process
from tests.core.values.whole_publisher import SimulatedPublisher, Value
from tests.core.values.whole_resolver import NOT_READY, Granted, SimulatedResolver

from moorline.core.directory.read_batch import (
    Answered,
    Ask,
    Begin,
    Connect,
    Connected,
    Failed,
    Finish,
    GiveUp,
    ReadBatch,
)
from moorline.core.effects import CancelTimer, Effect, Event, SetTimer, TimerFired
from moorline.core.values.choice import Candidate, Failures
from moorline.core.values.durable import DUE, Durable, PathState
from moorline.core.values.durable_events import (
    AttemptFailed,
    Drop,
    Ended,
    PublisherLost,
    Resolve,
    Resolved,
    ResolveFailed,
    SubscribeAt,
    Subscribed,
    TellAlive,
    TellDead,
    Unsubscribe,
    Want,
)

DEAD_MS = 20_000
TIMER_MS = 15_000
SUBSCRIBE_MS = 5_000
PART = 3
"""Paths of a micro-batch."""


class Batch:
    """One batch of questions: the shell of the machine, as client/resolver_cluster.py is one."""

    def __init__(self, subscriber: "SimulatedSubscriber", ask: int, paths: Sequence[str]) -> None:
        self.subscriber, self.ask = subscriber, ask
        self.found: dict[str, list[Granted] | str] = {}
        self._parts = [list(paths[at : at + PART]) for at in range(0, len(paths), PART)]
        self._machine = ReadBatch(
            "a batch",
            len(subscriber.resolvers),
            len(self._parts),
            TIMER_MS,
            subscriber.net.chance,
        )
        self._timers: dict[str, int] = {}
        self._number = 0
        self._member = subscriber.resolvers[0]
        self._answered: set[tuple[int, int]] = set()

    def handle(self, event: Event) -> None:
        effects = self._machine.handle(event, self.subscriber.net.now_ms)
        self._machine.check()
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        one, net = self.subscriber, self.subscriber.net
        match effect:
            case SetTimer(name, after_ms):
                self._number += 1
                self._timers[name] = self._number
                one.later(after_ms, partial(self._fire, name, self._number))
            case CancelTimer(name):
                self._timers.pop(name, None)
            case Connect(member, attempt):
                self._member = one.resolvers[member]
                met = partial(self._met, attempt)
                net.call(one, self._member, lambda reply: reply(True), met, 10 * TIMER_MS)
            case Ask(part, attempt):
                wanted = [
                    path
                    for path in self._parts[part]
                    if self.found.get(path, NOT_READY) == NOT_READY
                ]
                ask = partial(self._member.resolve, principal=one.name, paths=wanted)
                net.call(one, self._member, ask, partial(self._told, attempt, part), 10 * TIMER_MS)
            case Finish():
                one.resolved(self)
            case GiveUp():
                one.net.seen["gave up"] += 1
                one.handle(ResolveFailed(self.ask, "no resolver answers"))
            case _:
                pass

    def _fire(self, name: str, number: int) -> None:
        if self._timers.get(name) == number:
            del self._timers[name]
            self.handle(TimerFired(name))

    def _met(self, attempt: int, answer: Any) -> None:
        self.handle(Connected(attempt) if answer else Failed(attempt, "refused"))

    def _told(self, attempt: int, part: int, answer: Any) -> None:
        if answer is None:
            self.handle(Failed(attempt, "lost"))
            return
        self.found.update(answer)
        is_weak = any(self.found.get(path) == NOT_READY for path in self._parts[part])
        self.handle(Answered(attempt, part, is_weak))


class Link:
    """One connection to one publisher, at this end."""

    def __init__(
        self, instance: bytes, publisher: SimulatedPublisher, down: Pipe, up: Pipe
    ) -> None:
        self.instance, self.publisher, self.down, self.up = instance, publisher, down, up
        self.is_open = False
        self.wanted: list[tuple[int, list[str]]] = []
        """Attempts that wait for the connection."""
        self.ids: dict[int, str] = {}
        self.heard_ms = down.receiver.net.now_ms


class SimulatedSubscriber(Process):
    def __init__(
        self,
        net: Network,
        name: str,
        resolvers: Sequence[SimulatedResolver],
        publishers: Mapping[str, SimulatedPublisher],
        *,
        conflates: bool,
    ) -> None:
        super().__init__(net, name)
        self.resolvers, self.publishers = resolvers, publishers
        self.conflates = conflates
        self.wanted: set[str] = set()
        self.begin()

    def begin(self) -> None:
        self.is_up = True
        self.durable = Durable(self.name, self.net.chance, Failures(60_000))
        self.links: dict[bytes, Link] = {}
        self.at: dict[str, tuple[Link, int]] = {}
        self.values: dict[str, Value] = {}
        self._grants: dict[str, dict[bytes, Granted]] = {}
        self._attempts: dict[int, Link] = {}
        self._asked: dict[int, tuple[Link, list[str]]] = {}
        """What was sent and has no answer yet, given up or not."""
        self._came_late: dict[str, tuple[Link, int]] = {}
        self._due = 0
        self._watch()
        self.handle(Want(sorted(self.wanted)))

    def want(self, paths: Sequence[str]) -> None:
        self.wanted |= set(paths)
        self.handle(Want(paths))

    def drop(self, paths: Sequence[str]) -> None:
        self.wanted -= set(paths)
        for path in paths:
            self._leave(path)
        self.handle(Drop(paths))

    def handle(self, event: Event) -> None:
        effects = self.durable.handle(event, self.net.now_ms)
        self.durable.check()
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SetTimer(_, after_ms):
                self._due += 1
                self.later(after_ms, partial(self._fire, self._due))
            case Resolve(ask, paths):
                Batch(self, ask, paths).handle(Begin())
            case SubscribeAt(attempt, instance, paths):
                self._subscribe_at(attempt, instance, paths)
            case Unsubscribe(_, paths):
                for path in paths:
                    if path not in self.wanted:
                        self._leave(path)
            case TellAlive(instance, paths):
                self.net.seen["alive"] += len(paths)
                here = {path for path, (link, _) in self.at.items() if link.instance == instance}
                if moved := [path for path in paths if path not in here]:
                    # Ended, or dropped and wanted again, while it was on its way: as the subscriber does.
                    self.handle(Ended(instance, moved, "it is not subscribed there any more"))
            case TellDead(paths, _):
                self.net.seen["dead"] += len(paths)
            case _:
                pass

    def _fire(self, number: int) -> None:
        if number == self._due:
            self.handle(TimerFired(DUE))

    def resolved(self, batch: Batch) -> None:
        found: dict[str, Sequence[Candidate] | str] = {}
        for path, answer in batch.found.items():
            if isinstance(answer, str):
                found[path] = answer
                continue
            self._grants[path] = {one.instance: one for one in answer}
            found[path] = [Candidate(one.instance, one.priority) for one in answer]
        self.handle(Resolved(batch.ask, found))

    # --- connections ------------------------------------------------------------------------------

    def _subscribe_at(self, attempt: int, instance: bytes, paths: list[str]) -> None:
        link = self.links.get(instance)
        if link is None:
            name = self._grants[paths[0]][instance].publisher
            publisher = self.publishers[name]
            down, up = (
                Pipe(publisher, self, self._pipe_lost),
                Pipe(self, publisher, self._pipe_lost),
            )
            link = self.links[instance] = Link(instance, publisher, down, up)
            accept = partial(
                publisher.accept, down=down, principal=self.name, conflates=self.conflates
            )
            # Somebody else may listen there now: an earlier life's instance is nobody's.
            self.net.call(self, publisher, accept, partial(self._met, link), SUBSCRIBE_MS)
        self._attempts[attempt] = link
        link.wanted.append((attempt, paths))
        if link.is_open:
            self._ask(link)
        self.later(SUBSCRIBE_MS + 2 * DELAY_MS, partial(self._too_late, attempt))

    def _met(self, link: Link, answer: Any) -> None:
        if self.links.get(link.instance) is not link:
            return
        if not answer:
            self._end(link, "refused")
            return
        link.is_open = True
        link.heard_ms = self.net.now_ms
        self._ask(link)

    def _ask(self, link: Link) -> None:
        for attempt, paths in link.wanted:
            shown = {}
            for path in paths:
                grant = self._grants.get(path, {}).get(link.instance)
                if grant is not None:
                    shown[path] = grant.issued
            self._asked[attempt] = (link, paths)
            link.up.write(partial(link.publisher.subscribe, link.down, attempt, shown))
        link.wanted = []

    def _too_late(self, attempt: int) -> None:
        if self._attempts.pop(attempt, None) is not None:
            self.net.seen["too late"] += 1
            self.handle(AttemptFailed(attempt, "no answer in time"))

    def _watch(self) -> None:
        """A publisher that said nothing for the dead interval is lost, whatever its connection says."""
        for link in list(self.links.values()):
            if link.is_open and self.net.now_ms - link.heard_ms >= DEAD_MS:
                self.net.seen["hung"] += 1
                self._end(link, "it said nothing")
        self.later(DEAD_MS // 10, self._watch)

    def _pipe_lost(self, at: Process) -> None:
        """One end of a connection is dead, and the other hears of it: by the kernel's reset."""
        if at is self:
            for link in list(self.links.values()):
                if not link.down.is_open or not link.up.is_open:
                    self._end(link, "reset")
        else:
            publisher: Any = at
            for follower in list(publisher.followers):
                if not follower.down.is_open:
                    publisher.left(follower.down)

    def _end(self, link: Link, why: str) -> None:
        del self.links[link.instance]
        link.down.close()
        link.up.close()
        publisher, down = link.publisher, link.down
        self.net.send(self, publisher, lambda: publisher.left(down))
        for path in [path for path, (at, _) in self.at.items() if at is link]:
            del self.at[path]
        for attempt in [one for one, at in self._attempts.items() if at is link]:
            del self._attempts[attempt]
            self.handle(AttemptFailed(attempt, why))
        self.handle(PublisherLost(link.instance, why))

    def _leave(self, path: str) -> None:
        found = self.at.pop(path, None)
        if found is not None:
            link, one = found
            link.ids.pop(one, None)
            link.up.write(partial(link.publisher.unsubscribe, link.down, [one]))

    # --- what publishers say ----------------------------------------------------------------------

    def _link_of(self, down: Pipe) -> Link | None:
        found = next((one for one in self.links.values() if one.down is down), None)
        if found is not None:
            found.heard_ms = self.net.now_ms
        return found

    def subscribed(self, down: Pipe, attempt: int, answers: Mapping[str, Any]) -> None:
        link = self._link_of(down)
        if link is None:
            return
        is_asked = self._attempts.pop(attempt, None) is not None
        self._asked.pop(attempt, None)
        refused: dict[str, str] = {}
        for path, answer in answers.items():
            if isinstance(answer, str):
                refused[path] = answer
                continue
            one, value = answer
            if not is_asked:
                self._came_late[path] = (link, one)
                continue
            self._came_late.pop(path, None)
            known = self.at.get(path)
            if known is None and path in self.wanted:
                self.at[path] = (link, one)
                link.ids[one] = path
                self._show(path, value, is_first=True)
            elif known is None or known[0] is not link:
                link.up.write(partial(link.publisher.unsubscribe, link.down, [one]))
        self._leave_late(link, answers)
        if is_asked:
            self.handle(Subscribed(attempt, refused))

    def _leave_late(self, link: Link, paths: Iterable[str]) -> None:
        """As client/values/link.py does it."""
        asked = {path for at, others in self._asked.values() if at is link for path in others}
        for path in paths:
            if path not in asked and self._came_late.get(path, (None, 0))[0] is link:
                _, one = self._came_late.pop(path)
                if self.at.get(path) != (link, one):
                    link.up.write(partial(link.publisher.unsubscribe, link.down, [one]))

    def updated(self, down: Pipe, ids: Sequence[int], values: Sequence[Value]) -> None:
        if self._link_of(down) is None:
            return
        if not self.conflates:
            assert len({one.commit for one in values}) == 1, "V2: a batch that is not one commit's"
        link = self._link_of(down)
        assert link is not None
        for one, value in zip(ids, values, strict=True):
            path = link.ids.get(one)
            if path is not None and self.at.get(path) == (link, one):
                self._show(path, value, is_first=False)

    def _show(self, path: str, value: Value, *, is_first: bool) -> None:
        """V1, V2, V4, S6: what a user sees of one path, in the order in which it sees it."""
        before = self.values.get(path)
        self.values[path] = value
        self.net.seen["first values" if is_first else "updates"] += 1
        if is_first:
            if before is not None and before.instance == value.instance:
                assert value.number >= before.number, f"V1: {path} goes back in time"
            return
        assert before is not None
        assert before.instance == value.instance, f"S6: {path} is of two publishers"
        if self.conflates:
            assert value.number > before.number, f"V1: {path} goes back in time"
        else:
            assert value.number == before.number + 1, f"V2: {path} has a gap: {before} {value}"

    def ended(self, down: Pipe, ids: Sequence[int], why: str) -> None:
        link = self._link_of(down)
        if link is None:
            return
        paths = [path for one in ids if (path := link.ids.pop(one, None)) is not None]
        mine = [path for path in paths if self.at.get(path, (None, 0))[0] is link]
        for path in mine:
            del self.at[path]
        self.handle(Ended(link.instance, mine, why))

    def alive(self, down: Pipe) -> None:
        self._link_of(down)

    def lost(self, down: Pipe) -> None:
        link = self._link_of(down)
        if link is not None:
            self.net.seen["cut as slow"] += 1
            self._end(link, "SLOW")

    def is_alive(self, path: str) -> bool:
        return state_of(self.durable, path) is PathState.ALIVE
