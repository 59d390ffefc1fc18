"""Services over real sockets, TLS, files and a real Postgres: the two sides cannot drift apart."""

import asyncio
import contextlib
import itertools
import json
import random
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import msgspec
import pytest
import pytest_asyncio
import trustme
from tests.process.nodes import NodeProcess

from moorline.broker.queues import QueueBroker
from moorline.broker.services import ServiceBroker
from moorline.catalog import Catalog, EmbeddedPostgres
from moorline.catalog.services import Services
from moorline.client.associations import Associations
from moorline.client.moor import Connecting, Moor, connect
from moorline.client.queue import Message as QueueMessage
from moorline.client.service import LISTS_PER_BLOCK
from moorline.config.addresses import Address
from moorline.config.settings import Queues as Settings
from moorline.core.digest import Digest
from moorline.core.estimate import ESTIMATE_BYTES
from moorline.core.hashing import hash_ids
from moorline.core.prefix import Prefix, RangeDigest
from moorline.core.reconcile import LEAF_COUNT, LISTED_BYTES, Mode
from moorline.errors import (
    CallFailed,
    ConnectionLost,
    NotAuthorized,
    ServiceDisabled,
    SubscriptionEnded,
)
from moorline.journal.disk import FileDisk
from moorline.journal.rebuild import rebuilt_index
from moorline.journal.store import Store
from moorline.limits import BLOCK_BYTES_MAX
from moorline.net import connection as net_connection
from moorline.net.clock import wall_ms
from moorline.net.listener import Admission, Listeners
from moorline.net.session import Session
from moorline.net.tls import server_context
from moorline.node.queues import options
from moorline.wire import frame as wire_frame
from moorline.wire.link import Welcome
from moorline.wire.message import Answer, Message
from moorline.wire.queue import Delivery, Done, Subscribe, Subscribed, Unsubscribe
from moorline.wire.service import (
    PAYLOAD_PER_BLOCK,
    PREFIXES_PER_BLOCK,
    QUEUES_PER_BLOCK,
    AllDelivered,
    AskLists,
    AskRanges,
    Associate,
    Associated,
    Dissociate,
    Dissociated,
    ListsTold,
    OpenService,
    PayloadBlock,
    RangesTold,
    ServiceEnded,
    ServiceOpened,
    ServiceSubscribed,
    SubscribeService,
)

pytestmark = pytest.mark.process

WITHIN_S = 15
SOON_S = 2
"""For what comes at once or never."""

DATABASE_NUMBERS = itertools.count(1)
QUICK = Settings(
    sync="process", operators=["operator"], max_queue_messages=100, max_file_messages=101
)

Result = TypeVar("Result")


# --- a node in this process -----------------------------------------------------------------------


class Papers:
    """Certificates of a node and of whoever comes to it."""

    NAMES = ("service", "other", "operator")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = trustme.CA()
        self.ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        self._write("server", authority.issue_cert("127.0.0.1"))
        for name in self.NAMES:
            self._write(name, authority.issue_cert(f"{name}@example.org", common_name=name))

    def _write(self, name: str, certificate: trustme.LeafCert) -> None:
        certificate.private_key_and_cert_chain_pem.write_to_path(str(self.path(name)))

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def context(self) -> ssl.SSLContext:
        server = str(self.path("server"))
        return server_context(server, server, str(self.ca))

    def connect(self, address: str, name: str) -> Connecting:
        """With the certificate of that name, or without any."""
        paper = self.path(name) if name else None
        return connect(address, ca=self.ca, certificate=paper, key=paper)


class Harbour:
    """A broker with services behind a TLS listener: a node without its process."""

    def __init__(self, folder: Path, catalog: Catalog, papers: Papers, settings: Settings) -> None:
        self.folder = folder
        self.catalog = catalog
        self.papers = papers
        self.disk = FileDisk(folder / "queues")
        self.store = Store(self.disk, options(settings), wall_ms)
        self.store.open(rebuilt_index)
        self.queues = QueueBroker(self.store, settings)
        self.services = ServiceBroker(Services(catalog), self.queues)
        self.listeners = Listeners(
            self.queues.handlers() | self.services.handlers(),
            lambda version, keepalive_ms: Welcome(version, "n", keepalive_ms=keepalive_ms),
            Admission(
                anonymous="loopback",
                connections_max=50,
                hello_timeout_ms=5_000,
                keepalive_ms=15_000,
            ),
        )
        self.address = ""

    async def open(self) -> None:
        await self.services.start()
        wanted = Address("tls", "127.0.0.1", 0)
        (address,) = await self.listeners.open(wanted, self.papers.context())
        self.address = str(address)

    async def close(self) -> None:
        await self.listeners.close()
        if self.services.turns._tasks:
            await asyncio.wait(self.services.turns._tasks, timeout=WITHIN_S)
        await self.queues.commits.close()
        self.store.close()

    def connect(self, name: str = "service") -> Connecting:
        return self.papers.connect(self.address, name)

    def list_of(self, name: str = "service") -> Path:
        """The file of a client's list."""
        return self.folder / f"{name}.sqlite"

    @contextlib.contextmanager
    def listed(self, name: str = "service") -> Iterator[Associations]:
        """The client's list while no client uses it."""
        listed = Associations(self.list_of(name))
        yield listed
        listed.close()

    async def number(self, name: str = "service") -> int:
        sql = "select number from moorline.service where name = $1"
        return int(await self.catalog.fetchval(sql, name))

    async def digest(self, name: str = "service") -> Digest:
        return await self.services.services.digest(await self.number(name))

    async def associated(self, name: str = "service") -> set[bytes]:
        number = await self.number(name)
        rows = await self.catalog.fetch("select queue from association where service = $1", number)
        return {row["queue"] for row in rows}

    async def lose(self, queues: Sequence[bytes]) -> None:
        """What a restored backup does: associations and their part of the digest are gone."""
        await self.catalog.fetch("select * from moorline.dissociate($1)", list(queues))

    async def check_digests(self) -> None:
        """Invariant 1: what is kept is what a recompute gives."""
        for row in await self.services.services.all():
            assert row.digest == await self.services.services.recomputed(row.number), row.name

    def session_of(self, moor: Moor) -> Session:
        """The node's end of a connection."""
        assert moor._caller._transport is not None
        wanted = moor._caller._transport.get_extra_info("sockname")
        (found,) = [
            session
            for session in self.listeners.sessions
            if session._transport is not None
            and session._transport.get_extra_info("peername") == wanted
        ]
        return found


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedPostgres]:
    async with EmbeddedPostgres(tmp_path_factory.mktemp("data") / "catalog") as postgres:
        yield postgres


@pytest.fixture
async def catalog(postgres: EmbeddedPostgres) -> AsyncIterator[Catalog]:
    """A database of the test's own."""
    name = f"test_{next(DATABASE_NUMBERS)}"
    connection = await asyncpg.connect(postgres.dsn)
    await connection.execute(f"create database {name}")
    await connection.close()
    async with Catalog.open(postgres.dsn.replace("/postgres?", f"/{name}?")) as catalog:
        yield catalog


