"""A valid instance of every command that a node hears, about what `owner` has.

A kind is made from the names of its fields, so that a new one needs a line here only where it has a field
that no other has; `VARIANTS` are calls of the same kind whose need differs by what they name.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

import msgspec
import xxhash

from moorline.core.delivery.progress import Cursor
from moorline.core.group.message import UpdateProgress
from moorline.node.access import OF_LINKS
from moorline.wire import (
    access,
    cluster,
    group,
    pipeline_run,
    queue,
    records,
    resolver,
    service,
    staging,
    topic,
    topic_deletion,
    view,
)
from moorline.wire import service_operator as operator
from moorline.wire.message import Call, Message
from moorline.wire.packed_rows import packed
from moorline.wire.protocol import HeardByNode
from moorline.wire.pull import TakeMessages
from moorline.wire.stream_file import ReadStreamFile

TOPIC = "owner/t"
GROUP = f"$share/owner/{TOPIC}"
SESSION = "owner-session"
NEW = "a name for each caller"
SPARE = "a node for each caller, to be removed"
KINDS: list[type[Message]] = sorted(
    (kind for kind in get_args(HeardByNode) if kind not in OF_LINKS),
    key=lambda kind: (kind.__module__, int(str(kind.__struct_config__.tag))),
)
RECORD = topic.Record(TOPIC, b"m")
CHUNK = packed([RECORD], 1).encoded()
HASH = xxhash.xxh3_128_digest(CHUNK)

OF_SERVICE = frozenset(
    {
        service.Associate,
        service.Dissociate,
        service.SubscribeService,
        service.AskRanges,
        service.AskLists,
    }
)
"""These are about the service that the session acts for: it tries to open one first."""
OF_FEED = frozenset(
    {
        TakeMessages,
        topic.UnsubscribeTopic,
        topic.AckMessages,
        topic.RejectMessage,
        topic.GiveBack,
        topic.ConfirmLost,
    }
)
"""These are about a subscription of the session: it tries to subscribe first."""


class Things(NamedTuple):
    """What `owner` has at the moment of a call."""

    queue: bytes = bytes(24)
    stage: bytes = bytes(16)
    who: str = ""
    """The caller, for names that are to be its own."""


FIELDS: dict[str, Any] = {
    "client_id": "nobody",
    "amount": 10,
    "address": "tcp://0.0.0.0:1",
    "agreement": service.Agreement(),
    "asked_by": "owner",
    "attempt": 0,
    "batch": 0,
    "blocked": True,
    "closed": True,
    "body": b"m",
    "bytes": 0,
    "bytes_max": 4_096,
    "claims": [],
    "count": 0,
    "deliveries_max": 3,
    "entries": [],
    "epoch": 1,
    "expiry_s": 60,
    "feed": 1,
    "files": 0,
    "filter": TOPIC,
    "filters": [TOPIC],
    "force": True,
    "generation": 1,
    "glob": "/owner/*",
    "grants": "s",
    "group": GROUP,
    "hash": bytes(16),
    "home": SPARE,
    "ids": [1],
    "instance": bytes(16),
    "is_disabled": False,
    "is_forced": True,
    "is_over": True,
    "key": bytes(32),
    "kind": "queues",
    "known_as": "ab" * 32,
    "label": "nightly",
    "letters": "s",
    "mechanisms": ("anonymous",),
    "member": "nobody",
    "message": 1,
    "move": bytes(16),
    # A set of one table, which is judged by itself.
    "messages": msgspec.msgpack.encode([records.Subscribe(1, [records.TableSubscription("t")])]),
    "name": "guest",
    "number": 1,
    "offset": 0,
    "old_for_ms": 60_000,
    "part": "segment",
    "partition": 0,
    "path": "/topics/owner",
    "paths": ["/owner/value"],
    "pieces": (),
    "position": 0,
    "prefixes": [(0, 0)],
    "principal": "guest",
    "query": "query",
    "ranges": [(0, 1)],
    "reader": 1,
    "records": [RECORD],
    "right": "s",
    "rows": CHUNK,
    "run": "run-1",
    "service": "owner",
    "shard": 0,
    "start": "beginning",
    "state": "running",
    "subject": "guest",
    "subscription": 1,
    "table": "things",
    "ticket": 1,
    "time_us": 0,
    "to": "node-2",
    "topic": TOPIC,
    "upto": 1,
    "view": "nodes",
    "watch": 1,
    "what": "./archive",
    "work": group.DeleteGroup(0, GROUP),
}
OF_KIND: dict[type[Message], dict[str, Any]] = {
    access.AddUser: {"name": "newcomer"},
    access.RemoveUser: {"name": "newcomer"},
    access.AddMember: {"group": "@crew"},
    access.RemoveMember: {"group": "@crew"},
    group.ForLeader: {
        "message": UpdateProgress("borrower", 1, 1, 1, Cursor(1_000_000), 1_000_000, final=True)
    },
    records.ResumeRecords: {"sync": 1, "known": bytes(28), "where": b"", "columns": None},
    pipeline_run.TellRun: {"kind": "archive"},
    staging.CloseStage: {"count": 1, "hash": HASH},
    resolver.ListPaths: {"path": "/owner"},
    topic.OpenSession: {"name": SESSION},
}
OPTIONAL: dict[type[Message], tuple[str, ...]] = {
    access.AddGrant: ("grants",),
    access.RemoveGrant: ("letters",),
    access.ListGrants: ("path",),
    access.ChangeUser: ("is_disabled",),
    cluster.RemoveNode: ("is_forced",),
    cluster.DrainNode: ("home", "is_over"),
    topic.ListTopics: ("filter",),
    # Others are known to the catalog that never ran.
    topic_deletion.DeleteTopic: ("force",),
    staging.CommitStaged: ("aside",),
    service.ListServiceParts: ("service",),
}
"""Fields with a default that would make the call about something else."""


class Row(NamedTuple):
    """A line of the table."""

    kind: type[Message]
    variant: str = ""
    fields: Mapping[str, Any] = {}

    @property
    def label(self) -> str:
        name = f"`{self.kind.__name__}`"
        return f"{name} {self.variant}" if self.variant else name


VARIANTS: tuple[Row, ...] = (
    Row(access.CheckGrant, "of another", {"subject": "guest"}),
    Row(access.ExplainGrant, "of another", {"subject": "guest"}),
    Row(access.AddGrant, "at `/`", {"path": "/"}),
    Row(access.ListGrants, "at `/`", {"path": "/"}),
    Row(group.DescribeGroup, "that is not there", {"group": "$share/none/owner/t"}),
    Row(group.CreateGroup, "of all topics", {"group": "$share/all/#"}),
    Row(queue.Send, "that is not there", {"queue": bytes(24)}),
    Row(queue.Get, "that is not there", {"queue": bytes(24)}),
    Row(queue.DescribeQueue, "that is not there", {"queue": bytes(24)}),
    Row(operator.DescribeService, "that is not there", {"service": "none"}),
    Row(resolver.ResolvePaths, "of a node", {"paths": ["/nodes/node-1"]}),
    Row(staging.CommitStaged, "with a topic for what is refused", {"aside": TOPIC}),
    Row(topic.ListTopics, "of all", {"filter": "#"}),
    Row(topic.OpenSession, "of a new name", {"name": NEW}),
    Row(topic.Publish, "to `$SYS/x`", {"records": [topic.Record("$SYS/x", b"m")]}),
    Row(topic.Publish, "to `$dead/x`", {"records": [topic.Record("$dead/x", b"m")]}),
    Row(topic.SubscribeTopic, "of all", {"filter": "#"}),
    Row(topic.SubscribeTopic, "as a member", {"filter": GROUP}),
    Row(topic.SubscribeTopic, "of the audit", {"filter": "$SYS/audit/#"}),
    Row(topic.SubscribeTopic, "of dead letters", {"filter": "$dead/#"}),
    Row(ReadStreamFile, "of an index", {"part": "index"}),
    Row(view.SubscribeView, "of a group", {"view": f"groups/{GROUP}"}),
    Row(view.SubscribeView, "of a service", {"view": "services/owner"}),
    Row(view.SubscribeView, "of a page of queues", {"view": "list/[36,0]"}),
    Row(view.SubscribeView, "of a page of services", {"view": "list/[70,0]"}),
)


def rows() -> list[Row]:
    """All kinds, each with its variants behind it."""
    found: list[Row] = []
    for kind in KINDS:
        found += [Row(kind), *(row for row in VARIANTS if row.kind is kind)]
    return found


def maker(row: Row, things: Things) -> Callable[[int], Any]:
    """What a caller makes of its next number."""
    kind = row.kind
    own = {
        "queue": things.queue,
        "queues": [things.queue],
        "stage": things.stage,
        "stages": [things.stage],
        "aside": "",
    }
    known = FIELDS | own | OF_KIND.get(kind, {}) | dict(row.fields)
    if kind is staging.CommitStaged:
        known["stages"] = [(things.stage, 1, HASH)]
    if known["name"] == NEW:
        known["name"] = f"new-{things.who}"
    if known["home"] == SPARE:
        known["home"] = f"spare-{things.who}"
    named = {
        field.name: known[field.name]
        for field in msgspec.structs.fields(kind)
        if field.name != "call"
        and (field.required or field.name in row.fields or field.name in OPTIONAL.get(kind, ()))
    }
    if not issubclass(kind, Call):
        message = kind(**named)
        return lambda _: message
    return lambda number: kind(call=number, **named)
