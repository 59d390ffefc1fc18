"""Room: client. `Moor`: a connection to a node, as a user of the library sees it.

async with moorline.connect("tcp://127.0.0.1:7411") as moor:
    print(await moor.describe())
"""

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from moorline.client.access import Access
from moorline.client.cluster import Cluster
from moorline.client.events import Events, Told
from moorline.client.group import Group, list_groups
from moorline.client.pipeline_runs import PipelineRuns
from moorline.client.publishing import Publishing, groups_of_batches
from moorline.client.queue import Inboxes, Message, Queue
from moorline.client.queue_homes import OpenHome, QueueCallers, about
from moorline.client.record import check_filter_text, check_producer
from moorline.client.role_dial import Dial
from moorline.client.staying import StayingLink
from moorline.client.subscriptions import Subscriptions
from moorline.client.topic import (
    Headers,
    OpenedSession,
    Subscribing,
    record,
    start_text,
)
from moorline.config.addresses import Address
from moorline.errors import CallFailed, ConfigError, Malformed, Stale
from moorline.ids import id_of
from moorline.limits import (
    GOODBYE_MS_MAX,
    STREAMS_PER_PAGE_MAX,
    TOPIC_WINDOW,
    TOPICS_PER_PAGE_MAX,
)
from moorline.net.caller import Caller, Calls
from moorline.wire.group import GroupFacts
from moorline.wire.message import Answer, Failed
from moorline.wire.message import Message as Pushed
from moorline.wire.mqtt_client import (
    KickMqttClient,
    ListMqttClients,
    MqttClientFacts,
    MqttClientShown,
    MqttClientsListed,
    ShowMqttClient,
)
from moorline.wire.node import (
    ClockConfirmed,
    ConfirmClock,
    Describe,
    Described,
    Echo,
    Echoed,
    ListNodes,
    NodeFacts,
    NodesListed,
)
from moorline.wire.publication import PublishTable, StopTable, TablePublished, TableStopped
from moorline.wire.queue import (
    CheckpointQueues,
    Done,
    Get,
    Got,
    ListQueues,
    NewQueue,
    QueueMade,
    QueuesCheckpointed,
    QueuesListed,
    Send,
    Sent,
)
from moorline.wire.session_list import ListSessions, SessionFacts, SessionsListed
from moorline.wire.topic import (
    NO_STREAM,
    DescribeStreams,
    ListTopics,
    Publish,
    Published,
    Record,
    StreamFacts,
    StreamsDescribed,
    TopicsListed,
)
from moorline.wire.topic_deletion import DeleteTopic, TopicDeleted

if TYPE_CHECKING:
    from moorline.client.records.asked import Asked
    from moorline.client.records.feed import RecordFeed
    from moorline.client.records.settings import RecordSettings
    from moorline.client.records.table import RecordTable
    from moorline.client.records.witness import TableWitness
    from moorline.client.service import Service

Reply = TypeVar("Reply", bound=Answer)
RECORDS = "records"
"""The role of nodes that serve tables."""