@contextlib.asynccontextmanager
async def harbour(
    folder: Path, catalog: Catalog, papers: Papers, settings: Settings = QUICK
) -> AsyncIterator[Harbour]:
    made = Harbour(folder, catalog, papers, settings)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
async def node(tmp_path: Path, catalog: Catalog, papers: Papers) -> AsyncIterator[Harbour]:
    """After every test the digests are those of a recompute."""
    async with harbour(tmp_path, catalog, papers) as made:
        yield made
        await made.check_digests()


# --- helpers --------------------------------------------------------------------------------------


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0.001)


async def within(work: Awaitable[Result]) -> Result:
    async with asyncio.timeout(WITHIN_S):
        return await work


async def take(messages: AsyncIterator[QueueMessage], count: int) -> list[QueueMessage]:
    """So many messages, each acknowledged."""
    taken: list[QueueMessage] = []
    async with asyncio.timeout(WITHIN_S):
        while len(taken) < count:
            message = await anext(messages)
            await message.ack()
            taken.append(message)
    return taken


async def make_queues(moor: Moor, count: int) -> list[bytes]:
    return [queue.id for queue in await moor.create_queues(count)]


async def associated(node: Harbour, count: int) -> list[bytes]:
    """So many queues, associated by the service, which then left."""
    async with node.connect() as moor:
        queues = await make_queues(moor, count)
        async with moor.service(node.list_of()) as service:
            assert await service.associate(queues) == []
    await until(lambda: not node.listeners.sessions)
    return queues


async def subscribe(moor: Moor, queue: bytes) -> None:
    """A plain SUB, if the session acts for no service."""
    await moor._caller.call(lambda call: Subscribe(call, queue), Subscribed)


async def unsubscribe(moor: Moor, queue: bytes) -> None:
    await moor._caller.call(lambda call: Unsubscribe(call, queue), Done)


class Sniffer:
    """Everything that any end of the net sends, in order, with its size."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[Message] = []
        self.encoder = msgspec.msgpack.Encoder()
        frames = wire_frame.frames

        def sniffed(messages: Sequence[Message]) -> Any:
            self.sent += messages
            return frames(messages)

        monkeypatch.setattr(net_connection, "frames", sniffed)

    def of(self, *kinds: type[Message]) -> list[Any]:
        return [message for message in self.sent if isinstance(message, kinds)]

    def sizes(self, kind: type[Message]) -> list[int]:
        return [len(self.encoder.encode(message)) for message in self.of(kind)]


@pytest.fixture
def sniffer(monkeypatch: pytest.MonkeyPatch) -> Sniffer:
    return Sniffer(monkeypatch)


class Gate:
    """Holds calls of an async method until the test opens it; after the call or before it."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, *, after: bool = False
    ) -> None:
        self.waiting = 0
        self.is_open = asyncio.Event()
        method = getattr(owner, name)

        async def gated(*values: Any, **named: Any) -> Any:
            result = await method(*values, **named) if after else None
            self.waiting += 1
            await self.is_open.wait()
            return result if after else await method(*values, **named)

        monkeypatch.setattr(owner, name, gated)

    async def reached(self, count: int = 1) -> None:
        await until(lambda: self.waiting >= count)


# --- D04, D11, D12: subscribing -------------------------------------------------------------------


async def test_d04_subs_is_answered_by_soks_then_the_messages_then_alls(
    node: Harbour, sniffer: Sniffer
) -> None:
    """D04: SOKS(count, hash), every waiting message, ALLS; new ones follow by themselves."""
    queues = await associated(node, 30)
    async with node.connect("other") as sender, node.connect() as moor:
        for queue in queues[:20]:
            await sender.send(queue, b"waits in " + queue)
        sniffer.sent.clear()
        async with moor.service(node.list_of()) as service:
            await within(service.all_delivered.wait())
            kinds = [
                type(message) for message in sniffer.of(ServiceSubscribed, Delivery, AllDelivered)
            ]
            assert kinds == [ServiceSubscribed, *[Delivery] * 20, AllDelivered]
            (soks,) = sniffer.of(ServiceSubscribed)
            assert Digest(soks.count, soks.hash) == Digest.of(queues)
            assert soks.mode == Mode.EQUAL.value
            assert sniffer.of(AllDelivered)[0].delivered == 20
            messages = aiter(service)
            taken = await take(messages, 20)
            assert {message.queue for message in taken} == set(queues[:20])
            assert all(message.body == b"waits in " + message.queue for message in taken)
            # One that had messages, and one that never had any.
            for queue in (queues[0], queues[-1]):
                await sender.send(queue, b"new")
                (message,) = await take(messages, 1)
                assert (message.queue, message.body) == (queue, b"new")


async def test_d04_messages_of_one_queue_come_in_order_within_the_window(node: Harbour) -> None:
    """D04: the head first; the next when it is acknowledged, or as far as the window goes."""
    queues = await associated(node, 3)
    async with node.connect("other") as sender, node.connect() as moor:
        for number in range(10):
            for queue in queues:
                await sender.send(queue, b"%d" % number)
        async with moor.service(node.list_of(), window=4) as service:
            await within(service.all_delivered.wait())
            assert node.queues.counts.delivered == 12
            taken = await take(aiter(service), 30)
            for queue in queues:
                bodies = [message.body for message in taken if message.queue == queue]
                assert bodies == [b"%d" % number for number in range(10)]


async def test_d04_what_is_not_acknowledged_comes_again_to_the_next_connection(
    node: Harbour,
) -> None:
    """D04: delivered is not done."""
    queues = await associated(node, 5)
    async with node.connect("other") as sender:
        for queue in queues:
            await sender.send(queue, b"1")
        for _ in range(2):
            async with node.connect() as moor, moor.service(node.list_of()) as service:
                messages = aiter(service)
                seen = {(await within(anext(messages))).queue for _ in queues}
                assert seen == set(queues)
            await until(lambda: len(node.listeners.sessions) == 1)
        async with node.connect() as moor, moor.service(node.list_of()) as service:
            await take(aiter(service), 5)


