"""Room: core/values. Durable subscriptions: one machine for all paths that one subscriber wants to stay at.

    WANTED ─ due ─► RESOLVING ─ found ─► SUBSCRIBING ─ value ─► ALIVE
       ▲                │ not found, failed     │ refused, lost    │ publisher lost, ended
       └─── waits min(tries × step, cap), jittered over the last half ─┴──────────────────┘

Every try goes through the whole flow, so it finds publishers that are new, and tires of those that are gone.
Paths that are due in one tick are resolved together. The states are those of paths; the machine is on or off.

Invariants:

    S1  a path that is wanted is in one state: it waits for its time, or is in one ask, in one try, or alive
        at one publisher
    S2  at most `DURABLE_ASKS_MAX` asks are under way, of at most `DURABLE_PATHS_PER_ASK` paths each

Of n publishers of a path, n tries in a row reach all n, however long they take: S3 of the design, and
`choose_in_turn`. An answer to what was given up is not taken: it names another ask, or another try (S6).

Design: docs/design/resolver.md.
"""

import heapq
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import ClassVar

import msgspec

from moorline.core.chance import Chance
from moorline.core.effects import Effect, Event, SetTimer, TimerFired
from moorline.core.machine import Machine
from moorline.core.values.choice import Candidate, Failures, Tried, choose_in_turn, with_last
from moorline.core.values.durable_events import (
    AttemptFailed,
    Drop,
    Ended,
    PublisherLost,
    Resolve,
    Resolved,
    ResolveFailed,
    Stop,
    SubscribeAt,
    Subscribed,
    TellAlive,
    TellDead,
    Unsubscribe,
    Want,
)
from moorline.limits import (
    DURABLE_ASKS_MAX,
    DURABLE_PATHS_PER_ASK,
    DURABLE_STEP_MS,
    DURABLE_TICK_MS,
    DURABLE_WAIT_MS_MAX,
)

DUE = "due"


class PathState(Enum):
    WANTED = "wanted"
    RESOLVING = "resolving"
    SUBSCRIBING = "subscribing"
    ALIVE = "alive"


class DurableState(Enum):
    ON = "on"
    OFF = "off"


class Wanted(msgspec.Struct):
    """One path."""

    state: PathState = PathState.WANTED
    under: int = 0
    """The ask or the attempt that it is in."""
    tries: int = 0
    """In a row, that did not lead to a value."""
    instance: bytes = b""
    tried: Tried = ()


