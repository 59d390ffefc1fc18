"""Quotas at a real node: at the bound a typed error, below it again, and another one notices nothing."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.mqtt.wire_client import WireClient
from tests.process.nodes import NodeProcess
from tests.process.proving import audited, proven, who
from tests.staging.staged_writes import committed, staged
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.core.mqtt.reason import ReasonCode
from moorline.errors import CallFailed, OverQuota
from moorline.net.credentials import PasswordCredentials
from moorline.wire.staging import QUEUES, QueueRow

pytestmark = pytest.mark.process

FLAGS = (
    "--set=streams.sync=process",
    "--set=queues.sync=process",
    "--set=streams.shards=2",
    "--set=access.revocation_ms=400",
)
HEAD_BYTES = 29
"""What a message counts as beside its body."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("quotas") / "data", *FLAGS) as node:
        yield node


@pytest.fixture
async def operator(node: NodeProcess) -> AsyncIterator[Moor]:
    async with moorline.connect(node.address, reconnect=False) as moor:
        yield moor


@asynccontextmanager
async def user(node: NodeProcess, operator: Moor, name: str, **bounds: int) -> AsyncIterator[Moor]:
    """Somebody who may do what it likes with topics, groups and queues, within these bounds."""
    await operator.access.add_user(name, b"x")
    for path in ("/topics", "/groups", "/sessions"):
        await operator.access.add_grant(path, name, "slwp")
    for quota, bound in bounds.items():
        await operator.access.set_quota(name, quota, bound)
    async with moorline.connect(
        node.address, credentials=PasswordCredentials(name, "x"), reconnect=False
    ) as moor:
        yield moor


async def used(moor: Moor, quota: str) -> int:
    found = await moor.access.quota_usage()
    return next(one.used for one in found.usage if one.quota == quota)


async def test_queues_are_bounded_and_come_back(node: NodeProcess, operator: Moor) -> None:
    """A30: queues; what the error says can be read by a program."""
    async with user(node, operator, "q1", queues=2) as moor, user(node, operator, "q2") as other:
        first, _ = await moor.create_queue(), await moor.create_queue()
        with pytest.raises(OverQuota, match="the quota queues is 2") as over:
            await moor.create_queue()
        assert (over.value.quota, over.value.bound) == ("queues", 2)
        assert over.value.retry_after_ms is None
        await other.create_queue()
        await first.delete()
        await moor.create_queue()
        assert await used(moor, "queues") == 2
    await until(lambda: any(line["path"] == "/quotas/queues" for line in audited(node)))


async def test_bytes_that_wait_in_queues_are_bounded_and_come_back(
    node: NodeProcess, operator: Moor
) -> None:
    """A30: bytes stored; they are the owner's, whoever sends."""
    bound = 3 * (HEAD_BYTES + 100)
    async with (
        user(node, operator, "b1", stored_bytes=bound) as moor,
        user(node, operator, "b2") as sender,
    ):
        one, two = await moor.create_queue(), await moor.create_queue()
        theirs = await sender.create_queue()
        for queue in (one, one, two):
            await sender.send(queue.id, b"x" * 100)
        for queue in (one, two):
            with pytest.raises(OverQuota, match="stored_bytes") as over:
                await sender.send(queue.id, b"")
            assert (over.value.quota, over.value.bound) == ("stored_bytes", None)
        await sender.send(theirs.id, b"x" * 1_000)
        assert await used(moor, "stored_bytes") == bound
        message = await one.get()
        assert message is not None
        await message.ack()
        await sender.send(two.id, b"x" * 100)
        await two.delete()
        assert await used(moor, "stored_bytes") == HEAD_BYTES + 100


async def test_topics_are_bounded_and_those_that_are_known_go_on(
    node: NodeProcess, operator: Moor
) -> None:
    """A30: topics that somebody publishes to."""
    async with user(node, operator, "t1", topics=2) as moor, user(node, operator, "t2") as other:
        await moor.publish("t1/a", b"1")
        await moor.publish("t1/b", b"1")
        with pytest.raises(OverQuota, match="the quota topics is 2") as over:
            await moor.publish("t1/c", b"1")
        assert over.value.retry_after_ms is not None
        await moor.publish("t1/a", b"2")
        await other.publish("t1/c", b"1")
        assert await used(moor, "topics") == 2


