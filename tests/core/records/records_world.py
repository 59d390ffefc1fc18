"""A model Postgres with writers, nodes with feeds, clients with copies, and chance that orders them."""

from collections import deque
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
from tests.core.records.model_postgres import ModelPostgres

from moorline.core.effects import Effect, Event
from moorline.core.records import copy as client_side
from moorline.core.records.copy import Copy, Copying
from moorline.core.records.cursor import SigningKey, SigningKeys, TableCursor, misfit
from moorline.core.records.feed_events import (
    BeginScan,
    Boot,
    BufferFull,
    CancelScan,
    ChangesRead,
    ConnectionGone,
    Drained,
    EndSync,
    How,
    LookAtPermits,
    PermitsLooked,
    Refuse,
    Resync,
    RightsHeard,
    ScanEnded,
    ScanFailed,
    ScanRead,
    SendRows,
    StartSync,
    StepBegun,
    StepEnded,
    StepFailed,
    Subscribed,
    SyncDone,
    TakeStep,
    Tick,
    Unsubscribed,
    Wanted,
)
from moorline.core.records.filter import Filter, parse_filter
from moorline.core.records.log_reach import LogReach
from moorline.core.records.permit import Permit, make_permit, owner_column
from moorline.core.records.row_hash import RowDigest, digest_of_rows, row_hashes
from moorline.core.records.snapshot import Snapshot
from moorline.core.records.table import After, Key, Table
from moorline.core.records.table_feed import TableFeed
from moorline.core.sets.digest import Digest

KEYS = SigningKeys([SigningKey(1, b"k" * 32, 1 << 40)])
WHERES: list[dict[str, Any]] = [
    {}, {"workspace": 1}, {"workspace": [1, 2]}, {"state": "NEW"}, {"size": {">=": 3}},
    {"workspace": 1, "state": ["NEW", None]}, {"state": None},
]  # fmt: skip
DISTURBANCES = (
    "cut", "cut", "cut", "cut", "rights", "rights", "where", "truncate", "bound", "epoch", "crash", "prune",
)  # fmt: skip
CHUNK = 3
FULL_MESSAGES = 12


class Answer(Event, frozen=True):
    scan: int
    highs: list[int]


class Client:
    def __init__(self, number: int, where: dict[str, Any], table: Table) -> None:
        self.number = number
        self.filter: Filter = parse_filter(table, where)
        self.copy = Copy(f"copy {number}")
        self.node: Node | None = None
        self.subscription = 0
        self.inbox: deque[Event] = deque()
        self.is_full = False
        self.may_drift = False
        """It was cut within a sync: what came and went meanwhile shows at the next end."""
        self.drifts = 0


