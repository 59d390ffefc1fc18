"""A publisher of the simulation of the whole: the real board, outlets, replicas and judge of tokens."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from tests.core.values.whole_net import Network, Pipe, Process
from tests.core.values.whole_resolver import (
    RIGHTS_MS,
    TOKEN_LIFE_MS,
    TTL_MS,
    Issued,
    Ledger,
    Opened,
    SimulatedResolver,
)

from moorline.core.directory.published import MemberView, PublishedPaths
from moorline.core.directory.registry import Claim
from moorline.core.directory.replica import (
    Answered,
    Changed,
    Compare,
    Disconnect,
    Failed,
    LinkLost,
    LoggedIn,
    LogIn,
    Replica,
    SayHeartbeat,
    SendChanges,
    Start,
)
from moorline.core.directory.token import TokenJudge
from moorline.core.effects import CancelTimer, Effect, Event, SetTimer, TimerFired
from moorline.core.values.batch import Batch, Outlet
from moorline.core.values.board import Board

ANSWER_MS = 15_000
HEARTBEAT_MS = 5_000
BEAT_MS = min(HEARTBEAT_MS, TOKEN_LIFE_MS // 8)
ENDS_MS = TOKEN_LIFE_MS + RIGHTS_MS + 2 * BEAT_MS
"""A right that is taken away has no effect any more behind that, also at a publisher that reaches nobody."""


class Value(NamedTuple):
    """What is published: who, and the how manieth of the path and of the commits."""

    instance: bytes
    number: int
    commit: int


class Held:
    def __init__(self, path: str, principal: str, until_ms: int) -> None:
        self.path, self.principal, self.until_ms = path, principal, until_ms


class Follower:
    """One connection of a subscriber, at this end."""

    def __init__(self, down: Pipe, principal: str, *, conflates: bool) -> None:
        self.down = down
        self.principal = principal
        self.outlet = Outlet(is_conflating=conflates, batches_max=8, bytes_max=10_000)
        self.held: dict[int, Held] = {}
        self.sent_ms = 0
        down.room = self.write

    def give(self, batch: Batch, now_ms: int) -> bool:
        if not self.outlet.put(batch, now_ms):
            return False
        self.write()
        return True

    def write(self) -> None:
        self.outlet.check()
        while len(self.outlet) and self.down.is_writable and self.down.is_open:
            batch = self.outlet.take()
            assert batch is not None
            subscriber: Any = self.down.receiver
            self.down.write(partial(subscriber.updated, self.down, batch.ids, batch.values))


class Member:
    """One resolver, as this publisher keeps it: the shell of a replica."""

    def __init__(self, publisher: "SimulatedPublisher", resolver: SimulatedResolver) -> None:
        self.publisher, self.resolver = publisher, resolver
        self.view = MemberView(publisher.published)
        self.replica = Replica(f"replica of {publisher.name}", self.view, publisher.net.chance)
        self.login: Opened | None = None
        self.link = 0
        self._timers: dict[str, int] = {}
        self._number = 0
        self._key = b""

    @property
    def connection(self) -> tuple[Any, ...]:
        return (self.publisher.name, self.publisher.life, self.link)

    def handle(self, event: Event) -> None:
        effects = self.replica.handle(event, self.publisher.net.now_ms)
        self.replica.check()
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        publisher, resolver = self.publisher, self.resolver
        match effect:
            case SetTimer(name, after_ms):
                self._number += 1
                self._timers[name] = self._number
                publisher.later(after_ms, partial(self._fire, name, self._number))
            case CancelTimer(name):
                self._timers.pop(name, None)
            case Disconnect():
                self.link += 1
                # No login of an earlier connection is answered for any more.
                publisher.keys.discard(self._key)
            case LogIn():
                publisher.numbers += 1
                key = self._key = f"{publisher.name}.{publisher.numbers}".encode()
                publisher.keys.add(key)
                ask = partial(
                    resolver.log_in,
                    publisher=publisher,
                    claim=publisher.claim,
                    key=key,
                    connection=self.connection,
                )
                self._call(ask, partial(self._opened, key))
            case SendChanges(changes):
                ask = partial(resolver.change, connection=self.connection, changes=changes)
                self._call(ask, self._answered)
            case SayHeartbeat():
                self._call(
                    partial(resolver.entries, connection=self.connection),
                    lambda told: self._answered(told and told[0]),
                )
            case Compare():
                self._call(partial(resolver.entries, connection=self.connection), self._compared)
            case _:
                pass

    def _fire(self, name: str, number: int) -> None:
        if self._timers.get(name) == number:
            del self._timers[name]
            self.handle(TimerFired(name))

    def _call(self, ask: Any, heard: Any) -> None:
        link = self.link

        def once(answer: Any) -> None:
            if link == self.link:
                heard(answer)

        self.publisher.net.call(self.publisher, self.resolver, ask, once, ANSWER_MS)

    def _opened(self, key: bytes, opened: Opened | None) -> None:
        self.publisher.keys.discard(key)
        if opened is None:
            self.handle(Failed("no answer"))
            return
        self.login = opened
        self.handle(LoggedIn(opened.digest, TTL_MS))

    def _answered(self, digest: Any) -> None:
        self.handle(Failed("no answer") if digest is None else Answered(digest))

    def _compared(self, told: Any) -> None:
        if told is None:
            self.handle(Failed("no answer"))
            return
        _, entries = told
        copied = dict(zip(*self.publisher.published.copied(), strict=True))
        mine = self.view.digest()
        changes: dict[str, int | None] = {path: None for path in entries if path not in copied}
        changes |= {path: flags for path, flags in copied.items() if entries.get(path) != flags}

        def repaired(digest: Any) -> None:
            if digest is None:
                self.handle(Failed("no answer"))
            else:
                self.handle(Answered(digest, has_agreed=digest == mine))

        ask = partial(self.resolver.change, connection=self.connection, changes=changes)
        self._call(ask, repaired)


class SimulatedPublisher(Process):
    def __init__(
        self, net: Network, name: str, resolvers: Sequence[SimulatedResolver], ledger: Ledger
    ) -> None:
        super().__init__(net, name)
        self.ledger = ledger
        self.resolvers = resolvers
        self.priority = net.chance.choice([0, 1, 1])
        self.numbers = 0
        self.begin()

    def begin(self) -> None:
        self.is_up = True
        self.instance = f"{self.name}.{self.life}".encode().ljust(16, b".")
        self.claim = Claim(self.name, self.instance, self.name, ("anonymous",), self.priority)
        self.published = PublishedPaths()
        self.board: Board[Follower] = Board()
        self.followers: list[Follower] = []
        self.keys: set[bytes] = set()
        self.commits = 0
        self.numbers_of: Counter[str] = Counter()
        """How many values each path has had."""
        self.members = [Member(self, resolver) for resolver in self.resolvers]
        for member in self.members:
            member.handle(Start())
        self.later(BEAT_MS, self._beat)

    def die(self) -> None:
        super().die()
        self.ledger.died_ms[self.instance] = self.net.now_ms

    def lost_resolver(self, resolver: Process) -> None:
        for member in self.members:
            if self.is_up and member.resolver is resolver and self.net.chance.random() < 0.6:
                link = member.link
                self.later(self.net.delay_ms(), partial(self._lost_member, member, link))

    @staticmethod
    def _lost_member(member: Member, link: int) -> None:
        if member.link == link:
            member.handle(LinkLost("the resolver is gone"))

    # --- what its user does -----------------------------------------------------------------------

    def change(self, paths: Sequence[str]) -> None:
        """Publishes what it does not have of these, and takes back what it has."""
        wanted: dict[str, int | None] = {}
        for path in paths:
            one = self.board.id_of(path)
            if one is None:
                # Counted on where it was published before.
                self.numbers_of[path] += 1
                first = Value(self.instance, self.numbers_of[path], self.commits)
                self.board.publish(path, first)
                wanted[path] = 0
            else:
                wanted[path] = None
                for follower in self.board.unpublish(one):
                    follower.held.pop(one, None)
                    self._say(follower, "ended", [one], "UNPUBLISHED")
        changes = self.published.change(wanted)
        for member in self.members:
            member.handle(Changed(changes))

    def commit(self) -> None:
        """One more of some of its values, for all who follow them."""
        ids = [one for path in self.board.paths() if (one := self.board.id_of(path)) is not None]
        some = [one for one in ids if self.net.chance.random() < 0.6]
        if not some:
            return
        self.commits += 1
        paths = [self.board.path_of(one) for one in some]
        self.numbers_of.update(paths)
        self.board.update_all(
            some, [Value(self.instance, self.numbers_of[path], self.commits) for path in paths]
        )
        batch = self.board.commit()
        assert batch is not None
        mine: dict[int, tuple[Follower, list[int]]] = {}
        for followers, part in self.board.parts(batch):
            for follower in followers:
                mine.setdefault(id(follower), (follower, []))[1].extend(part.ids)
        for follower, each in mine.values():
            self._check_rights(follower, each)
            given = Batch(each, [self.board.value_of(one) for one in each], 40 * len(each))
            if not follower.give(given, self.net.now_ms):
                self.net.seen["slow"] += 1
                self._cut(follower)
        self.board.check()

    def _check_rights(self, follower: Follower, ids: Sequence[int]) -> None:
        for one in ids:
            held = follower.held[one]
            since_ms = self.ledger.denied.get((held.principal, held.path))
            if since_ms is not None:
                late_ms = self.net.now_ms - since_ms - self.stood_ms
                late_ms -= max(one.stood_ms for one in self.resolvers)
                assert late_ms <= ENDS_MS, f"{held.path} goes to {held.principal}: {late_ms} ms"

    # --- subscribers ------------------------------------------------------------------------------

    def accept(self, reply: Any, down: Pipe, principal: str, *, conflates: bool) -> None:
        if down.is_open and all(one.down is not down for one in self.followers):
            self.followers.append(Follower(down, principal, conflates=conflates))
        reply(True)

    def judge_token(self, issued: Issued) -> str:
        """As client/values/door.py does it."""
        claim = issued.claim
        logins = [one.login for one in self.members if one.login is not None]
        login = next((one for one in logins if one.resolver == claim.resolver), None)
        secret = login.secret if login is not None else None
        life_s = TOKEN_LIFE_MS // 1_000 if login is not None else 0
        mine = msgspec.structs.replace(claim, instance=self.instance)
        judge = TokenJudge(secret, mine, self.net.now_ms // 1_000, life_s + 1)
        return judge.why_not(claim.path, claim.permissions, issued.token)

    def subscribe(self, down: Pipe, attempt: int, shown: Mapping[str, Issued]) -> None:
        follower = next((one for one in self.followers if one.down is down), None)
        if follower is None:
            return
        answers: dict[str, Any] = {}
        followed: list[int] = []
        now_ms = self.net.now_ms
        for path, issued in shown.items():
            one = self.board.id_of(path)
            is_holder = issued.claim.principal == follower.principal
            if self.judge_token(issued) or not is_holder:
                answers[path] = "DENIED"
            elif one is None:
                answers[path] = "NO_SUCH_VALUE"
            else:
                left_ms = issued.claim.expires_s * 1_000 - now_ms
                until_ms = now_ms + min(TOKEN_LIFE_MS, left_ms)
                follower.held[one] = Held(path, follower.principal, until_ms)
                followed.append(one)
                answers[path] = (one, self.board.value_of(one))
        follower.outlet.leave_out(followed)
        self.board.follow(follower, followed)
        self._say(follower, "subscribed", attempt, answers)

    def unsubscribe(self, down: Pipe, ids: Sequence[int]) -> None:
        for follower in self.followers:
            if follower.down is down:
                mine = [one for one in ids if one in follower.held]
                self._leave(follower, mine)

    def left(self, down: Pipe) -> None:
        """The subscriber has gone, or its connection."""
        for follower in list(self.followers):
            if follower.down is down:
                self._forget(follower)

    def _say(self, follower: Follower, what: str, *said: Any) -> None:
        # Past the outlet: what waits there is of values that go on.
        follower.sent_ms = self.net.now_ms
        subscriber: Any = follower.down.receiver
        follower.down.write(partial(getattr(subscriber, what), follower.down, *said))

    def _leave(self, follower: Follower, ids: Sequence[int]) -> None:
        self.board.unfollow(follower, ids)
        for one in ids:
            follower.held.pop(one, None)

    def _forget(self, follower: Follower) -> None:
        self._leave(follower, list(follower.held))
        self.followers.remove(follower)

    def _cut(self, follower: Follower) -> None:
        self._forget(follower)
        follower.down.close()
        subscriber: Any = follower.down.receiver
        down = follower.down
        self.net.send(self, down.receiver, lambda: subscriber.lost(down))

    # --- in time ----------------------------------------------------------------------------------

    def _beat(self) -> None:
        now_ms = self.net.now_ms
        for follower in list(self.followers):
            if not follower.down.is_open:
                # What is written to a connection that is over comes back as its end.
                self._forget(follower)
                continue
            late = [one for one, held in follower.held.items() if held.until_ms <= now_ms]
            if late:
                self.net.seen["expired"] += 1
                self._leave(follower, late)
                self._say(follower, "ended", late, "EXPIRED")
            if now_ms - follower.sent_ms >= HEARTBEAT_MS // 2 and follower.down.is_writable:
                self._say(follower, "alive")
        self.judge(is_all=False)
        self.later(BEAT_MS, self._beat)

    def judge(self, *, is_all: bool) -> None:
        soon_ms = self.net.now_ms + TOKEN_LIFE_MS // 2
        waiting = {
            (held.principal, held.path)
            for follower in self.followers
            for held in follower.held.values()
            if is_all or held.until_ms <= soon_ms
        }
        if waiting:
            self._judge_at(list(self.members), waiting)

    def _judge_at(self, left: list[Member], waiting: set[tuple[str, str]]) -> None:
        while left:
            member = left.pop(0)
            claims = [one for one in waiting if member.replica.has_confirmed(one[1])]
            if not claims:
                continue
            asked_ms = self.net.now_ms

            def judged(found: Any, asked_ms: int = asked_ms) -> None:
                self._judged(found or {}, asked_ms)
                if rest := waiting.difference(found or {}):
                    self._judge_at(left, rest)

            ask = partial(member.resolver.judge, connection=member.connection, claims=claims)
            self.net.call(self, member.resolver, ask, judged, ANSWER_MS)
            return

    def _judged(self, found: Mapping[tuple[str, str], bool], asked_ms: int) -> None:
        for follower in list(self.followers):
            denied = []
            for one, held in follower.held.items():
                verdict = found.get((held.principal, held.path))
                if verdict:
                    held.until_ms = max(held.until_ms, asked_ms + TOKEN_LIFE_MS)
                elif verdict is not None:
                    denied.append(one)
            if denied:
                self.net.seen["denied"] += 1
                self._leave(follower, denied)
                self._say(follower, "ended", denied, "DENIED")
