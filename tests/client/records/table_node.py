"""A node that serves one table from memory over the native protocol: real sockets, the real answering side.

It replays while its log reaches back, answers by digest, or sends all; and fails as a test asks for.
"""

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec

from moorline.config.addresses import Address
from moorline.core.records.row_hash import NAME, digest_of_rows, row_hashes
from moorline.core.sets.answerer import sketch_or_list
from moorline.core.sets.asker import Mode, listed_of
from moorline.core.sets.digest import DIGEST_BYTES, Digest
from moorline.core.sets.estimate import ESTIMATE_BYTES, Estimate
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.prefix import ALL, Prefix
from moorline.core.sets.sketch import Salt
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Session
from moorline.wire.link import Welcome
from moorline.wire.message import Answer
from moorline.wire.records import (
    ColumnFacts,
    Deletion,
    Fetch,
    Lists,
    RangeFacts,
    Ranges,
    Record,
    RecordMessage,
    RecordMessages,
    Refused,
    ResumeRecords,
    Subscribe,
    SyncEnd,
    SyncStart,
    TableSubscription,
    Told,
    Verify,
    node_msgpack,
    where_msgpack,
)

SALT = 0x5EED_5EED_5EED_5EED
NAMED = "experiments"
Version = tuple[int, dict[str, Any]]


class ServedTable:
    """Rows, and what changed: shared by nodes, as a database is."""

    def __init__(self) -> None:
        self.rows: dict[int, Version] = {}
        self.log: list[int] = []
        self.forgotten = 0
        """Changes that the log does not have any more."""
        self.seq = 0
        self.columns = [("id", "bigint"), ("workspace_id", "integer"), ("state", "text")]
        self.allowed: set[int] | None = None
        """Workspaces that may be seen; None: all."""

    def put(self, key: int, state: str, workspace_id: int = 1) -> None:
        self.seq += 1
        row = {"id": key, "workspace_id": workspace_id, "state": state}
        self.rows[key] = (self.seq, row)
        self.log.append(key)

    def delete(self, key: int) -> None:
        del self.rows[key]
        self.log.append(key)

    def seen(self, where: dict[str, Any]) -> dict[int, Version]:
        return {
            key: version
            for key, version in self.rows.items()
            if all(version[1][name] == value for name, value in where.items())
            and (self.allowed is None or version[1]["workspace_id"] in self.allowed)
        }


class Subscribed:
    def __init__(self, session: Session, sync: int, asked: TableSubscription) -> None:
        self.session = session
        self.sync = sync
        self.asked = asked
        self.sent: dict[int, Version] = {}
        self.at = 0
        self.is_live = False