async def test_groups_are_bounded_and_come_back(node: NodeProcess, operator: Moor) -> None:
    """A30: groups, also those that are asked for side by side."""
    async with user(node, operator, "g1", groups=3) as moor, user(node, operator, "g2") as other:
        made = await asyncio.gather(
            *(moor.group(f"$shared/g1-{number}/a").create() for number in range(6)),
            return_exceptions=True,
        )
        over = [one for one in made if isinstance(one, OverQuota)]
        assert len(over) == 3
        assert {one.quota for one in over} == {"groups"}
        with pytest.raises(OverQuota):
            await moor.subscribe("$shared/g1-9/a")
        await other.subscribe("$shared/g2/a")
        names = [
            facts.name for facts in await operator.groups() if facts.name.startswith("$shared/g1-")
        ]
        await moor.group(names[0]).delete()
        await moor.group("$shared/g1-10/a").create()
        assert await used(moor, "groups") == 3


async def test_expensive_calls_are_bounded_by_the_second(node: NodeProcess, operator: Moor) -> None:
    """A30: calls of an expensive kind; it says when to come again, and others list on."""
    bound = {"heavy_calls_per_s": 3}
    async with user(node, operator, "h1", **bound) as moor, user(node, operator, "h2") as other:
        with pytest.raises(OverQuota) as over:
            await often(lambda: moor.topics("#", "", 10))
        assert over.value.quota == "heavy_calls_per_s"
        assert over.value.retry_after_ms is not None
        await moor.publish("h1/a", b"what is cheap goes on")
        for _ in range(10):
            await other.topics("#", "", 10)
        await asyncio.sleep(over.value.retry_after_ms / 1_000)
        await again(lambda: moor.topics("#", "", 10))


async def often(call: Callable[[], Awaitable[object]]) -> None:
    for _ in range(1_000):
        await call()


async def again(call: Callable[[], Awaitable[object]]) -> None:
    """Within the bound of time; the node's clock and ours differ by a little."""
    async with asyncio.timeout(30):
        while True:
            try:
                await call()
            except OverQuota as error:
                await asyncio.sleep((error.retry_after_ms or 1_000) / 1_000)
            else:
                return


async def test_sends_count_as_messages(node: NodeProcess, operator: Moor) -> None:
    """A30: messages and bytes a second, of queues as of topics."""
    async with user(node, operator, "s1", messages_per_s=5, bytes_per_s=1_000) as moor:
        queue = await moor.create_queue()
        with pytest.raises(OverQuota, match="bytes_per_s is 1,000, and more was asked for at once"):
            await moor.send(queue.id, b"x" * 1_001)
        with pytest.raises(OverQuota, match="messages_per_s is 5"):
            await often(lambda: moor.send(queue.id, b"x"))


async def test_of_a_run_of_sends_as_many_are_given_as_fit(
    node: NodeProcess, operator: Moor
) -> None:
    """A30: a run within the bound is one look, and one above it is cut where the second ends."""
    async with user(node, operator, "s2", messages_per_s=50) as moor:
        queue = await moor.create_queue()
        sent = await moor.send_all([(queue.id, b"x")] * 40)
        assert not any(isinstance(one, CallFailed) for one in sent)
        over = await moor.send_all([(queue.id, b"x")] * 100)
        refused = [isinstance(one, OverQuota) for one in over]
        assert any(refused)
        # Those that fit come first, all others behind them.
        assert refused == sorted(refused)
        assert not refused[0]


async def test_a_session_opens_with_what_fits_and_says_what_does_not(
    node: NodeProcess, operator: Moor
) -> None:
    """A30: subscriptions that a session had before its quota was lowered."""
    async with user(node, operator, "d1") as moor:
        await moor.session("of-d1")
        for filter_text in ("a/#", "b/#", "c/#"):
            await moor.subscribe(filter_text)
    await operator.access.set_quota("d1", "subscriptions", 2)
    credentials = PasswordCredentials("d1", "x")
    async with moorline.connect(node.address, credentials=credentials, reconnect=False) as moor:
        opened = await moor.session("of-d1")
        assert len(opened) == 2
        assert set(opened.left_out.values()) == {"OVER_QUOTA"}
        assert {one.filter for one in opened} | opened.left_out.keys() == {"a/#", "b/#", "c/#"}
    await operator.access.set_quota("d1", "subscriptions", None)
    async with moorline.connect(node.address, credentials=credentials, reconnect=False) as moor:
        opened = await moor.session("of-d1")
        assert (len(opened), opened.left_out) == (3, {}), "the place was kept"


