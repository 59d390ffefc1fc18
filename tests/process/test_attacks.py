"""Attacks on a real node, most by users with a password: each is refused, written down, and harms nobody."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import xxhash
from tests.net.authority import Authority
from tests.process.nodes import NodeProcess
from tests.process.proving import audited, proven, who
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.core.delivery.progress import Cursor
from moorline.core.group.message import Disconnect, LeaderWanted, UpdateProgress
from moorline.errors import (
    CallFailed,
    CertificateOfNobody,
    CertificateUntrusted,
    Denied,
    Refused,
)
from moorline.net.caller import Caller
from moorline.net.credentials import PasswordCredentials
from moorline.wire.group import ForLeader, ReadStream, StreamRead
from moorline.wire.message import Failed
from moorline.wire.node import ClockConfirmed, ConfirmClock, Echo, Echoed
from moorline.wire.packed_rows import packed
from moorline.wire.queue import NewQueue, QueueMade
from moorline.wire.staging import (
    CloseStage,
    CommitStaged,
    OpenStage,
    RowsStaged,
    StageClosed,
    StageOpened,
    StageRows,
    StagesCommitted,
)
from moorline.wire.stream_file import ReadStreamFile, StreamFileRead
from moorline.wire.topic import Publish, Published, Record

pytestmark = pytest.mark.process

USERS = Authority("users")
MESSAGES = 100
GUESSES = 1_000
QUEUES_MAX, QUEUES_WANTED = 100, 5_000
GUESSES_AT_ONCE = 50
TLS = "tls://127.0.0.1:0"
FLAGS = (
    "--set=streams.sync=process",
    "--set=queues.sync=process",
    "--set=streams.shards=2",
    "--set=hello_timeout_ms=30000",
    f"--listen={TLS}",
)


class Attacked:
    """The node, with two users: `victim` and `mallory`."""

    def __init__(self, node: NodeProcess, ca: Path) -> None:
        self.node, self.ca = node, ca

    @property
    def tls(self) -> str:
        return next(word for word in self.node.ready_line.split() if word.startswith("tls://"))

    def as_user(self, name: str) -> Any:
        return proven(self.node.address, PasswordCredentials(name, "secret"))

    @asynccontextmanager
    async def moor(self, name: str) -> AsyncIterator[Moor]:
        credentials = PasswordCredentials(name, "secret")
        async with moorline.connect(
            self.node.address, credentials=credentials, reconnect=False
        ) as moor:
            yield moor

    def shown(self, *names: str) -> Path:
        issued = USERS.issue(*names)
        return issued.write(self.ca.parent / f"{issued.certificate.serial_number}.pem")

    async def has_line(self, **wanted: str) -> None:
        """Waits until the trail has a line with these fields."""
        await until(
            lambda: any(
                all(line.get(name) == value for name, value in wanted.items())
                for line in audited(self.node)
            )
        )

    async def refused(self, act: str, principal: str = "mallory") -> None:
        await self.has_line(kind="refusal", act=act, principal=principal, verdict="denied")


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacks")
    ca = USERS.write(folder / "ca.pem")
    shown = USERS.issue_node().write(folder / "node.pem")
    flags = (f"--tls-certificate={shown}", f"--tls-key={shown}", f"--tls-client-ca={ca}")
    with NodeProcess(folder / "data", *FLAGS, *flags) as node:
        asyncio.run(_add_users(node))
        yield Attacked(node, ca)
        assert "Traceback" not in node.errors


async def _add_users(node: NodeProcess) -> None:
    async with moorline.connect(node.address, reconnect=False) as moor:
        for name in ("victim", "mallory", "bystander"):
            await moor.access.add_user(name, b"secret")


async def _fenced(caller: Caller) -> None:
    """What was said before is heard now."""
    await caller.call(lambda number: Echo(number, b""), Echoed)


# --- acting as another ----------------------------------------------------------------------------


async def test_a_forged_report_to_a_leader_moves_no_cursor_of_anothers_group(
    attacked: Attacked,
) -> None:
    """A10: refused and written down, and the victim gets all of its messages."""
    group = "$shared/victim/victim/#"
    async with attacked.moor("victim") as victim, attacked.as_user("mallory") as mallory:
        await victim.group(group).create()
        subscription = await victim.subscribe(group)
        borrower = await _borrower(victim, group)
        far = Cursor(1_000_000)
        # The number of a group, its epoch and a lease are small numbers: all of them are guessed.
        for reader in range(1, 9):
            for forged in (
                LeaderWanted("forged", "forged", 256),
                UpdateProgress(borrower, 1, 1, 1, far, 1_000_000, final=True),
                UpdateProgress(borrower, 1, 1, 2, far, 1_000_000, final=True),
                Disconnect(borrower, 1, ((1, far), (2, far))),
            ):
                mallory.cast(_for_leader(reader, forged))
        await _fenced(mallory)
        await attacked.refused("ForLeader")
        bodies = [b"%d" % number for number in range(MESSAGES)]
        await victim.publish_all(
            [moorline.record(f"victim/{n % 7}", body) for n, body in enumerate(bodies)]
        )
        got: set[bytes] = set()
        async with asyncio.timeout(30):
            async for message in subscription:
                got.add(message.body)
                await message.ack()
                if len(got) == MESSAGES:
                    break
        assert got == set(bodies)
        assert (await who(mallory)).principal == "mallory"


async def _borrower(moor: Moor, group: str) -> str:
    """Of the one member, once it has streams: what it is called is no secret."""
    async with asyncio.timeout(30):
        while True:
            members = (await moor.group(group).info()).members
            if members and members[0].streams:
                return members[0].borrower
            await asyncio.sleep(0.01)


def _for_leader(reader: int, message: Any) -> Callable[[int], Any]:
    return lambda _: ForLeader(reader, message)


async def test_publishing_under_anothers_producer_name_makes_none_of_his_duplicates(
    attacked: Attacked,
) -> None:
    """A28: the victim notices nothing."""
    async with attacked.moor("victim") as victim, attacked.as_user("mallory") as mallory:
        # Where mallory may not write it is refused; where it may, the name is another producer's.
        with pytest.raises(Denied):
            await mallory.call(_publish("victim/ship", 1 << 40), Published)
        await mallory.call(_publish("mallory/ship", 1 << 40), Published)
        for sequence in range(1, 11):
            told = await victim.publish("victim/ship", b"cargo", producer="ship", sequence=sequence)
            assert (told.stored, told.duplicates) == (1, 0)
        await attacked.refused("Publish")


def _publish(topic: str, sequence: int) -> Callable[[int], Any]:
    return lambda number: Publish(number, [Record(topic, b"fake", b"k")], "ship", sequence)


async def test_a_commit_under_anothers_query_name_swallows_no_batch(attacked: Attacked) -> None:
    """A28: the victim notices nothing."""
    async with attacked.as_user("victim") as victim, attacked.as_user("mallory") as mallory:
        for batch in range(5):
            told = await _committed(mallory, "mallory/rows", batch)
            assert (told.already, told.published) == (False, 1)
        stage = await _staged(victim, "victim/rows", 0)
        with pytest.raises(CallFailed):
            await mallory.call(lambda n: CommitStaged(n, "nightly", 5, [stage]), StagesCommitted)
        with pytest.raises(Denied):
            await mallory.call(
                lambda n: CommitStaged(n, "nightly", 5, [stage], "victim/rows"), StagesCommitted
            )
        with pytest.raises(Denied):
            await _staged(mallory, "victim/rows", 6)
        for batch in range(5):
            told = await _committed(victim, "victim/rows", batch)
            assert (told.already, told.published) == (False, 1)
        await attacked.refused("CommitStaged")


Stage = tuple[bytes, int, bytes]


async def _staged(caller: Caller, topic: str, batch: int) -> Stage:
    opened = await caller.call(lambda n: OpenStage(n, "nightly", batch, 0, 0), StageOpened)
    rows = packed([Record(topic, b"row")], opened.shards).encoded()
    await caller.call(lambda n: StageRows(n, opened.stage, rows), RowsStaged)
    digest = xxhash.xxh3_128_digest(rows)
    await caller.call(lambda n: CloseStage(n, opened.stage, 1, digest), StageClosed)
    return opened.stage, 1, digest


async def _committed(caller: Caller, topic: str, batch: int) -> StagesCommitted:
    stage = await _staged(caller, topic, batch)
    return await caller.call(lambda n: CommitStaged(n, "nightly", batch, [stage]), StagesCommitted)


# --- reading and writing what is another's --------------------------------------------------------


async def test_a_user_reads_no_streams_and_writes_nothing_reserved(attacked: Attacked) -> None:
    """A10, A20: nor does anybody who is no node write what is reserved."""
    shown = attacked.shown("stranger")
    async with (
        attacked.moor("victim") as victim,
        attacked.as_user("mallory") as mallory,
        proven(attacked.tls, ca=attacked.ca, certificate=shown) as stranger,
    ):
        await victim.publish("victim/letters", b"private")
        for caller in (mallory, stranger):
            for shard in range(2):
                with pytest.raises(Denied):
                    await caller.call(_read_stream(shard), StreamRead)
                with pytest.raises(Denied):
                    await caller.call(_read_file(shard), StreamFileRead)
            for topic in ("$dead/victim", "$SYS/audit/login", "$SYS", "$dead"):
                with pytest.raises(Denied):
                    await caller.call(_publish(topic, 0), Published)
    for act in ("ReadStream", "ReadStreamFile", "Publish"):
        await attacked.refused(act)
        await attacked.refused(act, "stranger")
    # Nor does anybody else who is no node, whatever the rows grant.
    async with moorline.connect(attacked.node.address, reconnect=False) as operator:
        for topic in ("$dead/victim", "$SYS/audit/login"):
            with pytest.raises(Denied):
                await operator.publish(topic, b"forged")


def _read_stream(shard: int) -> Callable[[int], Any]:
    return lambda number: ReadStream(number, shard, 1, 0, 4_096)


def _read_file(shard: int) -> Callable[[int], Any]:
    return lambda number: ReadStreamFile(number, shard, 1, "segment", 0, 4_096)


async def test_very_many_queues_of_one_client_end_at_its_quota(attacked: Attacked) -> None:
    """A30: refused and written down, and the victim makes its own meanwhile."""
    async with moorline.connect(attacked.node.address, reconnect=False) as operator:
        await operator.access.set_quota("@authenticated", "queues", QUEUES_MAX)
        async with attacked.as_user("mallory") as mallory, attacked.moor("victim") as victim:
            flood = asyncio.ensure_future(mallory.call_all([NewQueue] * QUEUES_WANTED))
            async with asyncio.timeout(30):
                queue = await victim.create_queue()
            answers = await flood
            made = [one for one in answers if isinstance(one, QueueMade)]
            codes = {one.code for one in answers if isinstance(one, Failed)}
            assert (len(made), codes) == (QUEUES_MAX, {"OVER_QUOTA"})
            await victim.send(queue.id, b"as before")
            message = await queue.get()
            assert message is not None
            await attacked.refused("NewQueue")
        await operator.access.set_quota("@authenticated", "queues", None)


# --- who somebody is ------------------------------------------------------------------------------


async def test_anonymous_over_tls_behind_a_proxy_is_no_operator(
    tmp_path: Path, attacked: Attacked
) -> None:
    """A01: where it is configured, it comes in, and has no row."""
    shown = USERS.issue_node().write(tmp_path / "node.pem")
    flags = (
        f"--tls-certificate={shown}",
        f"--tls-key={shown}",
        f"--tls-client-ca={attacked.ca}",
        "--set=anonymous=everywhere",
        f"--set=access.proxied={TLS}",
    )
    with NodeProcess(tmp_path / "data", *FLAGS, *flags) as node:
        behind = Attacked(node, attacked.ca)
        async with proven(behind.tls, ca=attacked.ca) as stranger:
            found = await who(stranger)
            assert (found.principal, found.groups) == ("anonymous", ("@everyone",))
            with pytest.raises(Denied):
                await stranger.call(ConfirmClock, ClockConfirmed)
            with pytest.raises(Denied):
                await stranger.call(_publish("ships", 0), Published)
            await behind.refused("ConfirmClock", "anonymous")
        async with moorline.connect(node.address, reconnect=False) as operator:
            assert await operator.confirm_clock()


async def test_a_renewed_certificate_of_the_same_name_owns_what_the_old_one_made(
    attacked: Attacked,
) -> None:
    """A02: it reads, acknowledges and deletes; another name does not."""
    queues: list[bytes] = []
    for _ in range(2):
        shown = attacked.shown("billing")
        async with moorline.connect(
            attacked.tls,
            ca=attacked.ca,
            certificate=shown,
            key=shown,
            reconnect=False,
        ) as moor:
            if not queues:
                queues = [queue.id for queue in await moor.create_queues(3)]
                await moor.send(queues[0], b"kept")
                continue
            message = await moor.queue(queues[0]).get()
            assert message is not None
            assert message.body == b"kept"
            await message.ack()
            await moor.queue(queues[1]).delete()
    async with attacked.moor("mallory") as mallory:
        with pytest.raises(Denied):
            await mallory.queue(queues[2]).get()
    await attacked.refused("Get")


async def test_a_second_certificate_with_the_same_common_name_takes_no_session_of_another_authority(
    attacked: Attacked, tmp_path: Path
) -> None:
    """A03, A28: its name is the victim's, its authority is not the node's; and the session goes on."""
    own = attacked.shown("shipper")
    async with moorline.connect(
        attacked.tls, ca=attacked.ca, certificate=own, key=own, reconnect=False
    ) as shipper:
        await shipper.session("shipper's")
        subscription = await shipper.subscribe("shipper/#")
        file = Authority("users").issue("shipper").write(tmp_path / "forged.pem")
        with pytest.raises(CertificateUntrusted):
            async with moorline.connect(
                attacked.tls,
                ca=attacked.ca,
                certificate=file,
                key=file,
                reconnect=False,
            ) as forged:
                await forged.session("shipper's")
        await shipper.publish("shipper/1", b"1")
        message = await subscription.get(30)
        assert message is not None
        assert message.body == b"1"
    await attacked.has_line(kind="login", proof="certificate", verdict="denied")


async def test_a_second_name_in_a_certificate_is_refused(attacked: Attacked) -> None:
    """A04: whichever stands first, and the trail has it."""
    for names in (("mallory", "billing"), ("billing", "mallory")):
        with pytest.raises(CertificateOfNobody, match="it has 2 common names"):
            async with proven(
                attacked.tls, ca=attacked.ca, certificate=attacked.shown(*names)
            ) as caller:
                await who(caller)
    await attacked.has_line(kind="login", proof="certificate", verdict="denied")


async def test_a_thousand_wrong_passwords_slow_only_their_name(attacked: Attacked) -> None:
    """A06, A34: the victim and a bystander have come from this address before."""
    for name in ("victim", "bystander"):
        async with attacked.as_user(name) as caller:
            assert (await who(caller)).principal == name
    turns = asyncio.Semaphore(GUESSES_AT_ONCE)

    async def guess(number: int) -> str:
        async with turns:
            try:
                async with proven(
                    attacked.node.address, PasswordCredentials("target", f"guess {number}")
                ):
                    return "in"
            except Refused as error:
                return str(error)

    async with moorline.connect(attacked.node.address, reconnect=False) as operator:
        await operator.access.add_user("target", b"secret")
        flood = asyncio.gather(*(guess(number) for number in range(GUESSES)))
        entered = 0
        while not flood.done():
            async with asyncio.timeout(10):
                async with attacked.as_user("bystander") as caller:
                    assert (await who(caller)).principal == "bystander"
                await operator.echo(b"alive")
            entered += 1
        said = await flood
    assert entered
    assert "in" not in said
    assert sum("too many wrong tries" in text for text in said) > GUESSES * 9 // 10
    await attacked.has_line(kind="login", path="/admin/users/target", verdict="denied")
    lines = [one for one in audited(attacked.node) if one["path"] == "/admin/users/target"]
    assert len(lines) < GUESSES // 10, "a flood makes few lines"