async def test_d04_a_message_that_is_being_committed_at_the_subscription_is_not_skipped(
    tmp_path: Path, catalog: Catalog, papers: Papers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D04: sent before SUBS, on disk only after it; nobody else wakes the queue."""
    settings = Settings(sync="power", max_queue_messages=100, max_file_messages=101)
    async with harbour(tmp_path, catalog, papers, settings) as node:
        queues = await associated(node, 2)
        written = threading.Event()
        write = node.store.write

        def slow(batch: Any) -> None:
            assert threading.current_thread() is not threading.main_thread()
            written.wait(WITHIN_S)
            write(batch)

        async with node.connect("other") as sender, node.connect() as moor:
            monkeypatch.setattr(node.store, "write", slow)
            # Two of them: a lone one would be committed at once.
            messages = [(queue, b"just in time") for queue in queues]
            sending = asyncio.create_task(sender.send_all(messages))
            await until(lambda: node.store.writing is not None)
            async with moor.service(node.list_of()) as service:
                await within(service.all_delivered.wait())
                written.set()
                await sending
                monkeypatch.undo()
                async with asyncio.timeout(SOON_S):
                    message = await anext(aiter(service))
                assert message.body == b"just in time"


async def test_d11_a_second_subs_in_one_session_delivers_nothing_twice(
    node: Harbour, sniffer: Sniffer
) -> None:
    """D11: nor does a third, with unacknowledged messages on their way."""
    queues = await associated(node, 10)
    async with node.connect("other") as sender, node.connect() as moor:
        for queue in queues:
            await sender.send(queue, b"1")
        async with moor.service(node.list_of()) as service:
            await within(service.all_delivered.wait())
            for _ in range(3):
                assert (await service.agree()).digest == Digest.of(queues)
            messages = aiter(service)
            await take(messages, 10)
            await service.agree()
            await sender.send(queues[0], b"2")
            assert [message.body for message in await take(messages, 1)] == [b"2"]
            assert len(sniffer.of(Delivery)) == 11
            assert node.queues.counts.delivered == 11


async def test_d12_subs_without_queues(node: Harbour) -> None:
    """D12: agreed in 48 bytes, ALLS comes, and the first association works from there."""
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert service.report.digest == Digest.empty()
        assert (service.report.bytes_sent, service.report.bytes_received) == (24, 24)
        await within(service.all_delivered.wait())
        (queue,) = await make_queues(moor, 1)
        await service.associate([queue])
        await moor.send(queue, b"first")
        (message,) = await take(aiter(service), 1)
        assert message.body == b"first"
        assert await node.digest() == Digest.of([queue])


# --- D05, D06: who may, and moves to and from plain clients ---------------------------------------


async def test_d05_a_plain_clients_queues_move_to_a_service_and_back(node: Harbour) -> None:
    """D05: whoever asked last gets the messages; the digest follows."""
    async with node.connect() as plain, node.connect() as moor:
        queues = await make_queues(plain, 4)
        for queue in queues:
            await plain.send(queue, b"to the plain one")
        reader = plain.queue(queues[0]).read()
        assert (await take(reader, 1))[0].body == b"to the plain one"
        await aclose(reader)
        async with moor.service(node.list_of()) as service:
            await service.associate(queues)
            messages = aiter(service)
            assert {one.queue for one in await take(messages, 3)} == set(queues[1:])
            await plain.send(queues[0], b"to the service")
            assert (await take(messages, 1))[0].body == b"to the service"
            # And back: a SUB of the owner that acts for no service.
            reader = plain.queue(queues[1]).read()
            following = asyncio.create_task(take(reader, 1))
            await until(lambda: len(node.queues.subscriptions) > 0)
            await plain.send(queues[1], b"back")
            assert (await following)[0].body == b"back"
            assert await node.associated() == {queues[0], *queues[2:]}
            assert await node.digest() == Digest.of([queues[0], *queues[2:]])
            await service.dissociate([queues[1]])
            assert (await service.agree()).digest == Digest.of([queues[0], *queues[2:]])


async def aclose(messages: AsyncIterator[QueueMessage]) -> None:
    await messages.aclose()  # type: ignore[attr-defined]


async def test_d05_an_association_takes_a_queue_from_its_plain_reader(node: Harbour) -> None:
    """D05: the reader is told, and the next message is the service's; nothing waited before."""
    async with node.connect() as plain, node.connect() as moor:
        (queue,) = await make_queues(plain, 1)
        await plain.send(queue, b"1")
        reader = plain.queue(queue).read()
        await take(reader, 1)
        async with moor.service(node.list_of()) as service:
            await service.associate([queue])
            await plain.send(queue, b"2")
            async with asyncio.timeout(SOON_S):
                assert (await anext(aiter(service))).body == b"2"
            with pytest.raises(SubscriptionEnded, match="TAKEN_OVER"):
                await within(anext(reader))


async def test_d05_a_plain_reader_that_leaves_takes_nothing_from_the_service(
    node: Harbour,
) -> None:
    """D05: it had the queue before; its end must not stop the service's deliveries."""
    async with node.connect() as moor, node.connect("other") as sender:
        plain = await node.connect()
        (queue,) = await make_queues(plain, 1)
        reader = plain.queue(queue).read(window=1)
        waiting = asyncio.ensure_future(anext(reader))
        for number in range(3):
            await sender.send(queue, b"%d" % number)
        assert (await within(waiting)).body == b"0"
        async with moor.service(node.list_of()) as service:
            await service.associate([queue])
            messages = aiter(service)
            first = await within(anext(messages))
            await plain.close()
            await until(lambda: len(node.listeners.sessions) == 2)
            assert first.body == b"0"
            await first.ack()
            async with asyncio.timeout(SOON_S):
                assert (await anext(messages)).body == b"1"


CALLS_OF_A_SERVICE: list[tuple[Callable[[int], Message], type[Answer]]] = [
    (lambda call: Associate(call, [b"q" * 24]), Associated),
    (lambda call: Dissociate(call, [(0, 0)]), Dissociated),
    (lambda call: SubscribeService(call, 0, bytes(16)), ServiceSubscribed),
    (lambda call: AskRanges(call, [(0, 0)]), RangesTold),
    (lambda call: AskLists(call, [(0, 0)]), ListsTold),
]


@pytest.mark.parametrize("who", ["", "other"])
async def test_d06_a_service_command_without_the_services_proof_is_refused(
    node: Harbour, who: str
) -> None:
    """D06: without a certificate, or before the session was opened for its service."""
    queues = await associated(node, 5)
    async with node.connect(who) as moor:
        for make, reply in CALLS_OF_A_SERVICE:
            with pytest.raises(NotAuthorized, match="acts for no service"):
                await moor._caller.call(make, reply)
        if not who:
            with pytest.raises(NotAuthorized, match="TLS client certificate"):
                await moor._caller.call(OpenService, ServiceOpened)
    assert await node.associated() == set(queues)


async def test_d06_a_service_sees_and_changes_only_its_own(node: Harbour) -> None:
    """D06: another service, well proven, gets nothing of the first one's."""
    queues = await associated(node, 5)
    async with node.connect("other") as moor, moor.service(node.list_of("other")) as service:
        assert await service.associate(queues) == queues
        await service.dissociate(queues)
        answer = await moor._caller.call(lambda call: Dissociate(call, [(0, 0)]), Dissociated)
        assert (answer.changed, answer.count) == (0, 0)
        lists = await moor._caller.call(lambda call: AskLists(call, [(0, 0)]), ListsTold)
        assert lists.highs == [b""]
        ranges = await moor._caller.call(lambda call: AskRanges(call, [(0, 0)]), RangesTold)
        assert ranges.ranges[0].count == 0
        with node.listed("other") as listed:
            assert listed.digest() == Digest.empty(), "what was refused is not kept"
    assert await node.associated() == set(queues)


@pytest.mark.parametrize("who", ["", "other", "operator"])
async def test_d06_a_strangers_sub_is_refused_and_takes_no_association(
    node: Harbour, who: str
) -> None:
    """D06: only the owner may take a queue from its service."""
    queues = await associated(node, 3)
    async with node.connect(who) as stranger:
        with pytest.raises(NotAuthorized):
            await within(anext(stranger.queue(queues[0]).read()))
        if who == "other":
            # Nobody on loopback is an operator here, and may.
            with pytest.raises(NotAuthorized):
                await stranger.queue(queues[1]).delete()
    assert await node.associated() == set(queues)


async def test_d06_a_disabled_service_is_refused(node: Harbour) -> None:
    """D06: until the operator enables it again; its associations stay."""
    queues = await associated(node, 3)
    services, number = node.services.services, await node.number()
    await services.disable(number, is_disabled=True)
    async with node.connect() as moor:
        with pytest.raises(ServiceDisabled, match="the operator can enable it"):
            async with moor.service(node.list_of()):
                pass
    await services.disable(number, is_disabled=False)
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert service.report.digest == Digest.of(queues)


# --- D07, D17: lost replies and requests ----------------------------------------------------------


async def test_d07_repeating_an_association_is_harmless(node: Harbour) -> None:
    """D07, D02: on both sides, at once and later, in one block and in several."""
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        queues = await make_queues(moor, 3)
        for again in (queues, queues[:1] * 5, queues):
            assert await service.associate(again) == []
            assert await node.digest() == Digest.of(queues)
        await asyncio.gather(*(service.associate(queues) for _ in range(5)))
        for _ in range(2):
            await service.dissociate(queues[:1])
        report = await service.agree()
        assert report.digest == Digest.of(queues[1:]) == await node.digest()
        assert (report.associated, report.dissociated) == (0, 0)


@pytest.mark.parametrize("lost", ["reply", "request"])
@pytest.mark.parametrize("change", ["associate", "dissociate"])
async def test_d17_a_lost_reply_or_request_is_made_good(
    node: Harbour, monkeypatch: pytest.MonkeyPatch, lost: str, change: str
) -> None:
    """D17: the connection ends between the node's commit and the client's hearing of it, or before."""
    old = await associated(node, 50)
    async with node.connect() as moor:
        new = await make_queues(moor, 20)
        async with moor.service(node.list_of()) as service:
            session = node.session_of(moor)
            if lost == "reply":
                monkeypatch.setattr(session, "answer", lambda _: session.abort())
            else:
                monkeypatch.setattr(session, "received", lambda _: session.abort())
            asked = change == "associate"
            with pytest.raises(ConnectionLost):
                await (service.associate(new) if asked else service.dissociate(old[:20]))
    wanted = {*old, *new} if change == "associate" else set(old[20:])
    assert (await node.associated() == wanted) is (lost == "reply")
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        report = service.report
        assert report.digest == Digest.of(wanted) == await node.digest()
        repaired = (report.associated, report.dissociated)
        if lost == "reply":
            assert repaired == (0, 0)
            assert (report.bytes_sent, report.bytes_received) == (24, 24)
        else:
            assert repaired == ((20, 0) if change == "associate" else (0, 20))


@pytest.mark.parametrize(
    "kind", [ServiceSubscribed, Associated, Dissociated, RangesTold, ListsTold]
)
async def test_d17_a_connection_lost_anywhere_in_a_repair_is_made_good(
    node: Harbour, monkeypatch: pytest.MonkeyPatch, kind: type[Answer]
) -> None:
    """D17: after each kind of answer of the exchange; the next connection finishes it."""
    queues = await associated(node, 400)
    await node.lose(queues[:30])
    with node.listed() as listed:
        listed.remove(queues[-30:])
    if kind in (RangesTold, ListsTold):
        monkeypatch.setattr("moorline.broker.services.answer_verify", lambda *_: (Mode.EQUAL, 0))
    async with node.connect() as moor:
        session = node.session_of(moor)
        answer = session.answer

        def cut(answers: list[Answer]) -> None:
            if any(isinstance(one, kind) for one in answers):
                session.abort()
            else:
                answer(answers)

        monkeypatch.setattr(session, "answer", cut)
        with pytest.raises(ConnectionLost):
            async with moor.service(node.list_of()):
                pass
    monkeypatch.undo()
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert service.report.digest == Digest.of(queues[:-30])
        assert await node.associated() == set(queues[:-30])


async def test_d17_a_repair_that_was_given_up_does_not_disturb_the_next_one(node: Harbour) -> None:
    """D17: cancelled while the pieces of a long answer were on their way; the link stays."""
    queues = await associated(node, 6_000)
    with node.listed() as listed:
        listed.remove(queues[:2_000])
    async with node.connect() as moor:
        service = moor.service(node.list_of())
        heard = moor._caller.received
        first = asyncio.create_task(service.agree())

        def stop_at_soks(messages: list[Message]) -> None:
            if any(isinstance(message, ServiceSubscribed) for message in messages):
                first.cancel()
            heard(messages)

        moor._caller.received = stop_at_soks  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await first
        moor._caller.received = heard  # type: ignore[method-assign]
        # Fewer differences now: the next sketch has another size.
        service._associations.add(queues[:700])
        report = await within(service.agree())
        assert report.digest == Digest.of([*queues[:700], *queues[2_000:]]) == await node.digest()
        await service.__aexit__(None, None, None)


# --- D08: another connection takes over -----------------------------------------------------------


async def test_d08_another_connection_takes_over_and_the_old_one_gets_ends(
    node: Harbour, sniffer: Sniffer
) -> None:
    """D08: ENDS with count and hash; the new one gets what was not acknowledged, and all that follows."""
    queues = await associated(node, 5)
    async with node.connect("other") as sender, node.connect() as old, node.connect() as new:
        for queue in queues:
            await sender.send(queue, b"1")
        async with old.service(node.list_of()) as first:
            messages = aiter(first)
            await take(messages, 2)
            assert len(sniffer.of(Delivery)) == 5
            async with new.service(node.list_of()) as second:
                (ended,) = sniffer.of(ServiceEnded)
                assert Digest(ended.count, ended.hash) == Digest.of(queues)
                later = aiter(second)
                await take(later, 3)
                for queue in queues:
                    await sender.send(queue, b"2")
                assert {one.body for one in await take(later, 5)} == {b"2"}
                # What had come before the end can be read; then the old one learns of it.
                for _ in range(3):
                    assert (await within(anext(messages))).body == b"1"
                with pytest.raises(SubscriptionEnded, match="TAKEN_OVER"):
                    await within(anext(messages))
                with pytest.raises(ConnectionLost, match="took over"):
                    await first.agree()
            assert len(sniffer.of(ServiceEnded)) == 1


async def test_d08_the_old_one_leaving_takes_nothing_from_the_new_one(node: Harbour) -> None:
    """D08: its session ends later; deliveries go on."""
    queues = await associated(node, 2)
    async with node.connect("other") as sender, node.connect() as new:
        old = await node.connect()
        first = old.service(node.list_of())
        await first.agree()
        async with new.service(node.list_of()) as second:
            messages = aiter(second)
            await sender.send(queues[0], b"1")
            held = await within(anext(messages))
            await old.close()
            await until(lambda: len(node.listeners.sessions) == 2)
            await held.ack()
            for queue in queues:
                await sender.send(queue, b"2")
            assert {one.queue for one in await take(messages, 2)} == set(queues)
        await first.__aexit__(None, None, None)


async def test_d08_a_takeover_in_the_middle_of_a_repair_ends_it_with_an_error(
    node: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D08: as the design says; the new one repairs, and both sides agree."""
    queues = await associated(node, 200)
    await node.lose(queues[:10])
    with node.listed() as listed:
        listed.remove(queues[-10:])
    async with node.connect() as old, node.connect() as new:
        with monkeypatch.context() as patch:
            gate = Gate(patch, node.services.services, "queues_in")
            first, second = old.service(node.list_of()), new.service(node.list_of())
            repair = asyncio.create_task(first.agree())
            await gate.reached()
        following = asyncio.create_task(second.agree())
        await until(lambda: first._ended is not None)
        gate.is_open.set()
        assert (await within(following)).digest == Digest.of(queues[:-10])
        assert await node.associated() == set(queues[:-10])
        try:
            with pytest.raises(ConnectionLost, match="took over"):
                await within(repair)
        finally:
            for service in (first, second):
                await service.__aexit__(None, None, None)


async def test_d08_whoever_was_taken_over_can_take_back_on_the_same_connection(
    node: Harbour,
) -> None:
    """D08: a new `service` on the old link; the messages that wait come to it."""
    queues = await associated(node, 3)
    async with node.connect("other") as sender, node.connect() as one, node.connect() as two:
        async with one.service(node.list_of()), two.service(node.list_of()):
            pass
        for queue in queues:
            await sender.send(queue, b"waits")
        async with one.service(node.list_of()) as again:
            async with asyncio.timeout(SOON_S):
                await again.all_delivered.wait()
                assert len([await anext(aiter(again)) for _ in queues]) == 3


async def test_d08_a_session_that_is_gone_takes_nothing_over(
    node: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D08: its SUBS was slow in the catalog; meanwhile it left and another one came."""
    queues = await associated(node, 3)
    async with node.connect("other") as sender, node.connect() as new:
        old = await node.connect()
        await old._caller.call(OpenService, ServiceOpened)
        with monkeypatch.context() as patch:
            gate = Gate(patch, node.services.services, "digest")
            digest = Digest.of(queues)
            old._caller.cast(lambda call: SubscribeService(call, digest.count, digest.hash))
            await gate.reached()
        await old.close()
        await until(lambda: len(node.listeners.sessions) == 2)
        async with new.service(node.list_of()) as service:
            await within(service.all_delivered.wait())
            gate.is_open.set()
            await until(lambda: node.services.counts.verifies == 2 + 1)
            for queue in queues:
                await sender.send(queue, b"1")
            async with asyncio.timeout(SOON_S):
                messages = aiter(service)
                assert {(await anext(messages)).queue for _ in queues} == set(queues)


# --- D13, D16, D18, D19, D31: drift and repair ----------------------------------------------------


async def delete_service(node: Harbour) -> None:
    await node.catalog.execute("delete from moorline.service where name = 'service'")


async def test_d13_the_service_is_gone_on_the_server(node: Harbour, sniffer: Sniffer) -> None:
    """D13: it is made anew, with another salt, and everything is associated again."""
    queues = await associated(node, 700)
    before = await node.number()
    await delete_service(node)
    async with node.connect("other") as sender, node.connect() as moor:
        await sender.send(queues[0], b"waits")
        async with moor.service(node.list_of()) as service:
            report = service.report
            assert (report.associated, report.dissociated, report.lost) == (700, 0, [])
            assert report.digest == Digest.of(queues) == await node.digest()
            assert await node.number() != before
            (message,) = await take(aiter(service), 1)
            assert message.body == b"waits"
    assert sniffer.of(ServiceSubscribed)[-1].mode == Mode.EMPTY.value


async def test_d13_the_service_is_gone_under_a_session_that_is_open(node: Harbour) -> None:
    """D13: the next agreement on the same connection makes it anew."""
    queues = await associated(node, 20)
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        await delete_service(node)
        report = await service.agree()
        assert report.digest == Digest.of(queues) == await node.digest()
        await moor.send(queues[0], b"1")
        assert (await take(aiter(service), 1))[0].body == b"1"


@pytest.mark.parametrize(
    ("lost_by_node", "lost_by_client", "kind"),
    [(0, 7, "more"), (7, 0, "fewer"), (5, 5, "other"), (3, 8, "more"), (8, 3, "fewer")],
)
async def test_d16_each_drift_is_reported_as_what_it_is(
    node: Harbour, lost_by_node: int, lost_by_client: int, kind: str
) -> None:
    """D16: more, fewer, or equally many but other ids; in the node's figures and the client's report."""
    queues = await associated(node, 300)
    await node.lose(queues[:lost_by_node])
    with node.listed() as listed:
        listed.remove(queues[len(queues) - lost_by_client :])
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert service.report.associated == lost_by_node
        assert service.report.dissociated == lost_by_client
        assert service.report.lost == []
        wanted = set(queues[: len(queues) - lost_by_client])
        assert await node.associated() == wanted
        assert service.report.digest == Digest.of(wanted)
        # Once; or twice, if the first sketch did not decode and a larger one was asked for.
        drifts = dict(node.services.counts.drifts)
        found = drifts.pop(kind)
        assert found in (1, 2)
        assert set(drifts.values()) == {0}
        await service.agree()
        assert sum(node.services.counts.drifts.values()) == found, "no drift is left"


@pytest.mark.parametrize("lost", [1, 2, 40, 900])
async def test_d18_restored_from_a_backup_with_associations_gone(node: Harbour, lost: int) -> None:
    """D18: k of them, and their part of the digest with them; all come back, with their messages."""
    queues = await associated(node, 1_000)
    gone = random.Random(lost).sample(queues, lost)
    await node.lose(gone)
    async with node.connect("other") as sender, node.connect() as moor:
        await sender.send(gone[0], b"nobody's for a while")
        async with moor.service(node.list_of()) as service:
            assert service.report.associated == lost
            assert service.report.digest == Digest.of(queues) == await node.digest()
            assert (await take(aiter(service), 1))[0].queue == gone[0]


async def test_d18_rows_that_vanish_under_their_digest_are_found_after_a_recompute(
    node: Harbour,
) -> None:
    """D18, D25: a bare DELETE leaves the buckets as they were: nobody sees it until they are recomputed."""
    queues = await associated(node, 200)
    number = await node.number()
    await node.catalog.execute("delete from association where queue = any ($1)", queues[:9])
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert service.report.associated == 0
        await node.services.services.recompute(number)
        report = await service.agree()
        assert report.associated == 9
        assert report.digest == Digest.of(queues) == await node.digest()
        assert await node.associated() == set(queues)


@pytest.mark.parametrize("count", [1, 1_300])
async def test_d19_all_associations_are_gone(node: Harbour, count: int) -> None:
    """D19: a downgrade and an upgrade; the service's row stays, its queues and digest do not."""
    queues = await associated(node, count)
    number = await node.number()
    await node.catalog.execute("truncate moorline.association, moorline.service_bucket")
    async with node.connect("other") as sender, node.connect() as moor:
        await sender.send(queues[-1], b"waits")
        async with moor.service(node.list_of()) as service:
            report = service.report
            assert (report.associated, report.digest) == (count, Digest.of(queues))
            assert await node.number() == number
            assert await node.digest() == Digest.of(queues)
            assert (await take(aiter(service), 1))[0].queue == queues[-1]


async def test_d19_a_client_that_lost_its_list_frees_the_queues(node: Harbour) -> None:
    """D19, the other way: its list is what counts; an empty one means nothing is its own."""
    queues = await associated(node, 1_300)
    async with node.connect() as moor, moor.service(node.folder / "new.sqlite") as service:
        assert service.report.dissociated == 1_300
        assert await node.digest() == Digest.empty()
        assert await service.associate(queues) == []
    await node.check_digests()


async def test_d31_the_repair_is_sub_for_what_is_missing_and_bus_for_what_is_extra(
    node: Harbour, sniffer: Sniffer
) -> None:
    """D31: exactly those, nothing else; afterwards the digests are equal, proven by the last answer."""
    queues = await associated(node, 500)
    missing, extra = queues[:6], queues[-4:]
    await node.lose(missing)
    with node.listed() as listed:
        listed.remove(extra)
    sniffer.sent.clear()
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        asked = [queue for message in sniffer.of(Associate) for queue in message.queues]
        assert sorted(asked) == sorted(missing)
        freed = [Prefix(*pair) for message in sniffer.of(Dissociate) for pair in message.prefixes]
        highs = hash_ids(extra)[:, 0].tolist()
        assert sorted(prefix.first >> 16 for prefix in freed) == sorted(
            high >> 16 for high in highs
        )
        wanted = Digest.of(queues[:-4])
        last = sniffer.of(Associated, Dissociated)[-1]
        assert Digest(last.count, last.hash) == wanted == await node.digest()
        assert service.report.digest == wanted
        assert service._associations.digest() == wanted


async def test_d31_a_stale_sketch_is_not_taken_for_the_catalogs(node: Harbour) -> None:
    """D31: the node keeps a sketch; rows change elsewhere; then one changes here. Both must be seen."""
    queues = await associated(node, 400)
    await node.lose(queues[:1])
    with node.listed() as listed:
        # One that the client freed, and that another node frees too.
        listed.remove(queues[1:2])
    async with node.connect() as moor:
        (fresh,) = await make_queues(moor, 1)
        service = moor.service(node.list_of())
        await moor._caller.call(OpenService, ServiceOpened)
        await keep_a_sketch(node, moor)
        await node.lose(queues[1:3])
        # Through this node: it stamps the sketch that it keeps with the catalog's digest.
        service._associations.add([fresh])
        await moor._caller.call(lambda call: Associate(call, [fresh]), Associated)
        wanted = {fresh, queues[0], *queues[2:]}
        try:
            assert (await within(service.agree())).digest == Digest.of(wanted)
            assert await node.associated() == wanted
        finally:
            await service.__aexit__(None, None, None)


async def keep_a_sketch(node: Harbour, moor: Moor) -> None:
    """The node scans for a sketch of the service, as it does for any drift, and keeps it."""
    digest, zeros = Digest(1, bytes(16)), bytes(ESTIMATE_BYTES)
    await moor._caller.call(
        lambda call: SubscribeService(call, digest.count, digest.hash, zeros), ServiceSubscribed
    )
    assert node.services.sketches.scans == 1


# --- D20: the operator blocks and deletes ---------------------------------------------------------


@pytest.mark.parametrize("how", ["block", "delete"])
@pytest.mark.parametrize("when", ["subscribed", "away"])
async def test_d20_a_queue_that_the_operator_takes_away(node: Harbour, how: str, when: str) -> None:
    """D20: both sides converge, the service learns which were lost, and nothing else is skipped."""
    queues = await associated(node, 50)
    taken, left = queues[:3], queues[3:]

    async def act() -> None:
        async with node.connect("operator") as operator:
            for queue in taken:
                await (
                    operator.queue(queue).block if how == "block" else operator.queue(queue).delete
                )()

    if when == "away":
        await act()
    async with node.connect("other") as sender, node.connect() as moor:
        for queue in left:
            await sender.send(queue, b"1")
        async with moor.service(node.list_of()) as service:
            report = service.report
            if when == "subscribed":
                await act()
                assert await node.digest() == Digest.of(left)
                report = await service.agree()
            assert sorted(report.lost) == sorted(taken)
            assert report.digest == Digest.of(left) == await node.digest()
            assert {one.queue for one in await take(aiter(service), 47)} == set(left)
            assert (await service.agree()).lost == [], "told once"
            if how == "block":
                async with node.connect("operator") as operator:
                    await operator.queue(taken[0]).block(blocked=False)
                assert await service.associate(taken) == taken[1:]
                await sender.send(taken[0], b"free again")
                assert (await take(aiter(service), 1))[0].queue == taken[0]


@pytest.mark.parametrize("how", ["block", "delete"])
@pytest.mark.parametrize("first", ["operator", "service"])
async def test_d20_a_queue_blocked_just_as_it_is_associated_is_not_associated(
    node: Harbour, monkeypatch: pytest.MonkeyPatch, how: str, first: str
) -> None:
    """D20: each of the two has done its first half when the other one comes and does all of its own."""
    (queue,) = await associated(node, 1)
    async with (
        node.connect("operator") as operator,
        node.connect() as moor,
        moor.service(node.list_of()) as service,
    ):

        async def take_away() -> None:
            target = operator.queue(queue)
            await (target.block() if how == "block" else target.delete())

        async def associate() -> None:
            await service.associate([queue])

        halved, whole = (take_away, associate) if first == "operator" else (associate, take_away)
        with monkeypatch.context() as patch:
            kept = node.services.services
            if first == "operator":
                gate = Gate(patch, kept, "dissociate", after=True)
            else:
                gate = Gate(patch, kept, "associate")
            halving = asyncio.create_task(halved())
            await gate.reached()
        following = asyncio.create_task(whole())
        # All of it, or as far as it comes: it may have to wait for its turn.
        await asyncio.wait([following], timeout=SOON_S / 4)
        gate.is_open.set()
        await within(asyncio.gather(halving, following))
        # Nobody means a queue that cannot be served.
        assert (await service.agree()).digest == Digest.empty() == await node.digest()


# --- D03 by commands ------------------------------------------------------------------------------


async def test_d03_a_mix_of_commands_keeps_the_digests_right(node: Harbour) -> None:
    """D03: by those who may and those who may not; after each the kept digest is a recompute's."""
    chance = random.Random(20)
    async with (
        node.connect("operator") as operator,
        node.connect() as plain,
        node.connect() as moor,
        moor.service(node.list_of()) as service,
    ):
        queues = await make_queues(moor, 40)
        seen = dict.fromkeys(["associate", "dissociate", "block", "unblock", "delete", "plain"], 0)
        for _ in range(120):
            some = chance.sample(queues, chance.randint(1, 6))
            act = chance.choice([*list(seen)[:5], "associate", "plain"])
            seen[act] += 1
            with contextlib.suppress(CallFailed):
                if act == "associate":
                    await service.associate(some)
                elif act == "dissociate":
                    await service.dissociate(some)
                elif act == "plain":
                    await subscribe(plain, some[0])
                    await unsubscribe(plain, some[0])
                elif act == "delete" and chance.random() < 0.2:
                    await operator.queue(some[0]).delete()
                else:
                    await operator.queue(some[0]).block(blocked=act != "unblock")
            await node.check_digests()
        assert min(seen.values()) > 5, seen
        report = await service.agree()
        assert report.digest == await node.digest() == service._associations.recomputed()
        for queue in await node.associated():
            held = node.store.glance(queue)
            assert held is not None
            assert not held.blocked


# --- D22: a full send buffer ----------------------------------------------------------------------


async def test_d22_a_full_send_buffer_during_mass_delivery_loses_nothing(node: Harbour) -> None:
    """D22: the service does not read for a while; every message comes once, then ALLS."""
    count, body = 500, bytes(16_000)
    queues = await associated(node, count)
    async with node.connect("other") as sender, node.connect() as moor:
        session = node.session_of(moor)
        # The kernel's buffers grow to tens of megabytes by themselves; ours is the one to be tried.
        for end, option in ((moor._caller, socket.SO_RCVBUF), (session, socket.SO_SNDBUF)):
            assert end._transport is not None
            end._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, 65_536)
        for start in range(0, count, 50):
            await sender.send_all([(queue, body) for queue in queues[start : start + 50]])
        heard = moor._caller.received
        deliveries: list[bytes] = []

        def slow(messages: list[Message]) -> None:
            if any(isinstance(message, ServiceSubscribed) for message in messages):
                moor._caller.hold_reading("a slow test")
            deliveries.extend(one.queue for one in messages if isinstance(one, Delivery))
            heard(messages)

        moor._caller.received = slow  # type: ignore[method-assign]
        async with moor.service(node.list_of()) as service:
            await until(lambda: not session.writable)
            assert node.queues.counts.delivered < count
            # Meanwhile some queues get more, and one that has none gets its first.
            for queue in [*queues[:5], *queues[-5:]]:
                await sender.send(queue, b"more")
            assert not session.writable
            moor._caller.release_reading("a slow test")
            await within(service.all_delivered.wait())
            assert len(deliveries) == count
            assert set(deliveries) == set(queues)
            messages = aiter(service)
            taken = await take(messages, count + 10)
            assert sum(one.body == b"more" for one in taken) == 10
            assert sum(one.body == body for one in taken) == count
            assert node.queues.counts.delivered == count + 10


async def test_d22_too_many_unacknowledged_wait_and_are_not_lost(
    node: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D22: at the bound of what one service may hold, acknowledgements let the rest through."""
    monkeypatch.setattr("moorline.broker.services.SERVICE_IN_FLIGHT_MAX", 10)
    queues = await associated(node, 60)
    async with node.connect("other") as sender, node.connect() as moor:
        await sender.send_all([(queue, b"%d" % n) for n in range(2) for queue in queues])
        async with moor.service(node.list_of()) as service:
            await until(lambda: node.queues.counts.delivered == 10)
            # Others, through another door, at the same bound.
            (late,) = await make_queues(moor, 1)
            await sender.send(late, b"0")
            await service.associate([late])
            assert node.queues.counts.delivered == 10
            taken = await take(aiter(service), 121)
            assert len({(one.queue, one.body) for one in taken}) == 121
            await within(service.all_delivered.wait())


# --- D29: blocks ----------------------------------------------------------------------------------

SHAPES = {
    "verify only": (50, 0, 0),
    "a short list": (50, 10, 10),
    "a sketch in one block": (3_000, 20, 20),
    "a sketch in several blocks": (7_000, 900, 900),
    "a list in several blocks": (6_000, 0, 5_500),
    "everything again": (3_000, 3_000, 0),
    "everything away": (3_000, 0, 3_000),
}


@pytest.mark.parametrize("mode", ["as chosen", "ranges"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_d29_every_message_of_the_exchange_fits_a_block(
    node: Harbour, sniffer: Sniffer, monkeypatch: pytest.MonkeyPatch, shape: str, mode: str
) -> None:
    """D29: 16,384 bytes, in both directions, for several sizes, by sketch, list and ranges."""
    count, lost_by_node, lost_by_client = SHAPES[shape]
    queues = await associated(node, count)
    await node.lose(queues[:lost_by_node])
    with node.listed() as listed:
        listed.remove(queues[count - lost_by_client :])
    if mode == "ranges":
        monkeypatch.setattr("moorline.broker.services.answer_verify", lambda *_: (Mode.EQUAL, 0))
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert service.report.digest == Digest.of(queues[: count - lost_by_client])
    for message in sniffer.sent:
        size = len(sniffer.encoder.encode(message))
        assert size <= BLOCK_BYTES_MAX, f"{type(message).__name__} has {size} bytes"
    if mode == "ranges" and lost_by_node + lost_by_client:
        assert sniffer.of(RangesTold)
        assert sniffer.of(ListsTold)
    if shape.endswith("several blocks"):
        kind = ServiceSubscribed if mode == "as chosen" else RangesTold
        assert max(sniffer.sizes(kind)) > BLOCK_BYTES_MAX // 2, "some are long"
        assert bool(sniffer.of(PayloadBlock)) is (mode == "as chosen")


WORST = {
    "Associate": Associate(1 << 32, [b"q" * 24] * QUEUES_PER_BLOCK),
    "Dissociate": Dissociate(1 << 32, [(64, (1 << 64) - 1)] * PREFIXES_PER_BLOCK),
    "AskRanges": AskRanges(1 << 32, [(60, (1 << 60) - 1)] * PREFIXES_PER_BLOCK),
    "RangesTold": RangesTold(
        1 << 32, [RangeDigest((1 << 32) - 1, (1 << 64) - 1)] * PREFIXES_PER_BLOCK
    ),
    "ListsTold": ListsTold(1 << 32, [bytes(LEAF_COUNT * LISTED_BYTES)] * LISTS_PER_BLOCK),
    "SubscribeService": SubscribeService(
        1 << 32, 1 << 40, bytes(16), bytes(ESTIMATE_BYTES), 1 << 24, 64
    ),
    "ServiceSubscribed": ServiceSubscribed(
        1 << 32, 1 << 40, bytes(16), 4, 1 << 24, 1 << 32, bytes(PAYLOAD_PER_BLOCK)
    ),
    "PayloadBlock": PayloadBlock(bytes(PAYLOAD_PER_BLOCK)),
}


@pytest.mark.parametrize("name", WORST)
def test_d29_the_largest_message_of_each_kind_fits_a_block(name: str) -> None:
    """D29: every field as long as it can be, with as many of each as the senders put together."""
    assert len(msgspec.msgpack.encode(WORST[name])) <= BLOCK_BYTES_MAX


async def test_d29_an_answer_that_refuses_a_whole_block_fits_a_block(
    node: Harbour, sniffer: Sniffer
) -> None:
    """D29: every queue of an Associate was deleted meanwhile, and each is named with the reason."""
    with node.listed() as listed:
        listed.add([random.Random(n).randbytes(24) for n in range(QUEUES_PER_BLOCK)])
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert len(service.report.lost) == QUEUES_PER_BLOCK
    assert max(sniffer.sizes(Associated)) <= BLOCK_BYTES_MAX


# --- D30: order -----------------------------------------------------------------------------------


async def test_d30_changes_wait_for_the_end_of_the_repair_and_are_not_lost(
    node: Harbour, sniffer: Sniffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D30: asked for while SUBS and the repair are under way; then done in the order of asking."""
    queues = await associated(node, 100)
    await node.lose(queues[:5])
    async with node.connect() as moor:
        new = await make_queues(moor, 7)
        with monkeypatch.context() as patch:
            gate = Gate(patch, node.services.services, "associate")
            service = moor.service(node.list_of())
            sniffer.sent.clear()
            repair = asyncio.create_task(service.agree())
            await gate.reached()
        changes = [
            asyncio.create_task(service.associate(new)),
            asyncio.create_task(service.dissociate(queues[-3:])),
            asyncio.create_task(service.dissociate(new[:1])),
        ]
        # Other commands of the connection pass, which shows that nobody only was too slow.
        await moor.queue(queues[0]).info()
        assert [len(message.queues) for message in sniffer.of(Associate)] == [5]
        assert not sniffer.of(Dissociate)
        assert service._associations.digest() == Digest.of(queues), "nor are they in our list yet"
        assert not any(change.done() for change in changes)
        gate.is_open.set()
        report = await within(repair)
        assert (report.digest, report.associated) == (Digest.of(queues), 5)
        await within(asyncio.gather(*changes))
        kinds = [type(one) for one in sniffer.of(SubscribeService, Associate, Dissociate)]
        assert kinds == [SubscribeService, Associate, Associate, Dissociate, Dissociate]
        wanted = {*queues[:-3], *new[1:]}
        assert await node.associated() == wanted
        assert (await service.agree()).digest == Digest.of(wanted)
        await service.__aexit__(None, None, None)


async def test_d30_a_change_on_the_server_during_the_repair_is_not_lost(
    node: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D30: the proof fails, the exchange begins again, and ends in agreement."""
    queues = await associated(node, 300)
    await node.lose(queues[:5])
    async with node.connect() as moor:
        with monkeypatch.context() as patch:
            gate = Gate(patch, node.services.services, "associate")
            service = moor.service(node.list_of())
            repair = asyncio.create_task(service.agree())
            await gate.reached()
        await node.lose(queues[5:9])
        gate.is_open.set()
        report = await within(repair)
        assert report.associated == 9
        assert report.digest == Digest.of(queues) == await node.digest()
        await service.__aexit__(None, None, None)


async def test_d30_commands_sent_together_are_handled_in_their_order(node: Harbour) -> None:
    """D30: SUB then UNSUB in one frame leaves nobody subscribed, as it does without services."""
    async with node.connect() as moor:
        (queue,) = await make_queues(moor, 1)
        await moor._caller.call_all(
            [lambda call: Subscribe(call, queue), lambda call: Unsubscribe(call, queue)]
        )
        assert not (await moor.queue(queue).info()).is_subscribed


# --- odds and ends --------------------------------------------------------------------------------


async def test_sessions_that_are_gone_are_forgotten(node: Harbour) -> None:
    """Plain ones too: a node lives longer than its clients."""
    for name in ("service", "other"):
        async with node.connect(name) as moor:
            (queue,) = await make_queues(moor, 1)
            await subscribe(moor, queue)
            if name == "service":
                async with moor.service(node.list_of()):
                    pass
    await until(lambda: not node.listeners.sessions)
    assert not [key for key in node.services.turns._locks if isinstance(key, Session)]
    assert not node.services._by_session
    assert not node.services._subscribed


async def test_a_prefix_beyond_all_hashes_is_the_callers_mistake(node: Harbour) -> None:
    """Not an INTERNAL error with a stack trace in the node's log."""
    pair = (1, (1 << 64) - 1)
    async with node.connect() as moor, moor.service(node.list_of()):
        with pytest.raises((CallFailed, ConnectionLost)) as caught:
            await moor._caller.call(lambda call: AskLists(call, [pair]), ListsTold)
        assert "INTERNAL" not in str(caught.value)


# --- D09: a real node -----------------------------------------------------------------------------


def test_d09_associations_survive_two_restarts(tmp_path: Path, papers: Papers) -> None:
    """D09: once after a clean stop, once after kill -9; verified by 48 bytes each time."""
    flags = [
        "--listen=tls://127.0.0.1:0",
        f"--tls-certificate={papers.path('server')}",
        f"--tls-key={papers.path('server')}",
        f"--tls-client-ca={papers.ca}",
    ]
    listed = tmp_path / "service.sqlite"
    queues: list[bytes] = []

    async def first(address: str) -> None:
        async with (
            papers.connect(address, "service") as moor,
            moor.service(listed) as service,
        ):
            queues.extend(await make_queues(moor, 300))
            assert await service.associate(queues) == []

    async def again(address: str, body: bytes) -> None:
        async with papers.connect(address, "other") as sender:
            await sender.send(queues[7], body)
        async with papers.connect(address, "service") as moor, moor.service(listed) as service:
            report = service.report
            assert report.digest == Digest.of(queues)
            assert (report.associated, report.dissociated) == (0, 0)
            assert (report.bytes_sent, report.bytes_received) == (24, 24)
            (message,) = await take(aiter(service), 1)
            assert (message.queue, message.body) == (queues[7], body)

    with NodeProcess(tmp_path / "data", *flags) as node:
        asyncio.run(first(tls_address(node)))
        assert node.stop() == 0
    with NodeProcess(tmp_path / "data", *flags) as node:
        asyncio.run(again(tls_address(node), b"after a stop"))
        node.kill()
    with NodeProcess(tmp_path / "data", *flags) as node:
        asyncio.run(again(tls_address(node), b"after a kill"))


def tls_address(node: NodeProcess) -> str:
    note = json.loads((node.data / "node.json").read_text())
    (address,) = [one for one in note["addresses"] if one.startswith("tls:")]
    return str(address)