class Moor:
    """A client of a cluster. Made by `connect`; closed by `close` or the end of `async with`.

    It has one connection at a time, and unless it was made with `reconnect=False` another one follows each
    that is lost: docs/client.md says what a program may rely on.
    """

    def __init__(
        self,
        link: Caller | StayingLink,
        address: Address,
        *,
        dial_role: Callable[[str], Dial],
        open_home: OpenHome,
        told: Told | None = None,
        publishing: Publishing | None = None,
        deadline_s: float | None = None,
    ) -> None:
        self._first_address = address
        self._link = link
        self._calls: Calls = link
        self._told = told or Told()
        self._publishing = publishing
        self._dial_role = dial_role
        self._inboxes = Inboxes()
        self._callers = QueueCallers(link, open_home, deadline_s=deadline_s)
        self._callers.opened = self._home_opened
        self._service: Service | None = None
        here = link.current if isinstance(link, StayingLink) else link
        assert here is not None, "a client that has not connected"
        self._subscriptions = Subscriptions(link, here, self._told)
        link.pushed = self._first_pushed
        link.lost.add_done_callback(lambda _: self._lost())
        if isinstance(link, StayingLink):
            link.resume, link.cut = self._resume, self._cut

    @property
    def _caller(self) -> Caller:
        """The connection that there is, or was last."""
        return self._subscriptions.link

    @property
    def address(self) -> Address:
        """Of the node that it is connected to, or was last."""
        found = self._link.address if isinstance(self._link, StayingLink) else None
        return found or self._first_address

    @property
    def is_connected(self) -> bool:
        return self._link.is_open

    def events(self) -> Events:
        """What happens to the connection and to what is subscribed, from now on: iterate over it."""
        return self._told.listen()

    async def describe(self) -> Described:
        """What the node says of itself."""
        return await self._calls.call(Describe, Described)

    @property
    def cluster(self) -> Cluster:
        """What an operator does to the nodes of the cluster."""
        return Cluster(self._callers, self._calls)

    async def nodes(self) -> list[NodeFacts]:
        """All nodes of the cluster, by their homes, those that are away included."""
        found: list[NodeFacts] = []
        while True:
            after = found[-1].home if found else ""
            page = await self._calls.call(partial(ListNodes, after=after), NodesListed)
            found += page.nodes
            if page.is_last or not page.nodes:
                return found

    async def sessions(self) -> list[SessionFacts]:
        """All durable sessions of the cluster, by name."""
        found: list[SessionFacts] = []
        while True:
            after = found[-1].name if found else ""
            page = await self._calls.call(partial(ListSessions, after=after), SessionsListed)
            found += page.sessions
            if page.is_last or not page.sessions:
                return found

    async def mqtt_clients(self) -> list[MqttClientFacts]:
        """Clients of MQTT that are connected to the node, and sessions that the catalog keeps."""
        found: list[MqttClientFacts] = []
        while True:
            after = found[-1].client_id if found else ""
            page = await self._calls.call(partial(ListMqttClients, after=after), MqttClientsListed)
            found += page.clients
            if page.is_last or not page.clients:
                return found

    async def mqtt_client(self, client_id: str) -> tuple[MqttClientFacts, list[tuple[str, int]]]:
        """One of them, with its filters and their QoS."""
        asked = partial(ShowMqttClient, client_id=client_id)
        shown = await self._calls.call(asked, MqttClientShown)
        return shown.client, list(shown.filters)

    async def kick_mqtt_client(self, client_id: str, *, ends_session: bool = False) -> None:
        """The operator's: ends its connection, and with `ends_session` what is kept of it."""
        asked = partial(KickMqttClient, client_id=client_id, ends_session=ends_session)
        await self._calls.call(asked, Done)

    async def confirm_clock(self) -> ClockConfirmed:
        """The operator's: the node's wall clock is right, although it has jumped."""
        return await self._calls.call(ConfirmClock, ClockConfirmed)

    async def echo(self, body: bytes) -> bytes:
        """The same bytes, back from the node."""
        answer = await self._calls.call(lambda call: Echo(call, body), Echoed)
        return answer.body

    async def echo_all(self, bodies: Sequence[bytes]) -> list[Answer]:
        """Many at once, in as few frames as they need."""
        return await self._calls.call_all(
            [lambda call, body=body: Echo(call, body) for body in bodies]  # type: ignore[misc]
        )

    # --- queues -----------------------------------------------------------------------------------

    async def create_queue(self) -> Queue:
        """A new queue; the node draws its id, and we own it."""
        made = await self._calls.call(NewQueue, QueueMade)
        return self.queue(made.queue)

    async def create_queues(self, count: int) -> list[Queue]:
        answers = await self._calls.call_all([NewQueue] * count)
        return [self.queue(_expected(answer, QueueMade).queue) for answer in answers]

    def queue(self, queue_id: bytes | str) -> Queue:
        """A queue by its id; the node is not asked whether it is there."""
        known = id_of(queue_id) if isinstance(queue_id, str) else queue_id
        return Queue(self._callers, self._inboxes, known)

    async def send(self, queue_id: bytes, body: bytes) -> int:
        """Stores a message in a queue; returns its id when it is as durable as the node promises."""
        sent, _ = await self._callers.call_and_where(
            queue_id, lambda call: Send(call, queue_id, body), Sent
        )
        return sent.message

    async def send_all(self, messages: Sequence[tuple[bytes, bytes]]) -> list[int | CallFailed]:
        """Many (queue id, body) at once; for each its id, or why it was refused."""
        answers = await self._callers.call_all(
            [about(queue, Send, body) for queue, body in messages]
        )
        return [
            answer.error() if isinstance(answer, Failed) else _expected(answer, Sent).message
            for answer in answers
        ]

    async def get_all(self, queues: Sequence[Queue]) -> list[Message | None]:
        """The head of each queue, None where it is empty; without subscribing."""
        answers = await self._callers.call_all_and_where([about(queue.id, Get) for queue in queues])
        return [
            queue.message(_expected(answer, Got), caller)
            for queue, (answer, caller) in zip(queues, answers, strict=True)
        ]

    async def ack_all(self, messages: Sequence[Message]) -> list[CallFailed | None]:
        """Many acknowledgements at once, in this order; for each None, or why it was refused.

        One that is gone already is no refusal: its `is_gone` tells.
        """
        stale: dict[int, CallFailed] = {}
        for place, message in enumerate(messages):
            await message.settled()
            try:
                message.check_stale()
            except Stale as error:
                stale[place] = error
        said = [message for place, message in enumerate(messages) if place not in stale]
        # By this client's own connections, whoever got them: it is judged as who it is.
        answers = iter(
            await self._callers.call_all([(message.queue, message.acknowledge) for message in said])
        )
        return [
            stale[place] if place in stale else message.acknowledged(next(answers))[0]
            for place, message in enumerate(messages)
        ]

    async def list_queues(self, after: bytes = b"", count: int = 1_000) -> QueuesListed:
        """A page of all queues on the node, for its operator."""
        return await self._calls.call(lambda call: ListQueues(call, after, count), QueuesListed)

    async def checkpoint(self) -> QueuesCheckpointed:
        """The operator's: the node's log goes into the queues' files and the index, now."""
        return await self._calls.call(CheckpointQueues, QueuesCheckpointed)

    # --- topics -----------------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        body: bytes | None,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        ttl_s: int = 0,
        retain: bool = False,
        qos: int = 1,
        producer: str = "",
        sequence: int = 0,
    ) -> Published:
        """Stores a message, or with None a tombstone; returns its place when it is as durable as promised.

        Messages of one key, or else of one topic, stay in order. With a `producer` and a `sequence` that
        rises, a publish that is tried again is stored once.
        """
        check_producer(producer, sequence)
        one = record(topic, body, key=key, headers=headers, ttl_s=ttl_s, retain=retain, qos=qos)
        return await self._publisher.call(
            lambda call: Publish(call, [one], producer, sequence), Published
        )

    async def publish_all(
        self,
        records: Iterable[Record] | AsyncIterable[Record],
        *,
        producer: str = "",
        sequence: int = 0,
    ) -> list[Published]:
        """Many messages (`moorline.record`), in batches; for each batch how many were stored.

        They may come from any iterable, sync or async, of any length: at most `PUBLISH_BATCHES_AT_ONCE`
        batches are in memory. Where one is refused, those before it are stored, and some behind it may be.
        """
        check_producer(producer, sequence)
        calls = self._publisher
        stored: list[Published] = []
        async for batches in groups_of_batches(records):
            makes = [
                partial(_publish, batch, producer, sequence + start if producer else 0)
                for start, batch in batches
            ]
            answers = await calls.call_all(makes)
            stored += [_expected(answer, Published) for answer in answers]
        return stored

    @property
    def _publisher(self) -> Calls:
        """The way to the home of all that is published."""
        return self._calls if self._publishing is None else self._publishing.calls

    def subscribe(
        self,
        filter_text: str,
        *,
        window: int = TOPIC_WINDOW,
        start: str | int | datetime = "now",
        qos: int = 1,
    ) -> Subscribing:
        """Messages of a filter, or a part of a group's: `$shared/G/F`, or `$queue/G/F`.

        `start` is "now", "beginning", a time or an offset; a group that is there goes on where it is. At
        most `window` messages are on their way unacknowledged.
        """
        return Subscribing(self._subscriptions, filter_text, window, start_text(start), qos)

    async def session(self, name: str, *, expiry_s: int = 86_400) -> OpenedSession:
        """Makes this connection the durable session of that name; the subscriptions that it has, and in
        `left_out` those that do not go on, for want of a right or by a quota."""
        return await self._subscriptions.open_session(name, expiry_s)

    def group(self, name: str) -> Group:
        """A group by its name, `$shared/GROUP/FILTER`; the node is not asked whether it is there."""
        return Group(self._calls, name)

    async def groups(self) -> list[GroupFacts]:
        return await list_groups(self._calls)

    @property
    def access(self) -> Access:
        """Who may do what: rows of rights, users, quotas."""
        return Access(self._calls)

    @property
    def pipeline_runs(self) -> PipelineRuns:
        """Runs of the pipeline, as the cluster was told of them."""
        return PipelineRuns(self._calls)

    async def publish_table(self, table: str, topic: str) -> str:
        """This node feeds the topic with a registered table from now on; its home."""
        made = await self._calls.call(lambda call: PublishTable(call, table, topic), TablePublished)
        return made.home

    async def stop_table(self, table: str) -> str:
        """Ends that; the topic that was fed."""
        return (await self._calls.call(lambda call: StopTable(call, table), TableStopped)).topic

    async def topics(
        self, filter_text: str = "#", after: str = "", count: int = 1_000
    ) -> list[tuple[str, int]]:
        """Topics of the node behind `after`, with the number of their messages."""
        check_filter_text(filter_text)
        if not 1 <= count <= TOPICS_PER_PAGE_MAX:
            raise ConfigError(f"count is 1 to {TOPICS_PER_PAGE_MAX}, not {count}")
        listed = await self._calls.call(
            lambda call: ListTopics(call, after, filter_text, count), TopicsListed
        )
        return listed.topics

    async def delete_topic(self, topic: str, *, force: bool = False) -> TopicDeleted:
        """Hides what a topic has from all readers, at all nodes; with `force` also while nodes are away.

        Its subscriptions and groups stay. `left` are the nodes that did not say that it is done.
        """
        return await self._calls.call(lambda call: DeleteTopic(call, topic, force), TopicDeleted)

    async def streams(self) -> StreamsDescribed:
        """All streams of the node; what it holds when the last of them is told."""
        found: list[StreamFacts] = []
        after = NO_STREAM
        while True:
            asked = partial(DescribeStreams, after=after, count=STREAMS_PER_PAGE_MAX)
            told = await self._calls.call(asked, StreamsDescribed)
            found += told.streams
            if len(told.streams) < STREAMS_PER_PAGE_MAX:
                return StreamsDescribed(told.call, found, told.dropped_messages, told.lost_messages)
            after = (found[-1].shard, found[-1].generation)

    # --- records ----------------------------------------------------------------------------------

    def records(
        self,
        table: str,
        *,
        where: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        cache: Path | str | None = None,
        wait: bool = True,
        settings: "RecordSettings | None" = None,
    ) -> "RecordTable":
        """A live copy of the rows of a Postgres table that match a filter, and that we may see.

        It has a connection of its own, opened as this one was, and stays connected by itself. With a `cache`
        it begins with what that file has, and keeps it. Entered without `wait` it is there at once, with the
        rows of its cache, and `synced()` waits for the rest.
        """
        # Not at the top: it brings numpy, and most programs and commands need none of it.
        from moorline.client.records.asked import Asked
        from moorline.client.records.table import RecordTable

        asked = Asked.of(table, where, columns)
        return RecordTable(
            self._dial_role(RECORDS), asked, cache=cache, wait=wait, settings=settings
        )

    def witness(self, table: str) -> "TableWitness":
        """Hears the digest of a table's rows, as far as we may see them, and holds none of them."""
        from moorline.client.records.witness import TableWitness

        return TableWitness(self._dial_role(RECORDS), table)

    def record_feed(self, asked: "Asked", cursor: str = "") -> "RecordFeed":
        """Changes from a cursor on, for whoever keeps the rows elsewhere; without one, all rows first."""
        from moorline.client.records.feed import RecordFeed

        return RecordFeed(self._dial_role(RECORDS), asked, cursor)

    # --- services ---------------------------------------------------------------------------------

    def service(
        self, associations: Path | str, *, window: int = 1, bind: bool = False
    ) -> "Service":
        """The service of our certificate; `associations` is the file of its list on this side.

        It has the queues of all homes of the cluster; queues of a home that this cluster does not know are
        refused, and `bind` makes them queues of this node.
        """
        if self._service is not None and not self._service.is_closed:
            raise ConfigError("this connection already acts for a service: open another one")
        # Not at the top: it brings numpy, and most programs and commands need none of it.
        from moorline.client.associations import Associations
        from moorline.client.service import Service

        own = Associations(associations)
        stays = isinstance(self._link, StayingLink)
        self._service = Service(self._callers, own, window=window, bind=bind, stays=stays)
        self._inboxes.gate = self._service
        return self._service

    def _home_opened(self, caller: Caller) -> None:
        caller.pushed = partial(self._pushed, caller)
        caller.lost.add_done_callback(lambda _: self._home_lost(caller))

    def _home_lost(self, caller: Caller) -> None:
        self._inboxes.lost()
        if self._service is not None:
            self._service.connection_lost(caller)

    def _first_pushed(self, messages: list[Pushed]) -> None:
        link = self._link
        caller = link.current if isinstance(link, StayingLink) else link
        self._pushed(caller or self._caller, messages)

    def _pushed(self, caller: Caller, messages: list[Pushed]) -> None:
        for message in messages:
            if self._subscriptions.sort(message) or self._inboxes.sort(message):
                continue
            if self._service is not None:
                self._service.hear(caller, message)

    def _cut(self, link: Caller) -> None:
        """A connection is gone, and another one will follow."""
        assert isinstance(self._link, StayingLink), "nothing follows a plain connection"
        self._subscriptions.cut(link)
        self._inboxes.lost()
        if self._service is not None:
            self._service.cut(link)

    async def _resume(self, link: Caller, is_first: bool) -> None:
        if is_first:
            return
        await self._subscriptions.resume(link)
        if self._service is not None:
            self._service.resume(link)

    def _lost(self) -> None:
        self._inboxes.lost()
        self._subscriptions.lost()
        if self._service is not None:
            self._service.connection_lost(self._caller)
            self._service.over()

    async def close(self) -> None:
        """Says goodbye, and waits a moment for it to be out; whoever is cancelled here has said it."""
        self._calls.check_loop()
        self._subscriptions.leave()
        if self._publishing is not None:
            self._publishing.close()
        self._calls.close("DONE", "the client is done")
        gone = [self._calls.gone, *self._callers.close()]
        await asyncio.wait(gone, timeout=GOODBYE_MS_MAX / 1_000)


def _publish(batch: Sequence[Record], producer: str, sequence: int, call: int) -> Publish:
    return Publish(call, list(batch), producer, sequence)


def _expected(answer: Answer, kind: type[Reply]) -> Reply:
    if isinstance(answer, Failed):
        raise answer.error()
    if not isinstance(answer, kind):
        raise Malformed(f"{type(answer).__name__} is no {kind.__name__}")
    return answer
