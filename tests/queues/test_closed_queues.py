"""A queue that its owner closes: who sends to it then, who does not, and that it stays so."""

from pathlib import Path

import pytest
from tests.access.rows import operator
from tests.journal.queues.stores import NOW_MS, now, opened
from tests.queues.queue_server import SMALL, Certificates, queue_server, take

from moorline.core.access.right import WRITE
from moorline.core.access.row import Row
from moorline.errors import Denied, QueueOff
from moorline.ids import text_of
from moorline.journal.disk import FileDisk
from moorline.journal.queues import checkpoint
from moorline.journal.queues.index import INDEX, INDEX_BEFORE

OPERATORS = (operator("captain"),)


def path_of(queue_id: bytes) -> str:
    return f"/queues/{text_of(queue_id)}"


async def test_a29_its_id_is_no_right_to_send_any_more(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A29: the owner sends, reads and acknowledges; a stranger is refused, by name, and that is told."""
    async with (
        queue_server(tmp_path, SMALL, certificates.context()) as node,
        certificates.connect(str(node.address), "billing") as owner,
        certificates.connect(str(node.address), "shipping") as stranger,
    ):
        queue = await owner.create_queue()
        await stranger.send(queue.id, b"before")
        await queue.close()
        answers = await stranger.send_all([(queue.id, b"one"), (queue.id, b"two")])
        assert [type(one) for one in answers] == [Denied, Denied]
        assert str(answers[0]) == f"the right w (write) is not granted at {path_of(queue.id)}"
        assert node.rights.refusals == [("Send", path_of(queue.id), "DENIED")] * 2
        await owner.send(queue.id, b"own")
        reading = queue.read()
        for body, left in ((b"before", 1), (b"own", 0)):
            message = await take(reading)
            assert (message.body, await message.ack()) == (body, left)
        assert (await queue.info()).is_closed
        await queue.open()
        assert not (await queue.info()).is_closed
        await stranger.send(queue.id, b"after")


async def test_a_row_that_grants_it_lets_others_send(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with (
        queue_server(tmp_path, SMALL, certificates.context()) as node,
        certificates.connect(str(node.address), "billing") as owner,
        certificates.connect(str(node.address), "shipping") as friend,
    ):
        queue, other = await owner.create_queues(2)
        for one in (queue, other):
            await one.close()
        await node.rights.change(Row(path_of(queue.id), "shipping", WRITE))
        await friend.send(queue.id, b"granted")
        with pytest.raises(Denied):
            await friend.send(other.id, b"not there")
        await queue.off()
        with pytest.raises(QueueOff):
            await friend.send(queue.id, b"off is for all")
        with pytest.raises(Denied):
            await friend.send(other.id, b"and says nothing to those it is closed to")


async def test_only_the_owner_and_operators_close_and_open(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with (
        queue_server(tmp_path, SMALL, certificates.context(), OPERATORS) as node,
        certificates.connect(str(node.address), "billing") as owner,
        certificates.connect(str(node.address), "shipping") as stranger,
        certificates.connect(str(node.address), "captain") as captain,
    ):
        queue = await owner.create_queue()
        for change in (stranger.queue(queue.id).close, stranger.queue(queue.id).open):
            with pytest.raises(Denied):
                await change()
        await captain.queue(queue.id).close()
        await captain.send(queue.id, b"granted at all queues")
        with pytest.raises(Denied):
            await stranger.send(queue.id, b"x")
        await captain.queue(queue.id).open()
        await stranger.send(queue.id, b"x")


async def test_it_stays_closed_behind_restarts(tmp_path: Path, certificates: Certificates) -> None:
    """From the log, and from the index after a checkpoint."""
    queue_id = b""
    for turn in range(3):
        async with (
            queue_server(tmp_path, SMALL, certificates.context()) as node,
            certificates.connect(str(node.address), "billing") as owner,
            certificates.connect(str(node.address), "shipping") as stranger,
        ):
            if not turn:
                queue_id = (await owner.create_queue()).id
                await owner.queue(queue_id).close()
            with pytest.raises(Denied):
                await stranger.send(queue_id, b"x")
            await owner.send(queue_id, b"own")
            if turn == 1:
                await node.broker.checkpoints.checkpoint()


def test_an_index_that_is_made_anew_knows_it(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path)
    store = opened(disk)
    closed, other = store.create(b"principal:alice"), store.create(b"principal:bob")
    for queue in (closed, other):
        store.send(queue, b"1", NOW_MS)
    store.close_to_strangers(closed, closed=True)
    store.commit()
    for _ in range(2):
        checkpoint.run(store, now)
        store.send(other, b"2", NOW_MS)
        store.commit()
    store.close()
    assert disk.exists(INDEX_BEFORE)
    (tmp_path / INDEX).write_bytes(b"damaged")
    store = opened(disk)
    for queue in (closed, other):
        found = store.find(queue.id)
        assert found is not None
        assert found.closed == (queue is closed)
        assert store.owners[found.owner].startswith(b"principal:")
    store.close()