async def test_a34_a_flood_over_the_quota_is_few_lines_that_count(
    node: NodeProcess, operator: Moor
) -> None:
    """A34: a thousand refusals by a quota, in different topics."""
    async with user(node, operator, "f1", messages_per_s=1) as moor:
        refused = 0
        for number in range(1_000):
            try:
                await moor.publish(f"f1/{number}", b"x")
            except OverQuota:
                refused += 1
        assert refused > 900
        lines = []

        def is_told() -> bool:
            nonlocal lines
            lines = [line for line in audited(node) if line["principal"] == "f1"]
            lines = [line for line in lines if line["kind"] == "refusal"]
            counts: list[int] = [line.get("count", 1) for line in lines]
            return sum(counts) >= refused

        await until(is_told)
        assert len(lines) <= 6
        assert {(line["act"], line["path"]) for line in lines} == {
            ("Publish", "/quotas/messages_per_s")
        }


def moor_command(node: NodeProcess, *words: str) -> str:
    command = [sys.executable, "-m", "moorline.cli.main", *words, "--address", node.address]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


async def test_moor_quota_shows_use_beside_bound(node: NodeProcess, operator: Moor) -> None:
    async with user(node, operator, "c1", queues=7) as moor:
        await moor.create_queue()
        said = await asyncio.to_thread(moor_command, node, "quota", "show", "c1", "--json")
        rows = {row["quota"]: row for row in json.loads(said)["usage"]}
        assert (rows["queues"]["used"], rows["queues"]["bound"]) == (1, 7)
        assert (rows["connections"]["used"], rows["connections"]["bound"]) == (1, 1_000)
        assert rows["messages_per_s"]["bound"] is None
        table = await asyncio.to_thread(moor_command, node, "quota", "show")
        assert "none" in table, "who is on this machine bounds itself"
        removed = await asyncio.to_thread(moor_command, node, "quota", "remove", "c1", "queues")
        assert "c1 has no queues of its own" in removed


async def test_sessions_that_last_are_bounded_native_ones_and_those_of_mqtt(
    node: NodeProcess, operator: Moor
) -> None:
    """A30: also those that are made side by side; what is there is opened again, whatever the bound is."""
    async with user(node, operator, "keeper", sessions=3) as first:
        await first.session("one", expiry_s=600)
        token = (await operator.access.add_token("keeper", "device")).token
        with WireClient(node.mqtt, name="keepers") as device:
            said = device.connect(user="keeper", password=token.encode(), clean=False, expiry_s=600)
            assert said.reason is ReasonCode.SUCCESS

        async def opened(name: str) -> bool:
            async with moorline.connect(
                node.address, credentials=PasswordCredentials("keeper", "x"), reconnect=False
            ) as moor:
                try:
                    await moor.session(name, expiry_s=600)
                except OverQuota as error:
                    return error.quota != "sessions"
                return True

        assert sum(await asyncio.gather(*(opened(f"more-{n}") for n in range(6)))) == 1
        with WireClient(node.mqtt, name="another-of-keepers") as device:
            said = device.connect(user="keeper", password=token.encode(), clean=False, expiry_s=600)
            assert said.reason is ReasonCode.QUOTA_EXCEEDED
        with WireClient(node.mqtt, name="keepers") as device:
            said = device.connect(user="keeper", password=token.encode(), clean=False, expiry_s=600)
            assert said.session_present
        await operator.access.set_quota("keeper", "sessions", 0)
        assert not await opened("none")
        shown = await asyncio.to_thread(moor_command, node, "quota", "show", "keeper", "--json")
        rows = {row["quota"]: row for row in json.loads(shown)["usage"]}
        assert (rows["sessions"]["used"], rows["sessions"]["bound"]) == (3, 0)


