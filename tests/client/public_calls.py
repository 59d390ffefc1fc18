"""Every call of the client that waits for something, found in its classes, and what each needs to be made.

A call that is new is found too: without arguments it is made as it is, with arguments it needs a line in
`ARGUMENTS` or `KEYWORDS`, and a class that is new a line in `TARGETS`.
"""

import contextlib
import inspect
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

import moorline
from moorline.client import access, cluster, feed, group, moor, queue, service, topic
from moorline.client import service_operator as operator
from moorline.client.access import Access
from moorline.client.cluster import Cluster
from moorline.client.connecting import Connecting
from moorline.client.group import Group
from moorline.client.moor import Moor
from moorline.client.queue import Message, Queue
from moorline.client.service import Service
from moorline.client.service_operator import Reconciler, calling, copied
from moorline.client.topic import Batch, Subscribing, Subscription, TopicMessage

MODULES = (access, cluster, feed, group, moor, operator, queue, service, topic)
INSIDE = {"Feed", "Inbox", "Owner", "Subscribes"}
"""Classes that users do not meet."""

ALSO = ("ServiceMessage.ack",)
"""A message of a service is of the class of all others, and its acknowledgement waits for an agreement."""

WAITING = {"__aenter__", "__aexit__", "__aiter__", "__anext__", "__await__"}

TOPIC = "c/orders"
READ = "$shared/read/c/#"
QUEUES = 300
OWN_QUEUES = 1_000
"""Of the service: so many that its list takes a moment to read."""


class ClientCertificate(msgspec.Struct, frozen=True):
    """Where the node is, and by what it knows its service."""

    tcp: str
    tls: str
    ca: Path
    certificate: Path
    listed: Path
    """The service's list on this side."""
    stays: bool = False
    """Whether its clients connect again by themselves."""

    def connect(self) -> Connecting:
        return moorline.connect(self.tcp, reconnect=self.stays)

    def connect_as_service(self) -> Connecting:
        return moorline.connect(
            self.tls,
            ca=self.ca,
            certificate=self.certificate,
            key=self.certificate,
            reconnect=self.stays,
        )


