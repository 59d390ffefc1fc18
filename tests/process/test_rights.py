"""Rights at a real node with real users: each act with its right and without, and what the trail says."""

import asyncio
import contextlib
import json
import re
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.process.nodes import NodeProcess, run_moor
from tests.process.proving import audited
from tests.topics.scenes import Reader
from tests.waiting import until

import moorline
from moorline.client.group import Group
from moorline.client.moor import Moor
from moorline.errors import Denied
from moorline.net.credentials import TokenCredentials
from moorline.wire.message import Failed
from moorline.wire.queue import Acknowledge, Acknowledged
from moorline.wire.topic import Publish, Record

pytestmark = pytest.mark.process

FLAGS = (
    "--set=streams.sync=process",
    "--set=queues.sync=process",
    "--set=streams.shards=2",
    "--set=groups.rebalance_ms=10",
)
BODY = b"what a body says"
GROUP = "$shared/g/orders/#"
FLOOD = 5_000
RETAINED, DEAD = "orders/retained", "$dead/g/orders/sunk"


class World:
    """The node, its users, and an operator: whoever is on this machine.

    Each test has an `ursula` of its own: of one principal's refusals only so many are lines of their own.
    """

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self._tokens: dict[str, str] = {}
        self._number = 0

    @property
    def ursula(self) -> str:
        return f"ursula-{self._number}"

    def next(self) -> None:
        self._number += 1

    @contextlib.asynccontextmanager
    async def moor(self, name: str = "") -> AsyncIterator[Moor]:
        credentials = TokenCredentials(await self.token_of(name)) if name else None
        async with moorline.connect(
            self.node.address, credentials=credentials, reconnect=False
        ) as moor:
            yield moor

    async def token_of(self, name: str) -> str:
        if name not in self._tokens:
            async with self.moor() as operator:
                await operator.access.add_user(name)
                self._tokens[name] = (await operator.access.add_token(name, "test")).token
        return self._tokens[name]

    async def has_refusals(self, principal: str, *acts: str) -> None:
        def found() -> set[str]:
            return {
                line["act"]
                for line in audited(self.node)
                if (line["principal"], line["verdict"]) == (principal, "denied")
            }

        await until(lambda: set(acts) <= found())


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with NodeProcess(tmp_path_factory.mktemp("rights") / "data", *FLAGS) as node:
        world = World(node)
        asyncio.run(_filled(world))
        yield world
        assert "Traceback" not in node.errors


@pytest.fixture
def world(filled: World) -> World:
    filled.next()
    return filled


async def _filled(world: World) -> None:
    """A retained message, a group, and a letter that is dead in it."""
    async with world.moor() as operator:
        await operator.publish(RETAINED, BODY, retain=True)
        await operator.group(GROUP).create(deliveries_max=1)
        member = await operator.subscribe(GROUP)
        await operator.publish("orders/sunk", BODY)
        message = await member.get(30)
        assert message is not None
        await message.reject()
        async with asyncio.timeout(30):
            while not await operator.topics(DEAD):
                await asyncio.sleep(0.01)
        await member.close()


async def denied(asked: Awaitable[object]) -> str:
    with pytest.raises(Denied) as refused:
        await asked
    return str(refused.value)


async def first_of(moor: Moor, filter_text: str, start: str = "now") -> bytes:
    """What a reader gets first."""
    subscription = await moor.subscribe(filter_text, start=start)
    message = await subscription.get(30)
    assert message is not None
    await subscription.close()
    return message.body


class Tried(NamedTuple):
    """One act, as the trail calls it, and the rows that give the right to it."""

    act: str
    rows: dict[str, str]
    ask: Callable[[Moor], Awaitable[object]]


