"""A service that is entered at another node than the one that has its queues: nothing leaves its list."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.queues.queue_server import Certificates
from tests.services.service_server import (
    ServiceServer,
    associated,
    make_queues,
    service_server,
    take,
)

from moorline.catalog import Catalog
from moorline.client.associations import Associations
from moorline.core.sets.digest import Digest
from moorline.core.standing import Standing, is_gone, standing
from moorline.errors import ConfigError, WrongNode

pytestmark = pytest.mark.process

HERE, THERE = b"h" * 24, b"t" * 24


@pytest.fixture
async def there(
    tmp_path: Path, catalog: Catalog, certificates: Certificates
) -> AsyncIterator[ServiceServer]:
    """A second node of the same catalog."""
    async with service_server(tmp_path / "there", catalog, certificates, node_id=THERE) as made:
        yield made


async def half_associated(node: ServiceServer, count: int, done: int) -> list[bytes]:
    """The client dies when so many of its queues are associated; all of them are in its list."""
    async with node.connect() as moor:
        queues = await make_queues(moor, count)
        async with moor.service(node.list_of()) as service:
            await service._list.add(queues)
            assert await service._exchange.associate(queues[:done]) == []
    return queues


@pytest.mark.parametrize("done", [0, 1, 1_000, 2_999, 3_000])
async def test_entering_elsewhere_is_refused_and_nothing_is_lost(
    node: ServiceServer, there: ServiceServer, done: int
) -> None:
    """Also where all are associated and the digests are equal: the messages would not come."""
    queues = await half_associated(node, 3_000, done)
    async with there.connect() as moor:
        for _ in range(2):
            with pytest.raises(
                WrongNode, match=r"the list of the node 'n'.* another one of that name"
            ):
                async with moor.service(node.list_of()):
                    pass
        # The connection is a plain one again.
        (plain,) = await make_queues(moor, 1)
        await moor.send(plain, b"1")
        assert (await take(moor.queue(plain).read(), 1))[0].body == b"1"
    assert len(await node.associated()) == done
    with node.listed() as listed:
        assert listed.digest() == listed.recomputed() == Digest.of(queues)
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        assert (service.report.associated, service.report.lost) == (3_000 - done, [])
        await moor.send(queues[-1], b"came")
        assert (await take(aiter(service), 1))[0].body == b"came"


async def test_a_list_that_does_not_say_its_node_loses_nothing_by_not_found(
    node: ServiceServer, there: ServiceServer
) -> None:
    queues = await associated(node, 50)
    await node.lose(queues[:20])
    unbound = node.folder / "unbound.sqlite"
    listed = Associations(unbound)
    listed.add(queues)
    listed.close()
    async with there.connect() as moor:
        with pytest.raises(WrongNode, match="does not know 20 of its queues: nothing was removed"):
            async with moor.service(unbound):
                pass
    listed = Associations(unbound)
    assert len(listed) == 50
    assert listed.checked().home == (b"", "")
    listed.close()
    async with node.connect() as moor, moor.service(unbound) as service:
        assert service.report.associated == 20
    listed = Associations(unbound)
    assert listed.checked().home == (b"n" * 24, "n")
    listed.close()


async def test_a_list_that_does_not_say_its_node_is_not_taken_in_by_equal_digests(
    node: ServiceServer, there: ServiceServer
) -> None:
    """All of its queues are associated, and none is at the node that was reached."""
    queues = await associated(node, 40)
    unbound = node.folder / "unbound.sqlite"
    listed = Associations(unbound)
    listed.add(queues)
    listed.close()
    async with there.connect() as moor:
        with pytest.raises(WrongNode, match="does not know 40 of its queues: nothing was removed"):
            async with moor.service(unbound):
                pass
    listed = Associations(unbound)
    assert (len(listed), listed.checked().home) == (40, (b"", ""))
    listed.close()
    assert await node.associated() == set(queues)


async def test_bind_makes_a_list_the_nodes_own_and_sets_aside_what_it_does_not_know(
    node: ServiceServer, there: ServiceServer
) -> None:
    """Somebody has said so. What leaves the list is in its file still."""
    queues = await half_associated(node, 30, 20)
    async with there.connect() as moor, moor.service(node.list_of(), bind=True) as service:
        assert set(service.report.lost) == set(queues), "it has none of them, associated or not"
        assert await there.associated() == set()
        await service.associate(await make_queues(moor, 1))
    with node.listed() as listed:
        assert listed.checked().home == (THERE, "n")
        rows = listed._db.execute("select queue, why from set_aside").fetchall()
        assert sorted(rows) == sorted((queue, "NOT_FOUND") for queue in service.report.lost)
    async with node.connect() as moor:
        with pytest.raises(WrongNode):
            async with moor.service(node.list_of()):
                pass


async def test_an_empty_list_may_go_anywhere(node: ServiceServer, there: ServiceServer) -> None:
    for one in (node, there, node):
        async with one.connect() as moor, moor.service(node.list_of()) as service:
            (queue,) = await make_queues(moor, 1)
            assert await service.associate([queue]) == []
            await service.dissociate([queue])


async def test_what_can_be_no_id_is_refused_before_the_list_has_it(node: ServiceServer) -> None:
    async with node.connect() as moor, moor.service(node.list_of()) as service:
        (queue,) = await make_queues(moor, 1)
        for bad in (b"", b"short", b"l" * 25):
            with pytest.raises(ConfigError, match="the id of a queue is 24 bytes"):
                await service.associate([queue, bad])
        assert len(service._list.associations) == 0
        assert await service.associate([queue]) == []


@pytest.mark.parametrize(
    ("home", "reached", "is_empty", "wanted"),
    [
        (HERE, HERE, False, Standing.HOME),
        (HERE, THERE, False, Standing.ELSEWHERE),
        (HERE, THERE, True, Standing.HOME),
        (b"", THERE, True, Standing.HOME),
        (b"", THERE, False, Standing.UNKNOWN),
        (HERE, b"", False, Standing.UNKNOWN),
    ],
)
def test_what_a_node_is_to_a_list(
    home: bytes, reached: bytes, is_empty: bool, wanted: Standing
) -> None:
    found = standing(home, reached, is_empty=is_empty)
    assert found is wanted
    assert is_gone("NOT_FOUND", found) is (found is Standing.HOME)
    assert is_gone("BLOCKED", found), "a node that says so knows the queue"