class TableNode:
    """`hows` are the ways that it went, in order; `heard` every message."""

    def __init__(self, table: ServedTable) -> None:
        self.table = table
        self.hows: list[str] = []
        self.heard: list[Any] = []
        self.refuses: tuple[str, int] | None = None
        self.roles: tuple[str, ...] = ("records",)
        self.lies = 0
        """So many ends of syncs tell a digest that is wrong."""
        self.cut_after: int | None = None
        """Messages until the link of whoever is sent the next one is cut, once."""
        self._subscribed: dict[Session, Subscribed] = {}
        self._listeners = Listeners(Admission("loopback", 100, 10_000, 600_000))
        self._protocol = NativeProtocol(
            {RecordMessages: self._messages, ResumeRecords: self._resumed}, self._welcome
        )
        self.address = ""

    @contextlib.asynccontextmanager
    async def open(self, port: int = 0) -> AsyncIterator[str]:
        wanted = Address("tcp", "127.0.0.1", port)
        (address,) = await self._listeners.open(wanted, None, self._protocol)
        self.address = str(address)
        try:
            yield self.address
        finally:
            await self._listeners.close()

    @property
    def connections(self) -> int:
        return len(self._subscribed)

    def cut(self) -> None:
        """Like a fault, or a boot."""
        for session in list(self._subscribed):
            session.abort()

    def publish(self) -> None:
        """A step: whoever is live hears what has changed."""
        for one in self._subscribed.values():
            if one.is_live:
                self._start(one, "live")
                self._difference(one)
                self._end(one)

    # --- inside -----------------------------------------------------------------------------------

    def _welcome(self, version: int, keepalive_ms: int) -> Welcome:
        return Welcome(version, "n", roles=self.roles, keepalive_ms=keepalive_ms)

    def _messages(self, session: Session, calls: list[RecordMessages]) -> list[Answer]:
        for call in calls:
            for message in node_msgpack.decode(call.messages):
                self.heard.append(message)
                self._take(session, message)
        return []

    def _resumed(self, session: Session, calls: list[ResumeRecords]) -> list[Answer]:
        """As a subscribe that says the same; its cursors are none that have a brief form."""
        for one in calls:
            wanted = TableSubscription(
                one.table,
                where_msgpack.decode(one.where) if one.where else {},
                one.columns,
                digest=one.known[-DIGEST_BYTES:],
            )
            self.heard.append(Subscribe(one.sync, [wanted]))
            self._take(session, self.heard[-1])
        return []

    def _left(self, session: Session) -> None:
        self._subscribed.pop(session, None)

    def _take(self, session: Session, message: Any) -> None:
        if isinstance(message, Subscribe):
            if session not in self._subscribed:
                session.at_end(partial(self._left, session))
            self._subscribe(Subscribed(session, message.sync, message.tables[0]))
            return
        one = self._subscribed[session]
        if message.sync != one.sync:
            return
        ids = self._ids(one)
        match message:
            case Verify():
                self._say(one, self._verified(message, ids))
            case Ranges(sync, table, prefixes):
                found = ids.ranges([prefix_of(text) for text in prefixes])
                facts = [RangeFacts(each.count, f"{each.hash:016x}") for each in found]
                self._say(one, Told(sync, table, ranges=facts))
            case Lists(sync, table, prefixes):
                lists = [listed_of(ids.highs(prefix_of(text))) for text in prefixes]
                self._say(one, Told(sync, table, lists=lists))
            case Fetch(_, _, []):
                self._end(one)
            case Fetch(_, _, prefixes):
                keys = list(one.sent)
                for text in prefixes:
                    for place in ids.order[ids.slice_of(prefix_of(text))].tolist():
                        self._record(one, one.sent[keys[place]])

    def _subscribe(self, one: Subscribed) -> None:
        self._subscribed[one.session] = one
        if self.refuses is not None:
            code, return_ms = self.refuses
            self._say(one, Refused(one.sync, NAMED, code, "a test wants it", return_ms))
            return
        one.sent = self.table.seen(one.asked.where)
        at = self._replayed_from(one)
        one.at = len(self.table.log)
        if at is not None:
            self._start(one, "replay")
            seen = self.table.seen(one.asked.where)
            changed = dict.fromkeys(self.table.log[at:])
            for key in changed:
                if key not in seen:
                    self._say(one, Deletion(NAMED, [str(key)]))
            for key in changed:
                if key in seen:
                    self._record(one, seen[key])
            self._end(one)
        elif one.asked.digest is not None:
            self._start(one, "digest")
        else:
            self._start(one, "full")
            for version in one.sent.values():
                self._record(one, version)
            self._end(one)

    def _replayed_from(self, one: Subscribed) -> int | None:
        if not one.asked.cursor:
            return None
        at, where, allowed = msgspec.json.decode(one.asked.cursor)
        now = (one.asked.where, sorted(self.table.allowed or ()))
        return at if (where, allowed) == now and at >= self.table.forgotten else None

    def _difference(self, one: Subscribed) -> None:
        now = self.table.seen(one.asked.where)
        for key in one.sent.keys() - now.keys():
            self._say(one, Deletion(NAMED, [str(key)]))
        for key, version in now.items():
            if one.sent.get(key) != version:
                self._record(one, version)
        one.sent, one.at = now, len(self.table.log)

    def _verified(self, asked: Verify, ids: IdSet) -> Told:
        salt, own, theirs = sketch_salt(), ids.digest(), Digest.from_bytes(asked.digest)
        differences = None
        if len(asked.estimate) == ESTIMATE_BYTES:
            differences = ids.estimate(salt).differences(Estimate.parse(salt, asked.estimate))
        mode, cells = sketch_or_list(own, theirs, differences, asked.cells_min)
        payload = b""
        if mode is Mode.SKETCH:
            payload = bytes(ids.sketch(salt, cells))
        elif mode is Mode.LIST:
            payload = listed_of(ids.highs(ALL))
        return Told(asked.sync, asked.table, bytes(own), mode.value, cells, payload)

    def _start(self, one: Subscribed, how: str) -> None:
        self.hows.append(how)
        if how == "live":
            self._say(one, SyncStart(one.sync, NAMED, how))
            return
        chosen = one.asked.columns
        columns = [
            ColumnFacts(name, type_)
            for name, type_ in self.table.columns
            if chosen is None or name in chosen or name == "id"
        ]
        self._say(one, SyncStart(one.sync, NAMED, how, ["id"], columns, f"{SALT:016x}", NAME))

    def _end(self, one: Subscribed) -> None:
        digest = digest_of_rows(SALT, [((str(key),), seq) for key, (seq, _) in one.sent.items()])
        if self.lies:
            self.lies -= 1
            digest = Digest(digest.count, bytes(16))
        cursor = [one.at, one.asked.where, sorted(self.table.allowed or ())]
        one.is_live = True
        self._say(
            one, SyncEnd(one.sync, NAMED, msgspec.json.encode(cursor).decode(), bytes(digest))
        )

    def _record(self, one: Subscribed, version: Version) -> None:
        chosen = one.asked.columns
        row = {
            name: value
            for name, value in version[1].items()
            if chosen is None or name in chosen or name == "id"
        }
        self._say(one, Record(NAMED, version[0], msgspec.Raw(msgspec.msgpack.encode(row))))

    def _say(self, one: Subscribed, message: RecordMessage) -> None:
        if not one.session.is_open:
            return
        if self.cut_after is not None:
            self.cut_after -= 1
            if self.cut_after < 0:
                # Behind what was sent before, which arrives.
                one.session.close("INTERNAL", "a test wants it")
                self.cut_after = None
                return
        one.session.send(RecordMessages(msgspec.msgpack.encode([message])))

    def _ids(self, one: Subscribed) -> IdSet:
        hashes = row_hashes(SALT, [((str(key),), seq) for key, (seq, _) in one.sent.items()])
        return IdSet(hashes[:, 0], hashes[:, 1])


def sketch_salt() -> Salt:
    return Salt(SALT.to_bytes(8, "big") * 2)


def prefix_of(digits: str) -> Prefix:
    return Prefix(4 * len(digits), int(digits, 16) if digits else 0)