ACTS = {
    "publish": Tried("Publish", {"/topics/orders": "w"}, lambda u: u.publish("orders/1", BODY)),
    "subscribe": Tried(
        "SubscribeTopic", {"/topics/orders": "s"}, lambda u: first_of(u, "orders/#", "beginning")
    ),
    "list": Tried("ListTopics", {"/topics/orders": "l"}, lambda u: u.topics("orders/#")),
    "join": Tried(
        "SubscribeTopic", {"/topics/orders": "s", "/groups/g": "s"}, lambda u: _joined(u, GROUP)
    ),
    "create": Tried(
        "CreateGroup",
        {"/topics/orders": "s", "/groups/new": "p"},
        lambda u: u.group("$shared/new/orders/#").create(),
    ),
    "seek": Tried("SeekGroup", {"/groups/g": "a"}, lambda u: u.group(GROUP).seek("now")),
    "delete": Tried(
        "DeleteGroup",
        {"/groups/doomed": "a"},
        lambda u: u.group("$shared/doomed/orders/#").delete(),
    ),
    "read retained": Tried(
        "SubscribeTopic", {"/topics/orders": "s"}, lambda u: first_of(u, RETAINED)
    ),
    "read dead letters": Tried(
        "SubscribeTopic", {"/topics/$dead": "s"}, lambda u: first_of(u, DEAD, "beginning")
    ),
}


READS = frozenset({"subscribe", "read retained", "read dead letters"})


async def _joined(moor: Moor, group: str) -> None:
    await (await moor.subscribe(group)).close()


@pytest.mark.parametrize("name", ACTS)
async def test_each_act_with_its_right_and_without(world: World, name: str) -> None:
    """A20: on one connection, which a refusal leaves usable; each is a line of the trail."""
    tried = ACTS[name]
    async with world.moor() as operator, world.moor(world.ursula) as ursula:
        if name == "delete":
            await operator.group("$shared/doomed/orders/#").create()
        said = await denied(tried.ask(ursula))
        assert re.fullmatch(r"the right \w \(\w+\) is not granted at /\S+", said), said
        await world.has_refusals(world.ursula, tried.act)
        *some, last = tried.rows.items()
        for path, letters in some:
            await operator.access.add_grant(path, world.ursula, letters)
            await denied(tried.ask(ursula))
        await operator.access.add_grant(last[0], world.ursula, last[1])
        found = await tried.ask(ursula)
        assert (found == BODY) == (name in READS)
        for path in tried.rows:
            await operator.access.remove_grant(path, world.ursula)
        await denied(tried.ask(ursula))


@pytest.mark.parametrize("topic", ["$SYS/audit/login", "$dead/g/orders"])
async def test_no_row_gives_a_right_to_write_what_is_reserved(world: World, topic: str) -> None:
    """A20: write `$SYS` and `$dead`; what is there is the nodes' alone."""
    path = f"/topics/{topic.partition('/')[0]}"
    async with world.moor() as operator, world.moor(world.ursula) as ursula:
        await denied(ursula.publish(topic, BODY))
        await operator.access.add_grant(path, world.ursula, "slwpdag")
        await denied(ursula.publish(topic, BODY))
        await denied(operator.publish(topic, BODY))
        await operator.access.remove_grant(path, world.ursula)


async def test_rows_are_a_tree(world: World) -> None:
    """A21, T14: deny beats grant, deeper beats higher, groups of users, `%u`, names that are nearly alike."""
    async with world.moor() as operator, world.moor(world.ursula) as ursula:
        access = operator.access

        async def may(topic: str) -> bool:
            try:
                await ursula.publish(topic, BODY)
            except Denied:
                return False
            return True

        await access.add_member("@crew", world.ursula)
        await access.add_grant("/topics/both", world.ursula, "w")
        assert await may("both/x")
        await access.add_grant("/topics/both", "@crew", denies="w")
        assert not await may("both/x"), "deny beats grant at one node"
        await access.add_grant("/topics/both/deep", world.ursula, "w")
        assert await may("both/deep/x"), "and a deeper grant beats that"
        await access.add_grant("/topics/crew", "@crew", "w")
        assert await may("crew")
        await access.remove_member("@crew", world.ursula)
        assert not await may("crew")
        await access.add_grant("/topics/homes/%u", "@authenticated", "w")
        assert await may(f"homes/{world.ursula}/desk")
        assert not await may("homes/vera/desk")
        await access.add_grant("/topics/parcels", world.ursula, "w")
        for topic, wanted in {"parcels": True, "parcels2": False, "parcel": False}.items():
            assert await may(topic) == wanted, topic
        explained = await access.explain("w", "/topics/both/x", world.ursula)
        assert explained.is_granted, "without the group her own row decides"