async def test_the_settings_bound_principals_and_listeners(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A30: defaults without a row, and what all share who come by one address."""
    by = "tcp://127.0.0.1:0"
    lines = f"@authenticated queues 1,{by} connections 2,{by} topics 2,{by} queues 4,{by} groups 1"
    data = tmp_path_factory.mktemp("listener") / "data"
    with NodeProcess(data, *FLAGS, f"--set=access.quotas={lines}") as node:
        async with moorline.connect(node.address, reconnect=False) as operator:
            async with user(node, operator, "alice") as alice:
                await alice.create_queue()
                with pytest.raises(OverQuota, match="queues is 1"):
                    await alice.create_queue()
                with pytest.raises(OverQuota, match="connections"):
                    async with proven(node.address) as third:
                        await who(third)
                # Of names that came by this address, whoever brought them up.
                await alice.publish("alice/a", b"x")
                await operator.publish("b", b"x")
                for moor, topic in ((alice, "alice/c"), (operator, "c")):
                    with pytest.raises(OverQuota, match="topics is 2"):
                        await moor.publish(topic, b"x")
                await operator.publish("alice/a", b"x")
            for _ in range(3):
                await operator.create_queue()  # nobody bounds who is on this machine
            # But what is made by this address, whoever makes it: alice's was the first of four.
            with pytest.raises(OverQuota, match="queues is 4: come again"):
                await operator.create_queue()
            await operator.group("$share/g/a").create()
            with pytest.raises(OverQuota, match="groups is 1"):
                await operator.group("$share/h/a").create()


async def test_what_an_owner_has_is_known_behind_a_restart(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A30: queues and the bytes in them, of the index and of the log."""
    data = tmp_path_factory.mktemp("restart") / "data"
    with NodeProcess(data, *FLAGS) as node:
        async with (
            moorline.connect(node.address, reconnect=False) as operator,
            user(node, operator, "alice", queues=3) as alice,
        ):
            queues = [await alice.create_queue() for _ in range(3)]
            for queue in queues:
                await alice.send(queue.id, b"x" * 71)
            await operator.checkpoint()
            await queues[0].delete()
            await alice.send(queues[1].id, b"x" * 71)
        node.kill()
    with NodeProcess(data, *FLAGS) as node:
        credentials = PasswordCredentials("alice", "x")
        async with moorline.connect(
            node.address, credentials=credentials, reconnect=False
        ) as alice:
            assert await used(alice, "queues") == 2
            assert await used(alice, "stored_bytes") == 300
            await alice.create_queue()
            with pytest.raises(OverQuota, match="queues is 3"):
                await alice.create_queue()


async def test_staged_rows_do_not_pass_the_bytes_that_an_owner_may_have(
    node: NodeProcess, operator: Moor
) -> None:
    """A30: bytes stored, by the way of staged writes; the commit is refused before it is decided."""
    bound = 3 * (HEAD_BYTES + 100)
    async with (
        user(node, operator, "w1", stored_bytes=bound) as owner,
        user(node, operator, "w2") as writer,
    ):
        one, two = await owner.create_queue(), await owner.create_queue()
        rows = [QueueRow(queue.id, b"x" * 100) for queue in (one, two, one, two)]
        stage = await staged(writer, "of-w2", 0, 0, [rows], target=QUEUES)
        with pytest.raises(OverQuota, match="stored_bytes"):
            await committed(writer, "of-w2", 0, [stage])
        assert await used(owner, "stored_bytes") == 0
        await operator.access.set_quota("w1", "stored_bytes", 2 * bound)

        async def is_taken() -> bool:
            # In force at once, or with the next look where the catalog is slow.
            with suppress(OverQuota):
                return (await committed(writer, "of-w2", 0, [stage])).published == len(rows)
            return False

        await until(is_taken)
        assert await used(owner, "stored_bytes") == len(rows) * (HEAD_BYTES + 100)


async def test_bytes_in_topics_are_known_behind_a_stop_and_never_too_many_behind_a_kill(
    tmp_path: Path,
) -> None:
    """A30: bytes stored in topics, over an orderly stop and over kill -9."""
    data, name = tmp_path / "data", "t1"
    with NodeProcess(data, *FLAGS) as node:
        async with (
            moorline.connect(node.address, reconnect=False) as operator,
            user(node, operator, name, topic_bytes=50_000) as moor,
        ):
            for _ in range(20):
                await moor.publish("t", b"x" * 1_000)
            at_stop = await used(moor, "topic_bytes")
            assert at_stop > 20_000
        assert node.stop() == 0
    proof = PasswordCredentials(name, "x")
    with NodeProcess(data, *FLAGS) as node:
        async with moorline.connect(node.address, credentials=proof, reconnect=False) as moor:
            assert await used(moor, "topic_bytes") == at_stop
            for _ in range(20):
                await moor.publish("t", b"x" * 1_000)
            at_kill = await used(moor, "topic_bytes")
            assert at_kill > at_stop
            node.kill()
    with NodeProcess(data, *FLAGS) as node:
        async with moorline.connect(node.address, credentials=proof, reconnect=False) as moor:
            assert at_stop <= await used(moor, "topic_bytes") <= at_kill
            await moor.publish_all([moorline.record("t", b"x" * 1_000) for _ in range(50)])
            with pytest.raises(OverQuota, match="topic_bytes is 50,000"):
                await moor.publish("t", b"x")
            # Nothing that was taken is missing for it.
            assert await moor.topics("t") == [("t", 90)]
