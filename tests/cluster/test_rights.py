"""A right that is taken away on one node ends what runs by it on every node, also on one that was killed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest
import pytest_asyncio
from tests.catalog.databases import new_database
from tests.cluster.running import PATIENT, Nodes, led_by
from tests.mqtt.wire_client import WireClient
from tests.process.nodes import NodeProcess
from tests.process.proving import audited
from tests.staging.staged_writes import Stage, committed, staged
from tests.topics.scenes import Reader
from tests.waiting import until

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.client.moor import Moor
from moorline.core.mqtt.packets import Publish
from moorline.core.mqtt.reason import ReasonCode
from moorline.errors import Denied, Elsewhere, MoorlineError, NotFound, SubscriptionEnded
from moorline.net.credentials import PasswordCredentials
from moorline.wire.queue import Get, Got, Send, Sent

pytestmark = pytest.mark.process

NAMES = ("a", "b")
GROUP = "$shared/g/orders/#"
SECRET = "a secret of tests"


class Cluster:
    """Two nodes, the users `ursula` and `vera`, and the operator of this machine."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes

    @contextlib.asynccontextmanager
    async def moor(self, node: str, name: str = "") -> AsyncIterator[Moor]:
        credentials = PasswordCredentials(name, SECRET) if name else None
        async with moorline.connect(
            self.nodes[node].address, credentials=credentials, reconnect=False
        ) as moor:
            yield moor


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(
    postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    async with Nodes(await new_database(postgres), tmp_path_factory.mktemp("rights")) as nodes:
        await nodes.start(*NAMES, settings=PATIENT | {"access.revocation_ms": 400})
        cluster = Cluster(nodes)
        async with cluster.moor("a") as operator:
            for name in ("ursula", "vera"):
                await operator.access.add_user(name, SECRET.encode())
            await operator.access.add_grant("/topics/orders", "vera", "s")
            await operator.group(GROUP).create()
        yield cluster


async def denied(asked: Awaitable[object]) -> None:
    with pytest.raises(Denied):
        await asked


async def granted(ask: Awaitable[object]) -> bool:
    try:
        await ask
    except Denied:
        return False
    return True


async def knows(moor: Moor, right: str, path: str, *, is_granted: bool = True) -> None:
    """Waits until that node has heard of a change that another one made."""

    async def is_known() -> bool:
        return await moor.access.check(right, path) == is_granted

    await until(is_known, what=f"{right} at {path} is {is_granted}")


class Running:
    """All that `ursula` has under way on one node."""

    def __init__(self, cluster: Cluster, node: str, moor: Moor, queue: bytes) -> None:
        self._cluster = cluster
        self.node, self.moor, self.queue = node, moor, queue
        self.begun: set[str] = set()
        self.ended: dict[str, str] = {}
        self.readers: list[Reader] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.stage: Stage = b"", 0, b""
        self.device = WireClient(cluster.nodes[node].mqtt, name=f"device-{node}")
        """A client of MQTT: it is not told, and nothing comes any more."""

    @property
    def session(self) -> str:
        return f"session-{self.node}"

    async def begin(self, folder: Path) -> None:
        """The session that will be offline first; then whatever waits for its end."""
        async with self._cluster.moor(self.node, "ursula") as offline:
            await offline.session(self.session)
            await offline.subscribe("orders/#")
        await asyncio.to_thread(self._begin_by_mqtt)
        self.readers = [Reader(await self.moor.subscribe(one)) for one in ("orders/#", GROUP)]
        self.stage = await staged(
            self.moor, f"q-{self.node}", 1, 0, [[moorline.record("orders/staged", b"1")]]
        )
        works: dict[str, Awaitable[str]] = {"queue": self._read_queue(), "watch": self._watch()}
        if self.node == "b":  # of a service there is one
            works["service"] = self._serve(folder / "service.sqlite")
        for name, work in works.items():
            self._tasks.append(asyncio.create_task(self._ended(name, work)))

    def _begin_by_mqtt(self) -> None:
        said = self.device.connect(user="ursula", password=SECRET.encode())
        assert said.reason is ReasonCode.SUCCESS
        assert not self.device.subscribe("orders/#").reasons[0].is_failure

    def heard_by_mqtt(self) -> list[bytes]:
        """Since it was asked last."""
        found = list[bytes]()
        while not self.device.is_silent(Publish):
            found.append(self.device.message().payload)
        return found

    async def _ended(self, name: str, work: Awaitable[str]) -> None:
        self.ended[name] = await work

    async def _read_queue(self) -> str:
        try:
            async for message in self.moor.queue(self.queue).read():
                await message.ack()
        except SubscriptionEnded as error:
            return error.reason
        return ""

    async def _serve(self, file: Path) -> str:
        async with self._cluster.moor(self.node, "ursula") as moor:
            own = (await moor.create_queue()).id
            try:
                async with moor.service(file) as service:
                    await service.associate([own])
                    self.begun.add("service")
                    async for message in service:
                        await message.ack()
            except MoorlineError as error:
                return str(error)
        return ""

    async def _watch(self) -> str:
        """As `moor group watch` does it."""
        async with self._cluster.moor(self.node, "ursula") as moor:
            try:
                while True:
                    assert (await moor.group(GROUP).info()).group.name == GROUP
                    self.begun.add("watch")
                    await asyncio.sleep(0.02)
            except Denied as error:
                return error.code

    async def is_over(self) -> None:
        for reader in self.readers:
            await reader.until(lambda one: one.ended == "DENIED")
        await asyncio.gather(*self._tasks)
        assert self.ended["queue"] == self.ended["watch"] == "DENIED"
        if self.node == "b":
            assert self.ended["service"] == "the node ended the service: its rights have changed"
        await denied(committed(self.moor, f"q-{self.node}", 1, [self.stage]))
        async with self._cluster.moor(self.node, "ursula") as again:
            assert await again.session(self.session) == [], "judged when it is opened"
        assert (await self.moor.echo(b"still here")) == b"still here"


@pytest.mark.asyncio(loop_scope="module")
async def test_what_runs_by_a_right_ends_on_every_node_when_it_is_taken_away(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A24, T15: each kind on each node; nothing more arrives, nor from a node that was killed and is back."""
    async with contextlib.AsyncExitStack() as stack:
        operator = await stack.enter_async_context(cluster.moor("a"))
        ursula = {
            name: await stack.enter_async_context(cluster.moor(name, "ursula")) for name in NAMES
        }
        vera = {name: await stack.enter_async_context(cluster.moor(name, "vera")) for name in NAMES}
        access = operator.access
        await access.add_grant("/topics/orders", "ursula", "sw")
        await access.add_grant("/groups/g", "ursula", "sl")
        await access.add_grant("/queues", "ursula", "sp")
        running = []
        for name, moor in ursula.items():
            await knows(moor, "s", "/queues")
            async with cluster.moor(name) as owner:
                queue = (await owner.create_queue()).id
            running.append(Running(cluster, name, moor, queue))
            await running[-1].begin(tmp_path)
        await until(lambda: all("watch" in one.begun for one in running), what="it is watched")
        await until(lambda: "service" in running[-1].begun, what="it serves")
        staying = [Reader(await moor.subscribe("orders/#")) for moor in vera.values()]
        await operator.publish("orders/1", b"before")
        for reader in [*staying, *(one.readers[0] for one in running)]:
            await reader.has([b"before"])
        for one in running:
            message = await asyncio.to_thread(one.device.message)
            assert message.payload == b"before"

        for path, letters in (("/topics/orders", "sw"), ("/groups/g", "sl"), ("/queues", "sp")):
            await access.remove_grant(path, "ursula", letters)
        await access.add_grant("/services", "ursula", denies="p")
        for one in running:
            await one.is_over()
        for name in NAMES:
            async with cluster.moor(name) as publisher:
                await publisher.publish("orders/1", b"after")
        for reader in staying:
            await reader.until(lambda one: one.bodies.count(b"after") == len(NAMES))
        for one in running:
            assert all(b"after" not in reader.bodies for reader in one.readers)
            assert await asyncio.to_thread(one.heard_by_mqtt) == []
        await operator.access.remove_grant("/services", "ursula")
        await _is_so_after_a_kill(cluster)
        await access.add_grant("/topics/orders", "ursula", "s")
        await _goes_on_where_it_was(cluster, running)
        await _goes_on_from_now_on(operator, running[0])


async def _goes_on_from_now_on(operator: Moor, running: Running) -> None:
    """A25: a client of MQTT that was connected all the time, on the node that was not killed."""
    heard = list[bytes]()

    async def is_heard() -> bool:
        await operator.publish("orders/1", b"again")
        heard.extend(await asyncio.to_thread(running.heard_by_mqtt))
        return b"again" in heard

    await until(is_heard, what="it goes on")
    assert b"after" not in heard


async def _is_so_after_a_kill(cluster: Cluster) -> None:
    """A node that knows nothing but what the catalog says."""
    await asyncio.to_thread(cluster.nodes["b"].kill)
    settings = PATIENT | {"access.revocation_ms": 400}
    await cluster.nodes.start("b", settings=settings)
    async with cluster.moor("b", "ursula") as ursula, cluster.moor("b", "vera") as vera:
        await denied(ursula.subscribe("orders/#"))
        assert await ursula.session("session-b") == []
        assert await granted(vera.subscribe("orders/#"))


async def _goes_on_where_it_was(cluster: Cluster, running: list[Running]) -> None:
    """A25: a session that has its right again has lost nothing; here on the node that was killed."""
    for one in running:
        async with cluster.moor("b", "ursula") as ursula:
            await knows(ursula, "s", "/topics/orders")
            (subscription,) = await ursula.session(one.session)
            reader = Reader(subscription)
            await reader.has([b"before", *[b"after"] * len(NAMES)])
            await reader.stop()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_denial_below_a_filter_cuts_it_on_another_node(cluster: Cluster) -> None:
    """A23, T15: `#` ends with the code DENIED, and what is beside the denial goes on."""
    async with cluster.moor("a") as operator, cluster.moor("b", "vera") as vera:
        wide = Reader(await vera.subscribe("orders/#"))
        narrow = Reader(await vera.subscribe("orders/open/#"))
        await operator.publish("orders/open/1", b"1")
        await wide.has([b"1"])
        await operator.access.add_grant("/topics/orders/secret", "vera", denies="s")
        await wide.until(lambda one: one.ended == "DENIED")
        await operator.publish("orders/secret", b"2")
        await operator.publish("orders/open/1", b"3")
        await narrow.has([b"1", b"3"])
        assert wide.bodies == [b"1"]
        await narrow.stop()
        await operator.access.remove_grant("/topics/orders/secret", "vera")


@pytest.mark.asyncio(loop_scope="module")
async def test_an_owner_is_led_to_the_home_of_its_queue(cluster: Cluster) -> None:
    """At the other node nobody knows whose it is: to say DENIED there would be wrong, and hide the way."""
    async with cluster.moor("a") as operator, cluster.moor("b", "ursula") as elsewhere:
        await operator.access.add_grant("/queues", "ursula", "p")
        async with cluster.moor("a", "ursula") as ursula:
            await knows(ursula, "p", "/queues")
            queue = (await ursula.create_queue()).id
            await ursula.send(queue, b"m")
        there = elsewhere.queue(queue)

        async def is_told() -> bool:
            with pytest.raises(NotFound) as refused:
                await elsewhere._caller.call(lambda call: Get(call, queue), Got)
            if isinstance(refused.value, Elsewhere):
                assert refused.value.home == "a"
                assert cluster.nodes["a"].address in refused.value.addresses
            return isinstance(refused.value, Elsewhere)

        await until(is_told, what="the home of a queue of another node")
        # The client follows, and is there whom it is here.
        assert len(await elsewhere.send_all([(queue, b"n"), (queue, b"o")])) == 2
        assert (await there.info()).waiting == 3
        (first,) = [one for one in await elsewhere.get_all([there]) if one is not None]
        assert await elsewhere.ack_all([first]) == [None]
        reader = there.read()
        message = await anext(reader)
        assert message.body == b"n"
        assert await message.ack() == 1
        await reader.aclose()  # type: ignore[attr-defined]
        # The home judges by its own rows: a stranger is led there, and refused there.
        async with cluster.moor("b", "vera") as stranger:
            with pytest.raises(Denied):
                await stranger.queue(queue).get()
        # A row that hides homes hides them here too: she hears what a stranger to the queue hears.
        await operator.access.add_grant("/homes", "ursula", denies="s")

        async def is_hidden() -> bool:
            try:
                await elsewhere._caller.call(lambda call: Get(call, queue), Got)
            except Elsewhere:
                return False
            except Denied:
                return True
            raise AssertionError("a queue of another node was read")

        await until(is_hidden, what="the row is heard of")
        with pytest.raises(NotFound, match=r"no queue of that id$") as refused:
            await elsewhere._caller.call(lambda call: Send(call, queue, b"m"), Sent)
        assert not isinstance(refused.value, Elsewhere)
        await operator.access.remove_grant("/homes", "ursula")
        await operator.access.remove_grant("/queues", "ursula")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_call_that_is_passed_on_is_judged_by_who_asked(cluster: Cluster) -> None:
    """A12: ursula asks at one node what the other one leads: refused as hers, and later done as hers."""
    name = "$shared/led/orders/#"
    async with cluster.moor("a") as operator, cluster.moor("b", "ursula") as ursula:
        await operator.group(name).create(deliveries_max=5)
        member = await operator.subscribe(name)
        await led_by(cluster.nodes["b"], name, "a")
        group = ursula.group(name)
        for asked in (group.change(deliveries_max=9), group.seek("now"), group.info()):
            await denied(asked)
        assert (await operator.group(name).info()).group.deliveries_max == 5
        await operator.access.add_grant("/groups/led", "ursula", "la")
        await knows(ursula, "a", "/groups/led")
        await group.change(deliveries_max=9)
        assert (await operator.group(name).info()).group.deliveries_max == 9
        await until(lambda: _has_line(cluster.nodes["b"], "denied"), what="its refusal")
        await until(
            lambda: any(_has_line(cluster.nodes[one], "granted") for one in NAMES),
            what="it is an operator's act of hers",
        )
        await member.close()


def _has_line(node: NodeProcess, verdict: str) -> bool:
    return any(
        (line["act"], line["principal"], line["path"], line["verdict"])
        == ("ChangeGroup", "ursula", "/groups/led", verdict)
        for line in audited(node)
    )