async def test_a_filter_needs_all_that_it_can_match(world: World) -> None:
    """A22: `#` and `+/x`; with one row less below, each is refused."""
    async with world.moor() as operator, world.moor(world.ursula) as ursula:
        access = operator.access
        await access.add_grant("/topics/plain", world.ursula, "s")
        for text in ("#", "+/x", "plains/#"):
            await denied(ursula.subscribe(text))
        await access.add_grant("/topics", world.ursula, "s")
        for text in ("#", "+/x"):
            await (await ursula.subscribe(text)).close()
        await access.add_grant("/topics/plain/x", world.ursula, denies="s")
        for text in ("#", "+/x", "plain/#"):
            await denied(ursula.subscribe(text))
        await (await ursula.subscribe("+/y")).close()
        for path in ("/topics", "/topics/plain", "/topics/plain/x"):
            await access.remove_grant(path, world.ursula)


async def test_a_session_and_a_group_of_another_are_refused_and_go_on(world: World) -> None:
    """A28: in the words for what is not there, and vera notices nothing."""
    group, absent = "$shared/vera/vera/#", "$shared/vera/none/#"
    async with world.moor("vera") as vera, world.moor(world.ursula) as ursula:
        await vera.session("vera's")
        private = Reader(await vera.subscribe("vera/#"))
        shared = Reader(await vera.subscribe(group))
        words = {
            tuple([await denied(ask(ursula.group(name))) for ask in _FOR_GROUPS])
            for name in (group, absent)
        }
        assert len(words) == 1, "nobody hears whether there is one"
        await denied(ursula.subscribe(group))
        taken, free = await denied(ursula.session("vera's")), "/sessions/vera's"
        assert taken == f"the right p (publish) is not granted at {free}"
        bodies = [b"%d" % number for number in range(20)]
        await vera.publish_all([moorline.record(f"vera/{one.decode()}", one) for one in bodies])
        await private.has(bodies)
        await shared.has(bodies)
        assert (private.ended, shared.ended) == ("", "")
        await private.stop()
        await shared.stop()
    await world.has_refusals(
        world.ursula, "OpenSession", "SubscribeTopic", "SeekGroup", "KickMember", "DeleteGroup"
    )


async def test_who_knows_the_id_of_a_queue_may_send_to_it_and_nothing_else(
    world: World, tmp_path: Path
) -> None:
    """A29: not read, acknowledge, delete, block or associate it; and not send once its owner closed it."""
    async with world.moor("vera") as vera, world.moor(world.ursula) as ursula:
        queue = await vera.create_queue()
        known = ursula.queue(queue.id)
        sent = await ursula.send(queue.id, BODY)
        for asked in (known.get(), known.delete(), known.block(), known.off(), known.close()):
            await denied(asked)
        await denied(anext(known.read()))
        await denied(
            ursula._caller.call(lambda call: Acknowledge(call, queue.id, sent), Acknowledged)
        )
        async with ursula.service(tmp_path / "service.sqlite") as service:
            assert await service.associate([queue.id]) == [queue.id], "refused"
        await queue.close()
        await denied(ursula.send(queue.id, BODY))
        await vera.send(queue.id, b"her own")
        await queue.open()
        await ursula.send(queue.id, b"again")
        assert (await queue.info()).waiting == 3
        message = await queue.get()
        assert message is not None
        assert message.body == BODY
    await world.has_refusals(
        world.ursula, "Get", "Subscribe", "Acknowledge", "DeleteQueue", "BlockQueue", "Send"
    )


_FOR_GROUPS: tuple[Callable[[Group], Awaitable[object]], ...] = (
    lambda group: group.info(),
    lambda group: group.seek("now"),
    lambda group: group.kick("x"),
    lambda group: group.delete(),
)


