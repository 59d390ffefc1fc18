"""Who may do what with a queue: its owner, strangers who know its id, and operators."""

from pathlib import Path

import pytest
from tests.queues.queue_server import Certificates, queue_server, take

from moorline.config.settings import Queues as Settings
from moorline.errors import NotAuthorized, NotFound

GUARDED = Settings(max_queue_messages=3, max_file_messages=4, operators=["captain"])


async def test_only_the_owner_reads_and_changes_a_queue(
    tmp_path: Path, certificates: Certificates
) -> None:
    """AUTH between two identities: anyone who knows the id may send, the owner alone may read."""
    async with (
        queue_server(tmp_path, GUARDED, certificates.context()) as node,
        certificates.connect(str(node.address), "billing") as owner,
        certificates.connect(str(node.address), "shipping") as stranger,
    ):
        queue = await owner.create_queue()
        theirs = stranger.queue(queue.id)
        sent = await stranger.send(queue.id, b"anyone may send")
        for call in (theirs.get, theirs.off, theirs.delete, theirs.info, theirs.block):
            with pytest.raises(NotAuthorized):
                await call()
        with pytest.raises(NotAuthorized):
            await take(theirs.read())
        with pytest.raises(NotAuthorized):
            await stranger.list_queues()
        mine = await queue.get()
        assert mine is not None
        (refused,) = await stranger.ack_all([mine])
        assert isinstance(refused, NotAuthorized)
        info = await queue.info()
        assert (info.waiting, info.is_suspended, info.is_blocked) == (1, False, False)
        message = await take(queue.read())
        assert message.id == sent
        # The owner is no operator.
        with pytest.raises(NotAuthorized):
            await queue.block()
        assert await message.ack() == 0


async def test_operators_see_block_and_delete_but_do_not_read(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with (
        queue_server(tmp_path, GUARDED, certificates.context()) as node,
        certificates.connect(str(node.address), "billing") as owner,
        certificates.connect(str(node.address), "captain") as operator,
    ):
        queue = await owner.create_queue()
        await owner.send(queue.id, b"private")
        seen = operator.queue(queue.id)
        assert (await operator.list_queues()).queues == [(queue.id, 1)]
        assert (await seen.info()).waiting == 1
        for call in (seen.get, seen.off):
            with pytest.raises(NotAuthorized):
                await call()
        await seen.block()
        await seen.delete()
        with pytest.raises(NotFound):
            await queue.info()


async def test_ownership_survives_restarts(tmp_path: Path, certificates: Certificates) -> None:
    """From the log, and from the index after a checkpoint."""
    queue_id = b""
    for turn in range(3):
        async with (
            queue_server(tmp_path, GUARDED, certificates.context()) as node,
            certificates.connect(str(node.address), "billing") as owner,
            certificates.connect(str(node.address), "shipping") as stranger,
        ):
            if not turn:
                # An owner with a smaller number, so that numbers cannot be right by chance.
                await stranger.create_queue()
                queue_id = (await owner.create_queue()).id
            await stranger.send(queue_id, b"%d" % turn)
            with pytest.raises(NotAuthorized):
                await stranger.queue(queue_id).get()
            head = await owner.queue(queue_id).get()
            assert head is not None
            assert head.body == b"%d" % turn
            await head.ack()


async def test_the_operator_pages_through_all_queues(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as node, node.connect() as moor:
        queues = await moor.create_queues(25)
        await node.broker.checkpoints.checkpoint()
        queues += await moor.create_queues(25)
        doomed = [queues.pop(3), queues.pop(-3)]
        for queue in doomed:
            await queue.delete()
        found: list[bytes] = []
        while page := (await moor.list_queues(found[-1] if found else b"", 7)).queues:
            found += [queue_id for queue_id, _ in page]
        assert found == sorted(queue.id for queue in queues)
        assert (await moor.list_queues()).total == 48