class World:
    """Two connections, some queues, and what is known of all that was said."""

    def __init__(
        self, certificates: ClientCertificate, moor: Moor, secure: Moor, seed: int
    ) -> None:
        self.certificates, self.moor, self.secure = certificates, moor, secure
        self.chance = random.Random(seed)
        self.numbers = itertools.count(1)
        self.prefix = f"{seed}".encode()
        self.kept = b""
        self.plain: list[Queue] = []
        self.doomed: list[Queue] = []
        """Those that may be blocked and deleted."""
        self.own: list[bytes] = []
        """Queues of the service."""
        self.attempted: dict[str, set[bytes]] = {"sent": set(), "published": set()}
        self.answered: dict[str, set[bytes]] = {"sent": set(), "published": set()}

    async def fill(self) -> None:
        self.plain = await self.moor.create_queues(QUEUES)
        self.kept = (await self.moor.create_queue()).id
        self.own = [one.id for one in await self.secure.create_queues(OWN_QUEUES)]
        self.doomed = await self.moor.create_queues(QUEUES)
        await self.moor.send_all([(one.id, b"ahoy") for one in (*self.plain, *self.doomed)])
        async with self.secure.service(self.certificates.listed) as made:
            assert await made.associate(self.own) == []

    def bodies(self, kind: str, count: int) -> list[bytes]:
        made = [b"%s-%d" % (self.prefix, next(self.numbers)) for _ in range(count)]
        self.attempted[kind].update(made)
        return made

    def some(self) -> list[bytes]:
        return self.chance.sample(self.own, self.chance.randrange(1, OWN_QUEUES // 2))


# --- which calls there are ------------------------------------------------------------------------


def _classes() -> list[type]:
    return [
        kind
        for module in MODULES
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and kind.__module__ == module.__name__
        if name not in INSIDE and not name.startswith("_")
    ]


def public_calls() -> list[str]:
    found = (
        f"{kind.__name__}.{name}"
        for kind in _classes()
        for name in vars(kind)
        if _waits(kind, name)
    )
    return sorted([*found, *ALSO])


def _waits(kind: type, name: str) -> bool:
    member = inspect.getattr_static(kind, name)
    if name in WAITING:
        return True
    return not name.startswith("_") and (
        inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
    )


def missing() -> list[str]:
    """Calls that nobody can make: what they are called on, or with, is not known here."""
    found = []
    for name in public_calls():
        kind, _, method = name.partition(".")
        if kind not in TARGETS and name not in TARGETS:
            found.append(name)
        elif method not in WAITING and name not in {*ARGUMENTS, *KEYWORDS, *ALSO}:
            (found_in,) = [one for one in _classes() if one.__name__ == kind]
            parameters = list(inspect.signature(getattr(found_in, method)).parameters.values())[1:]
            if any(one.default is inspect.Parameter.empty for one in parameters):
                found.append(name)
    return found


# --- what they are called on ----------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _shared(world: World) -> AsyncIterator[Moor]:
    yield world.moor


@contextlib.asynccontextmanager
async def _connection(world: World) -> AsyncIterator[Moor]:
    async with world.certificates.connect() as made:
        yield made


@contextlib.asynccontextmanager
async def _connecting(world: World) -> AsyncIterator[Connecting]:
    is_plain = world.chance.random() < 0.8
    yield world.certificates.connect() if is_plain else world.certificates.connect_as_service()


@contextlib.asynccontextmanager
async def _queue(world: World) -> AsyncIterator[Queue]:
    yield world.doomed[next(world.numbers) % QUEUES]


@contextlib.asynccontextmanager
async def _message(world: World) -> AsyncIterator[Message]:
    made = await world.moor.create_queue()
    await world.moor.send(made.id, b"ahoy")
    message = await made.get()
    assert message is not None
    yield message


@contextlib.asynccontextmanager
async def _entering(world: World) -> AsyncIterator[Service]:
    made = world.secure.service(world.certificates.listed)
    yield made
    made.close()  # a task may be cancelled before it has entered it


@contextlib.asynccontextmanager
async def _service(world: World) -> AsyncIterator[Service]:
    async with world.secure.service(world.certificates.listed) as entered:
        yield entered


@contextlib.asynccontextmanager
async def _service_message(world: World) -> AsyncIterator[Message]:
    async with _service(world) as entered:
        receiver = world.own[next(world.numbers) % OWN_QUEUES]
        await entered.associate([receiver])
        await world.moor.send(receiver, b"ahoy")
        async with contextlib.aclosing(aiter(entered)) as messages:  # type: ignore[type-var]
            yield await anext(messages)


@contextlib.asynccontextmanager
async def _reconciler(world: World) -> AsyncIterator[Reconciler]:
    certificates = world.certificates
    reach = certificates.ca, certificates.certificate, certificates.certificate
    async with calling(certificates.tls, *reach) as caller:
        with copied(certificates.listed) as own:
            yield Reconciler(caller, own, None, is_dry=True)


@contextlib.asynccontextmanager
async def _subscribing(world: World) -> AsyncIterator[Subscribing]:
    filter_text = READ if world.chance.random() < 0.5 else f"c/{next(world.numbers) % 40}/#"
    yield world.moor.subscribe(filter_text, start="beginning")


@contextlib.asynccontextmanager
async def _subscription(world: World) -> AsyncIterator[Subscription]:
    # Of its own: a filter is one subscription of a connection, however often it is asked for.
    own = f"c/own/{next(world.numbers)}"
    (body,) = world.bodies("published", 1)
    await world.moor.publish(own, body)
    world.answered["published"].add(body)
    made = await world.moor.subscribe(own, start="beginning")
    try:
        yield made
    finally:
        await made.close()


@contextlib.asynccontextmanager
async def _topic_message(world: World) -> AsyncIterator[TopicMessage]:
    async with _subscription(world) as made:
        yield await anext(made)


@contextlib.asynccontextmanager
async def _batch(world: World) -> AsyncIterator[Batch]:
    async with _subscription(world) as made, contextlib.aclosing(made.batches()) as batches:  # type: ignore[type-var]
        yield await anext(batches)


@contextlib.asynccontextmanager
async def _group(world: World) -> AsyncIterator[Group]:
    yield world.moor.group("$shared/operated/c/#")


@contextlib.asynccontextmanager
async def _access(world: World) -> AsyncIterator[Access]:
    yield world.moor.access


@contextlib.asynccontextmanager
async def _cluster(world: World) -> AsyncIterator[Cluster]:
    yield world.moor.cluster


TARGETS: dict[str, Callable[[World], contextlib.AbstractAsyncContextManager[Any]]] = {
    "Access": _access,
    "Batch": _batch,
    "Cluster": _cluster,
    "Connecting": _connecting,
    "Group": _group,
    "Message": _message,
    "Moor": _shared,
    "Moor.close": _connection,
    "Moor.session": _connection,
    "Queue": _queue,
    "Reconciler": _reconciler,
    "Service": _service,
    "Service.__aenter__": _entering,
    "Service.__aexit__": _entering,
    "ServiceMessage": _service_message,
    "Subscribing": _subscribing,
    "Subscription": _subscription,
    "TopicMessage": _topic_message,
}


# --- and with what --------------------------------------------------------------------------------


async def _records(world: World) -> tuple[Any, ...]:
    return ([moorline.record(TOPIC, body) for body in world.bodies("published", 20)],)


async def _delivered(world: World) -> tuple[Any, ...]:
    start = next(world.numbers) % (QUEUES - 20)
    found = await world.moor.get_all(world.plain[start : start + 20])
    return ([message for message in found if message is not None],)


def _always(*values: Any) -> Callable[[World], Awaitable[tuple[Any, ...]]]:
    async def same(_: World) -> tuple[Any, ...]:
        return values

    return same


def _made(
    make: Callable[[World], tuple[Any, ...]],
) -> Callable[[World], Awaitable[tuple[Any, ...]]]:
    async def made(world: World) -> tuple[Any, ...]:
        return make(world)

    return made


ARGUMENTS: dict[str, Callable[[World], Awaitable[tuple[Any, ...]]]] = {
    # Nobody is called so, and nobody loses a right: the other calls go on as they are.
    "Access.add_grant": _always("/topics/c/rows", "zoe", "sl"),
    "Access.add_member": _always("@c", "zoe"),
    "Access.add_token": _made(lambda world: ("zoe", f"token-{next(world.numbers)}")),
    "Access.add_user": _made(lambda world: (f"zoe-{next(world.numbers)}",)),
    "Access.change_user": _always("zoe"),
    "Access.check": _always("s", "/topics/c/#"),
    "Access.explain": _always("s", "/topics/c/#"),
    "Access.map_owner": _always("0" * 64, "zoe"),
    "Access.remove_grant": _always("/topics/c/rows", "zoe"),
    "Access.remove_member": _always("@c", "zoe"),
    "Access.remove_node": _always("nobody"),
    "Access.remove_user": _always("zoe"),
    "Access.revoke_token": _always("zoe", "token"),
    "Access.set_quota": _always("zoe", "queues", 1_000),
    # There is no such home: refused, also where it is cancelled.
    "Cluster.move_home": _always("nobody", "nobody"),
    "Group.kick": _always("nobody"),
    "Group.plan_seek": _always("now"),
    "Group.seek": _always("now"),
    "Moor.ack_all": _delivered,
    "Moor.create_queues": _always(20),
    # Nobody else publishes there, or looks.
    "Moor.delete_topic": _always("c/deleted"),
    "Moor.echo": _always(b"ahoy"),
    "Moor.echo_all": _always([b"ahoy"] * 50),
    "Moor.get_all": _made(lambda world: (world.plain[:50],)),
    # Nobody speaks MQTT here: both are refused.
    "Moor.kick_mqtt_client": _always("nobody"),
    "Moor.mqtt_client": _always("nobody"),
    "Moor.publish": _made(lambda world: (TOPIC, *world.bodies("published", 1))),
    "Moor.publish_all": _records,
    # No table is called so: both are refused, also where they are cancelled.
    "Moor.publish_table": _always("absent", "c/tables"),
    "Moor.send": _made(lambda world: (world.kept, *world.bodies("sent", 1))),
    "Moor.send_all": _made(
        lambda world: ([(world.kept, body) for body in world.bodies("sent", 20)],)
    ),
    "Moor.session": _always("durable"),
    "Moor.stop_table": _always("absent"),
    "Service.associate": _made(lambda world: (world.some(),)),
    "Service.dissociate": _made(lambda world: (world.some(),)),
    "Subscription.get": _always(0.004),
}


KEYWORDS: dict[str, dict[str, Any]] = {
    "Access.change_user": {"is_disabled": True},
    # The node goes on as it is: others work on it.
    "Cluster.drain": {"is_over": True},
    "Group.change": {"deliveries_max": 3},
}


def note(world: World, name: str, arguments: tuple[Any, ...], result: Any) -> None:
    """What was answered is known from now on."""
    if name == "Moor.send":
        world.answered["sent"].add(arguments[1])
    elif name == "Moor.send_all":
        world.answered["sent"].update(
            body
            for (_, body), answer in zip(arguments[0], result, strict=True)
            if isinstance(answer, int)
        )
    elif name == "Moor.publish":
        world.answered["published"].add(arguments[1])
    elif name == "Moor.publish_all":
        world.answered["published"].update(one.body for one in arguments[0])


async def make(target: Any, name: str, arguments: tuple[Any, ...]) -> Any:
    """One call, as a user makes it."""
    method = name.partition(".")[2]
    if method in ("__aenter__", "__aexit__"):
        async with target:
            return None
    if method == "__await__":
        made = await target
        await made.close()
        return None
    if method == "__anext__":
        return await anext(target)
    called = aiter(target) if method == "__aiter__" else _called(target, name, arguments)
    if inspect.isasyncgen(called):
        async with contextlib.aclosing(called):
            return await anext(called)
    if method == "__aiter__":
        return await anext(called)
    return await called


def _called(target: Any, name: str, arguments: tuple[Any, ...]) -> Any:
    return getattr(target, name.partition(".")[2])(*arguments, **KEYWORDS.get(name, {}))