async def test_a_line_says_who_by_what_from_where_what_on_what_and_when(world: World) -> None:
    """A40: of a login, a refusal, a change of rights and an operator's act; and none of them has a secret."""
    async with world.moor() as operator, world.moor(world.ursula) as ursula:
        await denied(ursula.publish("elsewhere", BODY))
        await operator.access.add_grant("/topics/elsewhere", "vera", "w")
        await operator.confirm_clock()
        tokens = [(await operator.access.add_token(world.ursula, "told once")).token]
    tokens.append(await world.token_of(world.ursula))
    wanted = {
        ("login", world.ursula, "token", "Login", "/", "granted"),
        ("refusal", world.ursula, "token", "Publish", "/topics/elsewhere", "denied"),
        ("grant", "anonymous", "nothing", "AddGrant", "/topics/elsewhere", "granted"),
        ("operator", "anonymous", "nothing", "ConfirmClock", "/admin/clock", "granted"),
    }
    fields = ("kind", "principal", "proof", "act", "path", "verdict")
    await until(
        lambda: wanted <= {tuple(line[name] for name in fields) for line in audited(world.node)}
    )
    for line in audited(world.node):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line["time"]), line
        assert line["address"].startswith(("127.0.0.1", "several")), line
        assert line["node"]
    kept = json.dumps(audited(world.node)) + world.node.errors
    for secret in (BODY.decode(), *tokens):
        assert secret not in kept


async def test_a_flood_of_refusals_is_a_few_lines_and_others_have_theirs(world: World) -> None:
    """A34: of any number of topics; all of them are counted, and vera's one refusal is a line at once."""
    async with world.moor(world.ursula) as ursula, world.moor("vera") as vera:
        before, denied_before = len(audited(world.node)), await _denied_so_far(world.node)
        asked = [
            lambda call, n=n: Publish(call, [Record(f"flood/{n}", BODY)]) for n in range(FLOOD)
        ]
        answers = await ursula._caller.call_all(asked)
        assert {one.code for one in answers if isinstance(one, Failed)} == {"DENIED"}
        await denied(vera.publish("flood/vera", BODY))
        await world.has_refusals("vera", "Publish")
        assert await _denied_so_far(world.node) == denied_before + FLOOD + 1
        assert len(audited(world.node)) - before < 100


async def _denied_so_far(node: NodeProcess) -> int:
    def read() -> str:
        with urllib.request.urlopen(f"{node.http}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    found = re.search(
        r"^moorline_calls_denied_total (\d+)", await asyncio.to_thread(read), re.MULTILINE
    )
    assert found is not None
    return int(found[1])


async def test_a_group_reads_the_trail_and_others_do_not(world: World) -> None:
    """A41: as messages of `$SYS/audit/KIND`, shared by its members; for Spark see tests/spark."""
    name = "$shared/auditors/$SYS/audit/#"
    async with (
        world.moor() as operator,
        world.moor("vera") as vera,
        world.moor(world.ursula) as ursula,
    ):
        await denied(ursula.subscribe("$SYS/audit/#"))
        await operator.access.add_grant("/topics/$SYS/audit", "vera", "s")
        await operator.access.add_grant("/groups/auditors", "vera", "sp")
        await vera.group(name).create(start="beginning")
        reader = Reader(await vera.subscribe(name))
        await operator.access.add_grant("/topics/marked", world.ursula, "s")

        def told() -> set[tuple[str, str, str]]:
            lines = [(one.topic, json.loads(one.body)) for one in reader.got]
            return {(topic, line["act"], line["path"]) for topic, line in lines}

        await until(
            lambda: (
                {
                    ("$SYS/audit/grant", "AddGrant", "/topics/marked"),
                    ("$SYS/audit/refusal", "SubscribeTopic", "/topics/$SYS/audit/#"),
                }
                <= told()
            )
        )
        await reader.stop()


async def test_moor_grant_list_says_what_the_first_rows_are_for(world: World) -> None:
    address = f"--address={world.node.address}"
    shown = await asyncio.to_thread(run_moor, "grant", "list", "--json", address)
    rows = json.loads(shown.stdout)
    first = {row["path"]: row["purpose"] for row in rows if row["made_by"] == "first start"}
    assert first.pop("/") == "who is on the node's machine may do everything"
    assert list(first) == ["/%u"]
    assert "below its own name" in first["/%u"]
    table = await asyncio.to_thread(run_moor, "grant", "list", address)
    assert "who is on the node's machine may do everything" in table.stdout