class Durable(Machine[DurableState]):
    """All durable subscriptions of one subscriber."""

    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        DurableState.ON: frozenset({DurableState.OFF}),
        DurableState.OFF: frozenset(),
    }

    def __init__(self, name: str, chance: Chance, failures: Failures | None = None) -> None:
        super().__init__(name, DurableState.ON)
        self._chance = chance
        self._failures = failures or Failures()
        self._paths: dict[str, Wanted] = {}
        self._due: list[tuple[int, str]] = []
        """A heap. One that is not wanted any more, or has another state, is passed over."""
        self._timer_ms: int | None = None
        self._asks: dict[int, list[str]] = {}
        self._attempts: dict[int, tuple[bytes, list[str]]] = {}
        self._alive: dict[bytes, set[str]] = {}
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._paths)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        if self.state is DurableState.OFF:
            return []
        match event:
            case Want(paths):
                return self._want(paths, now_ms)
            case Drop(paths):
                return self._drop(paths, now_ms)
            case Resolved(ask, found):
                return self._resolved(ask, found, now_ms)
            case ResolveFailed(ask, why):
                failed = [path for path in self._asks.pop(ask, ()) if self._is_under(path, ask)]
                return [*self._fail(failed, why, now_ms), *self._go_on(now_ms)]
            case Subscribed(attempt, refused):
                return self._subscribed(attempt, refused, now_ms)
            case AttemptFailed(attempt, why):
                return self._attempt_failed(attempt, why, now_ms)
            case PublisherLost(instance, why):
                # It comes last for a while; its values are looked for elsewhere, all in one batch.
                self._failures.note(instance, now_ms)
                lost = sorted(self._alive.get(instance, ()))
                return [*self._fail(lost, why, now_ms), *self._go_on(now_ms)]
            case Ended(instance, paths, why):
                here = self._alive.get(instance, set())
                ended = [path for path in paths if path in here]
                return [*self._fail(ended, why, now_ms), *self._go_on(now_ms)]
            case TimerFired(name) if name == DUE:
                self._timer_ms = None
                return self._go_on(now_ms)
            case Stop():
                return self._stop()
            case _:
                raise AssertionError(f"durable subscriptions know no {event}")

    # --- what users want --------------------------------------------------------------------------

    def _want(self, paths: Sequence[str], now_ms: int) -> list[Effect]:
        for path in paths:
            if path not in self._paths:
                # Due at once: the wait between tries is for what has failed.
                self._paths[path] = Wanted()
                heapq.heappush(self._due, (now_ms, path))
        return self._go_on(now_ms)

    def _drop(self, paths: Sequence[str], now_ms: int) -> list[Effect]:
        alive: dict[bytes, list[str]] = {}
        for path in paths:
            found = self._paths.pop(path, None)
            if found is not None and found.state is PathState.ALIVE:
                alive.setdefault(found.instance, []).append(path)
                self._leave(path, found)
        # What is under way is left to its answer, which finds nobody that wants it.
        return [
            *(Unsubscribe(instance, gone) for instance, gone in alive.items()),
            *self._go_on(now_ms),
        ]

    def _stop(self) -> list[Effect]:
        self.move(DurableState.OFF)
        gone = [Unsubscribe(instance, sorted(paths)) for instance, paths in self._alive.items()]
        self._paths.clear()
        self._alive.clear()
        return list(gone)

    # --- tries ------------------------------------------------------------------------------------

    def _go_on(self, now_ms: int) -> list[Effect]:
        """Asks for what is due, as far as asks are free, and sees to it that the rest is not forgotten."""
        effects: list[Effect] = []
        while len(self._asks) < DURABLE_ASKS_MAX:
            paths = self._take_due(now_ms)
            if not paths:
                break
            self._numbers += 1
            self._asks[self._numbers] = paths
            for path in paths:
                found = self._paths[path]
                found.state, found.under = PathState.RESOLVING, self._numbers
            effects.append(Resolve(self._numbers, paths))
        # Where no ask is free the end of one goes on.
        if self._due and len(self._asks) < DURABLE_ASKS_MAX:
            due_ms = self._due[0][0]
            if self._timer_ms is None or due_ms < self._timer_ms:
                self._timer_ms = due_ms
                effects.append(SetTimer(DUE, max(1, due_ms - now_ms)))
        return effects

    def _take_due(self, now_ms: int) -> list[str]:
        paths: dict[str, None] = {}
        while self._due and self._due[0][0] <= now_ms and len(paths) < DURABLE_PATHS_PER_ASK:
            _, path = heapq.heappop(self._due)
            found = self._paths.get(path)
            if found is not None and found.state is PathState.WANTED:
                # A dict: dropped and wanted again, a path has two places in the heap.
                paths[path] = None
        return list(paths)

    def _resolved(
        self, ask: int, found: Mapping[str, Sequence[Candidate] | str], now_ms: int
    ) -> list[Effect]:
        chosen: dict[bytes, list[str]] = {}
        failed: dict[str, list[str]] = {}
        for path in self._asks.pop(ask, ()):
            if not self._is_under(path, ask):
                continue
            answer = found.get(path, "the resolver has not answered for it")
            if not answer:
                answer = "nobody publishes it"
            if isinstance(answer, str):
                failed.setdefault(answer, []).append(path)
                continue
            chosen.setdefault(self._chosen(self._paths[path], answer, now_ms), []).append(path)
        effects: list[Effect] = []
        for instance, paths in chosen.items():
            self._numbers += 1
            self._attempts[self._numbers] = (instance, paths)
            for path in paths:
                one = self._paths[path]
                one.state, one.under = PathState.SUBSCRIBING, self._numbers
            effects.append(SubscribeAt(self._numbers, instance, paths))
        for why, paths in failed.items():
            effects += self._fail(paths, why, now_ms)
        return [*effects, *self._go_on(now_ms)]

    def _chosen(self, one: Wanted, candidates: Sequence[Candidate], now_ms: int) -> bytes:
        chosen = choose_in_turn(
            candidates, one.tried, self._failures, self._chance, now_ms
        ).instance
        if one.tried:
            # Who is not there any more has no turn.
            there = {each.instance for each in candidates}
            one.tried = tuple(each for each in one.tried if each in there)
        one.tried = with_last(one.tried, chosen)
        return chosen

    def _subscribed(self, attempt: int, refused: Mapping[str, str], now_ms: int) -> list[Effect]:
        instance, paths = self._attempts.pop(attempt, (b"", []))
        alive: list[str] = []
        unwanted: list[str] = []
        failed: dict[str, list[str]] = {}
        for path in paths:
            why = refused.get(path)
            if not self._is_under(path, attempt):
                if why is None and not self._is_kept_at(path, instance):
                    unwanted.append(path)
                continue
            if why is None:
                one = self._paths[path]
                one.state, one.instance, one.tries = PathState.ALIVE, instance, 0
                one.tried = ()
                self._alive.setdefault(instance, set()).add(path)
                alive.append(path)
            else:
                failed.setdefault(why, []).append(path)
        effects: list[Effect] = []
        if alive:
            self._failures.forgive(instance)
            effects.append(TellAlive(instance, alive))
        if unwanted:
            effects.append(Unsubscribe(instance, unwanted))
        for why, some in failed.items():
            effects += self._fail(some, why, now_ms)
        return [*effects, *self._go_on(now_ms)]

    def _attempt_failed(self, attempt: int, why: str, now_ms: int) -> list[Effect]:
        instance, paths = self._attempts.pop(attempt, (b"", []))
        if instance:
            # For all paths: what was not reached for one is not tried first for another.
            self._failures.note(instance, now_ms)
        failed = [path for path in paths if self._is_under(path, attempt)]
        return [*self._fail(failed, why, now_ms), *self._go_on(now_ms)]

    def _fail(self, paths: Sequence[str], why: str, now_ms: int) -> list[Effect]:
        """These have no value now, and are tried again."""
        if not paths:
            return []
        for path in paths:
            one = self._paths[path]
            if one.state is PathState.ALIVE:
                # It had its turn: whoever is lost or ended comes last.
                one.tried = (one.instance,)
                self._leave(path, one)
            one.state, one.under = PathState.WANTED, 0
            # Counted per path: one that fails for long is asked for seldom, beside others that are new.
            one.tries += 1
            heapq.heappush(self._due, (self._next_try_ms(one.tries, now_ms), path))
        return [TellDead(list(paths), why)]

    def _next_try_ms(self, tries: int, now_ms: int) -> int:
        wait_ms = min(tries * DURABLE_STEP_MS, DURABLE_WAIT_MS_MAX)
        due_ms = now_ms + wait_ms // 2 + self._chance.randrange(wait_ms // 2 + 1)
        # Rounded up to a tick, so that those of one tick are one batch.
        return -(-due_ms // DURABLE_TICK_MS) * DURABLE_TICK_MS

    # --- inside -----------------------------------------------------------------------------------

    def _is_under(self, path: str, number: int) -> bool:
        found = self._paths.get(path)
        return found is not None and found.under == number

    def _is_alive_at(self, path: str, instance: bytes) -> bool:
        return path in self._alive.get(instance, ())

    def _is_kept_at(self, path: str, instance: bytes) -> bool:
        """Whether a subscription there is wanted by another try than the one that brought it.

        Dropped and wanted again, a path may be tried twice at one publisher, which has one subscription for
        it: to end the first would end the second, of which the answer is still on its way.
        """
        if self._is_alive_at(path, instance):
            return True
        found = self._paths.get(path)
        if found is None or found.state is not PathState.SUBSCRIBING:
            return False
        return self._attempts[found.under][0] == instance

    def _leave(self, path: str, one: Wanted) -> None:
        here = self._alive[one.instance]
        here.discard(path)
        if not here:
            del self._alive[one.instance]
        one.instance = b""

    def invariants(self) -> None:
        asked = {path: ask for ask, paths in self._asks.items() for path in paths}
        tried = {path: number for number, (_, paths) in self._attempts.items() for path in paths}
        waiting = {path for _, path in self._due}
        for path, one in self._paths.items():
            match one.state:
                case PathState.WANTED:
                    assert path in waiting, f"S1: {path} is forgotten"
                case PathState.RESOLVING:
                    assert path in self._asks.get(one.under, ()), f"S1: {path} is in no ask"
                    assert path in asked, f"S1: {path}"
                case PathState.SUBSCRIBING:
                    assert path in self._attempts.get(one.under, (b"", []))[1], f"S1: {path}"
                    assert path in tried, f"S1: {path}"
                case PathState.ALIVE:
                    assert self._is_alive_at(path, one.instance), f"S1: {path} is nowhere alive"
        alive = sum(map(len, self._alive.values()))
        states = [one.state for one in self._paths.values()]
        assert alive == states.count(PathState.ALIVE), "S1: alive and not wanted"
        assert len(self._asks) <= DURABLE_ASKS_MAX, "S2: asks"
        assert all(len(paths) <= DURABLE_PATHS_PER_ASK for paths in self._asks.values()), (
            "S2: paths"
        )
