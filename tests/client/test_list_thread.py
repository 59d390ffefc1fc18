"""The one thread of a list: whoever is cancelled leaves the list whole, and the file is closed at the end."""

import asyncio
import contextlib
import random
import threading
from pathlib import Path

import pytest

from moorline.client.associations import Associations
from moorline.client.list_thread import ListThread
from moorline.core.sets.digest import Digest
from moorline.errors import ConfigError, FolderUnusable


def make(count: int) -> list[bytes]:
    chance = random.Random(5)
    return [chance.randbytes(24) for _ in range(count)]


async def cancelled_soon(work: asyncio.Task[int], turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def test_changes_that_are_cancelled_leave_list_and_digest_equal(tmp_path: Path) -> None:
    """Two hundred at random moments: each is done as a whole, or not at all."""
    chance, pool = random.Random(7), make(400)
    listed = Associations(tmp_path / "service.sqlite")
    thread = ListThread(listed)
    for _ in range(200):
        change = listed.add if chance.random() < 0.6 else listed.remove
        work = asyncio.create_task(thread.run(change, chance.sample(pool, 40)))
        await cancelled_soon(work, chance.randrange(12))
    assert await thread.run(listed.digest) == await thread.run(listed.recomputed)
    thread.close()
    await thread.closed()


async def test_the_file_is_closed_after_the_work_that_nobody_waits_for(tmp_path: Path) -> None:
    """The worker is in the middle of it; its caller and whoever waits for the end are cancelled."""
    listed = Associations(tmp_path / "service.sqlite")
    thread = ListThread(listed)
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> int:
        begun.set()
        assert go_on.wait(30)
        return listed.add(make(3_000))

    work = asyncio.create_task(thread.run(slow))
    await asyncio.to_thread(begun.wait, 30)
    never = asyncio.create_task(thread.run(listed.remove, make(3_000)))
    await cancelled_soon(never, 2)
    await cancelled_soon(work, 0)
    thread.close()
    waiting = asyncio.create_task(thread.closed())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    with pytest.raises(ConfigError, match="this service is closed"):
        await thread.run(listed.digest)
    go_on.set()
    await thread.closed()
    assert waiting.cancelled()
    again = Associations(tmp_path / "service.sqlite")
    assert again.digest() == again.recomputed() == Digest.of(make(3_000))
    again.close()


def test_a_list_is_closed_only_when_nobody_reads_it(tmp_path: Path) -> None:
    """Without the thread around it too: closing waits, and a reader that comes later is told."""
    path = tmp_path / "service.sqlite"
    made = Associations(path)
    made.add(make(20_000))
    made.close()
    found: list[int] = []

    def read(listed: Associations, begun: threading.Event) -> None:
        begun.set()
        with contextlib.suppress(FolderUnusable):
            found.append(len(listed.id_set()))

    for _ in range(10):
        listed, begun = Associations(path), threading.Event()
        reader = threading.Thread(target=read, args=(listed, begun))
        reader.start()
        assert begun.wait(30)
        listed.close()
        reader.join(30)
    assert set(found) <= {20_000}
