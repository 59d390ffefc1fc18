"""A client that stays, against one real node behind a proxy that cuts."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from chaos.proxy import LinkProxy
from tests.process.nodes import NodeProcess
from tests.waiting import until

import moorline
import moorline.sync
from moorline import EventKind
from moorline.client.moor import Moor
from moorline.wire.topic import Record

pytestmark = pytest.mark.process

FLAGS = (
    "--set=streams.shards=2",
    "--set=streams.sync=process",
    "--set=queues.sync=process",
    "--set=groups.ping_ms=200",
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("staying") / "data", *FLAGS) as made:
        yield made
        assert "Traceback" not in made.errors


@pytest.fixture
async def proxy(node: NodeProcess) -> AsyncIterator[LinkProxy]:
    async with LinkProxy() as made:
        made.target = int(node.address.rpartition(":")[2])
        yield made


def address_of(proxy: LinkProxy) -> str:
    return f"tcp://127.0.0.1:{proxy.port}"


@pytest.fixture
async def moor(proxy: LinkProxy) -> AsyncIterator[Moor]:
    async with moorline.connect(address_of(proxy)) as made:
        yield made


async def cut(proxy: LinkProxy, moor: Moor) -> None:
    """Lost, and there again."""
    events = moor.events()
    proxy.drop()
    proxy.heal()
    async for event in events:
        if event.kind is EventKind.RESUMED:
            return


@contextlib.asynccontextmanager
async def away(proxy: LinkProxy, moor: Moor) -> AsyncIterator[None]:
    """Nobody can be reached within it."""
    proxy.drop()
    await until(lambda: not moor.is_connected)
    yield
    proxy.heal()


async def test_its_program_hears_what_happens(proxy: LinkProxy) -> None:
    async with moorline.connect(address_of(proxy)) as moor:
        events = moor.events()
        async with away(proxy, moor):
            seen = [await anext(events), await anext(events)]
        while seen[-1].kind is EventKind.NOBODY:
            seen.append(await anext(events))
    kinds = [event.kind for event in seen]
    assert kinds[:2] == [EventKind.LOST, EventKind.NOBODY]
    assert kinds[-1] is EventKind.RESUMED
    assert (seen[-1].home, seen[-1].is_elsewhere) == ("node-1", False)
    assert [event.kind async for event in events] == [EventKind.OVER]
    assert [event.kind async for event in moor.events()] == [EventKind.OVER]


async def test_a_question_and_what_never_left_wait_for_the_next_connection(
    proxy: LinkProxy, moor: Moor
) -> None:
    async with away(proxy, moor):
        asked = asyncio.create_task(moor.describe())
        made = asyncio.create_task(moor.create_queue())
        await asyncio.sleep(0)
    assert (await asked).node == "node-1"
    assert (await (await made).info()).waiting == 0


async def test_a_change_that_was_not_answered_is_in_doubt_and_a_numbered_one_is_stored_once(
    proxy: LinkProxy, moor: Moor
) -> None:
    queue = await moor.create_queue()
    everything = await moor.subscribe("doubt")
    proxy.hold()
    sent = asyncio.create_task(moor.send(queue.id, b"perhaps"))
    published = asyncio.create_task(moor.publish("doubt", b"one", producer="p", sequence=1))
    plain = asyncio.create_task(moor.publish("doubt", b"perhaps"))
    await until(lambda: len(moor._caller._batches) == 3)
    await cut(proxy, moor)
    for doubtful in (sent, plain):
        with pytest.raises(moorline.OutcomeUnknown, match="may have been done or not"):
            await doubtful
    await published
    again = await moor.publish("doubt", b"one", producer="p", sequence=1)
    assert (again.stored, again.duplicates) == (0, 1)
    await moor.publish("doubt", b"end")
    got = []
    async for message in everything.acking():
        got.append(message.body)
        if message.body == b"end":
            break
    assert got.count(b"one") == 1


async def test_a_call_has_a_deadline_of_its_own(proxy: LinkProxy, moor: Moor) -> None:
    queue = await moor.create_queue()
    proxy.hold()
    with moorline.deadline(0.05), pytest.raises(moorline.OutcomeUnknown, match="deadline"):
        await moor.send(queue.id, b"perhaps")
    with moorline.deadline(0.05), pytest.raises(moorline.Unreachable, match="deadline"):
        await moor.describe()
    proxy.release()
    async with away(proxy, moor):
        with moorline.deadline(0.05), pytest.raises(moorline.Unreachable, match="deadline"):
            await moor.send(queue.id, b"never")
    assert (await queue.info()).waiting <= 1
    with pytest.raises(moorline.ConfigError, match="above 0"):
        moorline.connect(deadline_s=0)


async def test_the_deadline_of_all_calls_passes_for_those_on_the_link_and_behind_its_loss(
    proxy: LinkProxy,
) -> None:
    """Also when another call, which has a time of its own, came between."""
    async with moorline.connect(address_of(proxy), deadline_s=0.5) as moor:
        queue = await moor.create_queue()
        proxy.hold()
        sent = asyncio.create_task(moor.send(queue.id, b"perhaps"))
        asked = asyncio.create_task(moor.describe())
        await asyncio.sleep(0)
        with moorline.deadline(60):
            other = asyncio.create_task(moor.describe())
        later = asyncio.create_task(moor.send(queue.id, b"perhaps too"))
        for doubtful in (sent, later):
            with pytest.raises(moorline.OutcomeUnknown, match="deadline"):
                await doubtful
        with pytest.raises(moorline.Unreachable, match="deadline"):
            await asked
        proxy.release()
        assert (await other).node == "node-1"
        assert not moor._link._asks, "whoever ended is not known any more"  # type: ignore[union-attr]
        proxy.hold()
        asked = asyncio.create_task(moor.describe())
        await until(lambda: bool(moor._caller._batches))
        async with away(proxy, moor):
            with pytest.raises(moorline.Unreachable, match="deadline"):
                await asked
        proxy.release()
        assert (await queue.info()).waiting <= 2


async def test_calls_that_meet_the_end_of_the_program_are_in_doubt_or_refused(
    proxy: LinkProxy,
) -> None:
    async with moorline.connect(address_of(proxy)) as moor:
        queue = await moor.create_queue()
        proxy.hold()
        sent = asyncio.create_task(moor.send(queue.id, b"perhaps"))
        asked = asyncio.create_task(moor.describe())
        gone = asyncio.create_task(moor.describe())
        await until(lambda: len(moor._caller._batches) == 3)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        closing = asyncio.create_task(moor.close())
        with pytest.raises(moorline.OutcomeUnknown):
            await sent
        with pytest.raises(moorline.ConnectionLost, match="closed"):
            await asked
        proxy.release()
        await closing
        assert not moor._link._asks  # type: ignore[union-attr]
        assert not moor._link._on_link  # type: ignore[union-attr]


async def test_an_acknowledgement_counts_for_its_own_delivery(proxy: LinkProxy, moor: Moor) -> None:
    queue = await moor.create_queue()
    subscription = await moor.subscribe("stale")
    await moor.publish("stale", b"one")
    await moor.send(queue.id, b"one")
    of_topic, letters = await anext(subscription), queue.read()
    of_queue = await anext(letters)
    await cut(proxy, moor)
    for ack in (of_topic.ack, of_topic.reject, of_queue.ack):
        with pytest.raises(moorline.Stale, match="comes again"):
            await ack()
    (refused,) = await moor.ack_all([of_queue])
    assert isinstance(refused, moorline.Stale)
    again = await anext(subscription)
    assert (again.body, again.deliveries) == (b"one", 1), "a loss is no failure"
    await again.ack()
    same = await anext(letters)
    assert (same.body, await same.ack()) == (b"one", 0)
    await letters.aclose()  # type: ignore[attr-defined]


async def test_a_plain_subscription_misses_nothing_and_doubles_only_what_was_in_hand(
    proxy: LinkProxy, moor: Moor
) -> None:
    subscription = await moor.subscribe("plain/#")
    fast = await moor.subscribe("plain/+", qos=0)
    async with moorline.connect(address_of(proxy), publish_elsewhere=True) as other:
        await moor.publish("plain/a", b"", retain=True)
        got: list[bytes] = []
        for number in range(60):
            await other.publish(
                f"plain/{number % 7}", b"%d" % number, producer="q", sequence=number
            )
            if number % 3:
                message = await anext(subscription)
                got.append(message.body)
                await message.ack()
            if number % 20 == 10:
                await cut(proxy, moor)
        while len(got) < 61:
            message = await anext(subscription)
            got.append(message.body)
            await message.ack()
        assert sorted(got) == sorted([b"", *(b"%d" % number for number in range(60))])
        seen = [(await anext(fast)).body for _ in range(61)]
        assert sorted(seen) == sorted(got)
        assert await subscription.get(0.05) is None, "what is retained does not come again"


async def test_a_subscription_that_was_closed_while_nobody_was_there_stays_closed(
    proxy: LinkProxy, moor: Moor
) -> None:
    await moor.session("closing")
    kept, gone = await moor.subscribe("k/#"), await moor.subscribe("g/#")
    async with away(proxy, moor):
        await gone.close()
    await moor.publish("k/1", b"here")
    assert (await anext(kept)).body == b"here"
    assert await anext(gone, None) is None
    await moor.close()
    async with moorline.connect(address_of(proxy)) as other:
        assert [one.filter for one in await other.session("closing")] == ["k/#"]


async def test_a_session_that_another_client_opened_is_not_taken_back(
    proxy: LinkProxy, moor: Moor
) -> None:
    await moor.session("mine")
    subscription = await moor.subscribe("m/#")
    events = moor.events()
    async with moorline.connect(address_of(proxy)) as other:
        (theirs,) = await other.session("mine")
        with pytest.raises(moorline.SubscriptionEnded, match="TAKEN_OVER"):
            await anext(subscription)
        async for event in events:
            if event.kind is EventKind.RESUMED:
                break
        await moor.publish("m/1", b"for the other")
        assert (await anext(theirs)).body == b"for the other"


@pytest.mark.parametrize("endless", [False, True])
async def test_whatever_can_be_iterated_is_published(moor: Moor, *, endless: bool) -> None:
    made = 0

    def lazily() -> Iterator[Record]:
        nonlocal made
        while made < 70_000:
            made += 1
            yield moorline.record("many", b"%d" % made)

    async def slowly() -> AsyncIterator[Record]:
        for one in lazily():
            yield one

    stored = await moor.publish_all(slowly() if endless else lazily())
    assert sum(one.stored for one in stored) == 70_000


async def test_whoever_is_cancelled_leaves_nothing_behind(proxy: LinkProxy, moor: Moor) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        moor.describe,
        moor.create_queue,
        lambda: moor.publish("c", b""),
        lambda: anext(moor.queue(bytes(16)).read()),
        lambda: anext(moor.events()),
    ]
    async with away(proxy, moor):
        for call in calls:
            task = asyncio.ensure_future(call())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        connecting = asyncio.ensure_future(moorline.connect(address_of(proxy)).__aenter__())
        await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
    assert len(moor._link._asks) == 0  # type: ignore[union-attr]
    gc.collect()


async def test_several_addresses_are_tried_and_one_that_nobody_has_is_told(
    proxy: LinkProxy,
) -> None:
    async with moorline.connect(["tcp://127.0.0.1:1", address_of(proxy)]) as moor:
        assert str(moor.address) == address_of(proxy)
    with pytest.raises(moorline.Unreachable, match="is the node running"):
        await moorline.connect(["tcp://127.0.0.1:1", "tcp://127.0.0.1:2"])
    with pytest.raises(moorline.ConfigError, match="1 to 64 addresses"):
        moorline.connect([])


async def test_one_connection_and_no_more_if_that_is_wanted(proxy: LinkProxy) -> None:
    async with moorline.connect(address_of(proxy), reconnect=False) as moor:
        proxy.drop()
        proxy.heal()
        await until(lambda: not moor.is_connected)
        with pytest.raises(moorline.ConnectionLost):
            await moor.describe()


async def test_scripts_and_notebooks_need_no_await(proxy: LinkProxy) -> None:
    """In the thread of a loop that runs, as a cell of a notebook: it holds that loop up, and works."""

    def cell() -> list[bytes]:
        found = []
        with moorline.sync.connect(address_of(proxy)) as moor:
            assert moor.describe().node == "node-1"
            queue = moor.create_queue()
            moor.send(queue.id, b"a letter")
            for letter in queue:
                found.append(letter.body)
                letter.ack()
                break
            subscription = moor.subscribe("sync/#")
            moor.publish_all(moorline.record("sync/1", b"%d" % number) for number in range(3))
            for message in subscription:
                found.append(message.body)
                message.ack()
                if len(found) == 4:
                    break
            assert message.topic == "sync/1"
            assert subscription.get(0.01) is None
            with moorline.deadline(1e-6), pytest.raises(moorline.Unreachable):
                moor.describe()
            assert isinstance(moor.run(lambda m: m.topics()), list)
        with pytest.raises(moorline.WrongLoop, match="it is closed"):
            moor.describe()
        return found

    wanted = [b"a letter", b"0", b"1", b"2"]
    assert await asyncio.to_thread(cell) == wanted
    direct = asyncio.get_running_loop().run_in_executor(None, asyncio.run, _in_a_loop(cell))
    assert await direct == wanted
    with pytest.raises(moorline.Unreachable):
        moorline.sync.connect("tcp://127.0.0.1:1")


async def _in_a_loop(cell: Callable[[], list[bytes]]) -> list[bytes]:
    return cell()