class Node:
    """A feed, and what its shell has under way: each list is read piece by piece."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.step_work: deque[Event] | None = None
        self.scans: dict[int, deque[Event]] = {}
        self.sets: dict[int, tuple[int, Snapshot, int]] = {}
        """Of scans by digest: scan, snapshot and audience of a subscription."""
        self.asked: dict[int, int] = {}
        self.later: deque[Event] = deque()
        self.asks_step: Snapshot | bool | None = False
        self.looks = 0
        self.feed = TableFeed(
            world.db.table,
            world.chance,
            rights_version=world.rights_version,
            boots_all=world.boots_all,
            recent_bytes_max=world.recent_bytes_max,
            step_ms=1,
            admitted_per_s=1_000,
        )

    def post(self, event: Event) -> None:
        for effect in self.feed.handle(event, self.world.now_ms):
            self.perform(effect)
        self.feed.check()

    def perform(self, effect: Effect) -> None:
        match effect:
            case TakeStep(since):
                self.asks_step = since
            case BeginScan():
                self.begin_scan(effect)
            case CancelScan(scan):
                self.scans.pop(scan, None)
            case StartSync(to, how):
                salt = None if how is How.LIVE else self.feed.table.salt
                for client in self.clients(to):
                    self.world.say(client, client_side.Started(client.copy.sync, how, salt))
            case SendRows(to, _, deletions, records):
                for client in self.clients(to):
                    self.world.check_permit(self, client)
                    for key in deletions:
                        self.world.say(client, client_side.DeletionCame(key))
                    for key, after in records:
                        self.world.say(client, client_side.RecordCame(key, after.seq, after.row))
            case EndSync(to, audience, snapshot, digest):
                self.end_sync(to, audience, snapshot, digest)
            case LookAtPermits(version):
                self.looks = version
            case Boot(subscription) | Refuse(subscription):
                self.later = deque(
                    one for one in self.later if getattr(one, "subscription", 0) != subscription
                )
                booted = self.world.by_subscription.get(subscription)
                if booted is not None and booted.subscription == subscription:
                    self.world.cut(booted)
            case _:
                raise AssertionError(effect)

    def clients(self, to: tuple[int, ...]) -> list[Client]:
        found = [self.world.by_subscription[one] for one in to]
        for number, client in zip(to, found, strict=True):
            assert client.subscription == number, "sent to one that is gone"
        return found

    def truth(self, audience: int, at: Snapshot) -> dict[Key, After]:
        seen = self.feed.audiences[audience].sees
        rows = self.world.db.rows(at)
        return {k: After(v.seq, v.scopes, v.row) for k, v in rows.items() if seen(v.scopes)}

    def begin_scan(self, effect: BeginScan) -> None:
        truth = self.truth(effect.audience, effect.snapshot)
        digest = digest_of_rows(self.feed.table.salt, ((k, a.seq) for k, a in truth.items()))
        work: deque[Event] = deque()
        rows = list(truth.items())
        match effect.how:
            case How.FULL:
                for at in range(0, len(rows), CHUNK):
                    work.append(ScanRead(effect.scan, tuple(rows[at : at + CHUNK])))
                work.append(ScanEnded(effect.scan, digest))
            case How.DIGEST:
                work.append(ScanEnded(effect.scan, digest))
                for one in effect.to:
                    self.sets[one] = (effect.scan, effect.snapshot, effect.audience)
            case How.REPLAY:
                self.replay(effect, work)
            case _:
                raise AssertionError(effect)
        self.scans[effect.scan] = work

    def replay(self, effect: BeginScan, work: deque[Event]) -> None:
        assert effect.since is not None
        assert effect.digest is not None
        changes = self.world.db.changes(effect.since, effect.snapshot)
        if changes is None:
            work.append(ScanFailed(effect.scan))
            return
        audience = self.feed.audiences[effect.audience]
        rolled = RowDigest(self.feed.table.salt, effect.digest)
        for change in changes:
            was, is_in = audience.was_and_is(change)
            rolled.roll(change, was_in=was, is_in=is_in)
            if is_in and change.after is not None:
                after = change.after
                work.append(client_side.RecordCame(change.key, after.seq, after.row))
            elif was:
                work.append(client_side.DeletionCame(change.key))
        work.extend(SyncDone(effect.scan, one, rolled.digest()) for one in effect.to)

    def end_sync(self, to: tuple[int, ...], number: int, at: Snapshot, digest: Digest) -> None:
        audience = self.feed.audiences[number]
        truth = self.truth(number, at)
        right = digest_of_rows(self.feed.table.salt, ((k, a.seq) for k, a in truth.items()))
        assert digest == right, f"RF4: the digest of {number} at {at}"
        cursor = KEYS.sign(
            TableCursor("runs", self.feed.table.epoch, at, *audience.identity, digest)
        )
        for client in self.clients(to):
            self.world.check_permit(self, client)
            self.world.say(client, client_side.Ended(client.copy.sync, cursor, digest))

    def answer(self, client: Client) -> None:
        """To the question what it has: all hashes of the scan, in one go. It goes the way of all messages."""
        scan, at, audience = self.sets.get(client.subscription, (0, None, 0))
        if at is None or not self.is_in(client, scan):
            # It was put into another scan, which it hears of by another start; or that is over already.
            return
        rows = ((key, after.seq) for key, after in self.truth(audience, at).items())
        self.world.say(client, Answer(scan, row_hashes(self.feed.table.salt, rows)[:, 0].tolist()))

    def fetch(self, client: Client, scan: int, wanted: set[int]) -> None:
        """The rows with these hashes come as records, and then the sync is over."""
        if not self.is_in(client, scan):
            return
        _, at, audience = self.sets[client.subscription]
        truth, salt = self.truth(audience, at), self.feed.table.salt
        highs = row_hashes(salt, ((key, after.seq) for key, after in truth.items()))[:, 0].tolist()
        work = self.scans[-client.subscription] = deque()
        self.asked[client.subscription] = scan
        for (key, after), high in zip(truth.items(), highs, strict=True):
            if high in wanted:
                work.append(client_side.RecordCame(key, after.seq, after.row))
        digest = digest_of_rows(salt, ((key, after.seq) for key, after in truth.items()))
        work.append(SyncDone(scan, client.subscription, digest))

    def is_in(self, client: Client, scan: int) -> bool:
        live = self.feed.subscriptions.get(client.subscription)
        return live is not None and live.scan == scan != 0

    def advance(self) -> bool:
        """One piece of something that is under way."""
        chance = self.world.chance
        ways: list[Any] = []
        if self.later:
            ways.append(lambda: self.post(self.later.popleft()))
        if self.asks_step is not False:
            ways.append(self.begin_step)
        if self.step_work is not None:
            ways.append(self.go_on_step)
        if self.looks:
            ways.append(self.look)
        if self.feed.rights_version < self.world.rights_version:
            ways.append(lambda: self.post(RightsHeard(self.world.rights_version)))
        busy = [scan for scan, work in self.scans.items() if work]
        if busy:
            ways.append(lambda: self.go_on_scan(chance.choice(busy)))
        if not ways:
            return False
        chance.choice(ways)()
        return True

    def begin_step(self) -> None:
        since, self.asks_step = self.asks_step, False
        db = self.world.db
        if self.world.is_wild and self.world.chance.random() < 0.03:
            self.post(StepFailed())
            return
        until = db.snapshot()
        assert not isinstance(since, bool)
        is_other = self.feed.table.epoch != db.table.epoch
        self.post(StepBegun(until, db.table))
        self.step_work = deque()
        changes = None if since is None or is_other else db.changes(since, until)
        if changes is None:
            self.world.resyncs += since is not None
            self.step_work.append(Resync("the log does not reach back"))
        for at in range(0, len(changes or ()), CHUNK):
            self.step_work.append(ChangesRead(tuple((changes or [])[at : at + CHUNK])))

    def go_on_step(self) -> None:
        assert self.step_work is not None
        if self.world.is_wild and self.world.chance.random() < 0.03:
            self.step_work = None
            self.post(StepFailed())
        elif self.step_work:
            self.post(self.step_work.popleft())
        else:
            self.step_work = None
            self.post(StepEnded())

    def go_on_scan(self, scan: int) -> None:
        event = self.scans[scan].popleft()
        if not self.scans[scan]:
            del self.scans[scan]
        if isinstance(event, client_side.RecordCame | client_side.DeletionCame):
            found = self.feed._members.admission.scans.get(scan)
            numbers = [-scan] if scan < 0 else sorted(found.members) if found is not None else []
            for number in numbers:
                client = self.world.by_subscription[number]
                live = self.feed.subscriptions.get(number)
                wanted = self.asked.get(number) if scan < 0 else scan
                if client.subscription == number and live is not None and live.scan == wanted:
                    self.world.check_permit(self, client)
                    self.world.say(client, event)
            return
        self.post(event)

    def look(self) -> None:
        self.looks = 0
        version = self.world.rights_version
        permits = {
            number: self.world.permits[self.world.by_subscription[number].number]
            for number in self.feed.subscriptions
        }
        self.post(PermitsLooked(version, permits))


class World:
    def __init__(
        self, seed: int, *, boots_all: bool = False, recent_bytes_max: int = 2_000
    ) -> None:
        self.chance = Random(seed)
        self.boots_all, self.recent_bytes_max = boots_all, recent_bytes_max
        self.db = ModelPostgres(self.chance)
        self.now_ms = 0
        self.steps = 0
        self.is_wild = True
        self.rights_version = 1
        self.permits: dict[int, Permit] = {}
        self.permit_since: dict[int, list[tuple[int, bytes]]] = {}
        self.by_subscription: dict[int, Client] = {}
        self._last_subscription = 0
        self.clients = [
            Client(n, self.chance.choice(WHERES), self.db.table)
            for n in range(self.chance.randint(2, 6))
        ]
        for client in self.clients:
            self.change_rights(client)
        self.nodes = [Node(self, "a"), Node(self, "b")]
        self.rarity = self.chance.choice([0.002, 0.005, 0.01, 0.03])
        self.disturbances: tuple[str, ...] = DISTURBANCES
        self.has_long_transactions = seed % 2 == 0
        """The oldest transaction stays open while thousands of others come and go."""
        self.resyncs = 0
        """Steps of feeds that said that they do not know."""
        self.naive: dict[Key, int] = {}
        self.naive_last = 0

    # --- what goes between ------------------------------------------------------------------------

    def say(self, client: Client, event: Event) -> None:
        client.inbox.append(event)

    def check_permit(self, node: Node, client: Client) -> None:
        live = node.feed.subscriptions[client.subscription]
        history = self.permit_since[client.number]
        until = [version for version, _ in history[1:]] + [1 << 60]
        valid = {
            h for (_, h), end in zip(history, until, strict=True) if end > node.feed.rights_version
        }
        assert live.audience.permit.hash in valid, "RF3: sent by a permit of before"

    def change_rights(self, client: Client) -> None:
        column = owner_column(self.db.table)
        owners = frozenset(self.chance.choice([(), (), (1,), (1, 2)]))
        permit = make_permit(column, is_all=not owners or self.chance.random() < 0.5, owners=owners)
        self.rights_version += 1
        self.permits[client.number] = permit
        self.permit_since.setdefault(client.number, []).append((self.rights_version, permit.hash))

    def connect(self, client: Client) -> None:
        client.node = self.chance.choice(self.nodes)
        self.obey(client, client_side.Connected())

    def cut(self, client: Client) -> None:
        if client.copy.state is Copying.SYNCING or client.inbox:
            client.may_drift = True
        if client.node is not None:
            client.node.post(ConnectionGone(client.subscription))
            client.node.sets.pop(client.subscription, None)
            client.node.scans.pop(-client.subscription, None)
            client.node.later = deque(
                one
                for one in client.node.later
                if getattr(one, "subscription", 0) != client.subscription
            )
        client.subscription = 0
        client.node = None
        client.inbox.clear()
        client.is_full = False
        client.copy.handle(client_side.LinkLost(), self.now_ms)

    def obey(self, client: Client, event: Event) -> None:
        for effect in client.copy.handle(event, self.now_ms):
            match effect:
                case client_side.Subscribe(_, cursor, digest):
                    self.subscribe(client, cursor, digest)
                case client_side.Reconcile():
                    assert client.node is not None
                    client.node.answer(client)
                case client_side.Drifted():
                    client.drifts += 1
                    assert client.may_drift, f"RF1: {client.number} drifted"
                    client.may_drift = False
                case client_side.Store():
                    client.may_drift = False
        client.copy.check()

    def subscribe(self, client: Client, cursor: str, digest: Digest | None) -> None:
        node = client.node
        assert node is not None
        if client.subscription:
            old = client.subscription
            node.later = deque(one for one in node.later if getattr(one, "subscription", 0) != old)
            node.sets.pop(old, None)
            node.scans.pop(-old, None)
            node.post(Unsubscribed(old))
        self._last_subscription += 1
        client.subscription = self._last_subscription
        client.is_full = False
        self.by_subscription[client.subscription] = client
        opened = KEYS.open_cursor(cursor, self.now_ms) if cursor else None
        permit = self.permits[client.number]
        fits = isinstance(opened, TableCursor) and (
            misfit(opened, node.feed.table, client.filter.hash, permit.hash) is None
        )
        wanted = Wanted(
            client.filter,
            permit,
            self.rights_version,
            opened if fits and isinstance(opened, TableCursor) else None,
            How.FULL if digest is None else How.DIGEST,
        )
        # Rights were read; what changes before it is registered makes it one of before.
        node.later.append(Subscribed(client.subscription, client.subscription, wanted))

    # --- what happens -----------------------------------------------------------------------------

    def write(self) -> None:
        db, chance = self.db, self.chance
        if not db.open or (len(db.open) < 4 and chance.random() < 0.3):
            db.begin()
        xid = chance.choice(sorted(db.open))
        drawn = chance.random()
        is_kept = self.has_long_transactions and xid == min(db.open) and chance.random() < 0.98
        if drawn < 0.3 and not is_kept:
            db.end(xid, is_committed=chance.random() < 0.85)
            return
        scopes = None
        if chance.random() < 0.75:
            scopes = (
                chance.choice([1, 2, 3, None]),
                chance.choice(["NEW", "OLD", None]),
                Decimal(chance.randint(0, 6)),
                chance.choice(["a", "b"]),
            )
        db.write(xid, (str(chance.randint(1, 12)),), scopes)

    def happen(self) -> None:
        chance = self.chance
        self.now_ms += chance.randint(0, 3)
        drawn = chance.random()
        client = chance.choice(self.clients)
        node = chance.choice(self.nodes)
        rare = self.rarity
        if drawn < 0.22:
            self.write()
        elif drawn < 0.60:
            node.advance()
        elif drawn < 0.86:
            self.deliver(client)
        elif drawn < 0.92:
            node.post(Tick())
        elif drawn < 0.95:
            if client.node is None:
                self.connect(client)
        elif drawn < 0.955:
            self.poll_naively()
        elif drawn < 0.96:
            self.prune()
        elif drawn < 0.96 + rare:
            self.disturb(client, node)
        self.watch_buffers(client)

    def prune(self) -> None:
        """Moments are kept, and lines go that were visible so long ago that all nodes and clients are
        beyond."""
        db = self.db
        db.keep_moment()
        positions = [node.feed.snapshot for node in self.nodes if node.feed.snapshot is not None]
        for client in self.clients:
            opened = KEYS.open_cursor(client.copy.cursor, self.now_ms)
            if isinstance(opened, TableCursor) and opened.snapshot is not None:
                positions.append(opened.snapshot)
        seen = [
            moment
            for moment in db.moments
            if all(LogReach().pruned(moment.xmax - 1, moment).reaches(one) for one in positions)
        ]
        if seen:
            db.prune(seen[-1])
            db.moments = db.moments[db.moments.index(seen[-1]) :]

    def disturb(self, client: Client, node: Node) -> None:
        """What is rare, or nothing would ever come to its end."""
        what = self.chance.choice(self.disturbances)
        if what == "cut" and client.node is not None:
            self.cut(client)
        elif what == "rights":
            self.change_rights(client)
        elif what == "truncate":
            self.db.truncate()
        elif what == "bound":
            self.db.pass_the_bound()
        elif what == "prune":
            # Beyond the bound of the log, whoever has not seen it yet.
            self.db.prune(self.db.snapshot())
        elif what == "epoch":
            self.db.epoch += 1
        elif what == "crash":
            self.crash(node)
        elif what == "where" and client.node is not None:
            client.filter = parse_filter(self.db.table, self.chance.choice(WHERES))
            for effect in client.copy.change():
                assert isinstance(effect, client_side.Subscribe)
                self.subscribe(client, effect.cursor, effect.digest)
            # What was on its way is of the subscription before, and still comes.
            client.inbox.append(client_side.Started(client.copy.sync - 1, How.LIVE))
            client.inbox.append(client_side.DeletionCame(("1",)))
        self.watch_buffers(client)

    def deliver(self, client: Client) -> bool:
        if not client.inbox:
            return False
        event = client.inbox.popleft()
        if isinstance(event, Answer):
            self.repair(client, event)
        else:
            self.obey(client, event)
        return True

    def repair(self, client: Client, answer: Answer) -> None:
        """What the node lacks goes; what it has besides is fetched, as `CopyRepairer` does."""
        assert client.node is not None
        own = client.copy.frozen()
        theirs = np.array(answer.highs, np.uint64)
        client.copy.remove(own.having(own.high[~np.isin(own.high, theirs)]))
        client.node.fetch(client, answer.scan, set(answer.highs) - set(own.high.tolist()))

    def watch_buffers(self, client: Client) -> None:
        if client.node is None or client.subscription not in client.node.feed.subscriptions:
            return
        if not client.is_full and len(client.inbox) > FULL_MESSAGES:
            client.is_full = True
            client.node.post(BufferFull(client.subscription))
        elif client.is_full and not client.inbox:
            client.is_full = False
            client.node.post(Drained(client.subscription))

    def crash(self, node: Node) -> None:
        for client in self.clients:
            if client.node is node:
                self.cut(client)
        self.nodes[self.nodes.index(node)] = Node(self, node.name)

    def poll_naively(self) -> None:
        """The control: whoever asks for `seq > last` misses what commits late."""
        rows = self.db.rows(self.db.snapshot())
        fresh = {key: one.seq for key, one in rows.items() if one.seq > self.naive_last}
        self.naive.update(fresh)
        self.naive_last = max([self.naive_last, *fresh.values()])

    # --- quiescence -------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.steps += 1
            self.happen()
        self.settle()

    def settle(self) -> None:
        """Writers end, nothing is cut any more, and everybody comes to rest."""
        self.is_wild = False
        for xid in sorted(self.db.open):
            self.db.end(xid, is_committed=self.chance.random() < 0.5)
        self.poll_naively()
        quiet = 0
        for _ in range(3_000):
            self.steps += 1
            self.now_ms += 2
            is_busy = False
            for client in self.clients:
                if client.node is None:
                    self.connect(client)
                    is_busy = True
                while self.deliver(client):
                    is_busy = True
                self.watch_buffers(client)
                is_busy |= client.copy.state is not Copying.SYNCED
            for node in self.nodes:
                node.post(Tick())
                for _ in range(6):
                    node.advance()
            quiet = 0 if is_busy else quiet + 1
            if quiet > 12:
                break
        else:
            raise AssertionError("no rest")
        self.check_copies()

    def check_copies(self) -> None:
        rows = self.db.rows(self.db.snapshot())
        for client in self.clients:
            permit = self.permits[client.number]
            right = {
                key: (one.seq, one.row)
                for key, one in rows.items()
                if permit.matches(one.scopes[0]) and client.filter.matches(one.scopes)
            }
            assert client.copy.rows == right, f"RF1: the copy of {client.number}"
            versions = ((key, seq) for key, (seq, _) in right.items())
            assert client.copy.digest() == digest_of_rows(client.copy.salt, versions)
