"""Parts of services in a real Postgres: what an upgrade makes of rows of before, and whom an epoch fences."""

import asyncio
import random
from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.catalog.nodes import pretend

from moorline.catalog import Catalog, migrate
from moorline.catalog.homes import Homes
from moorline.catalog.migration import MIGRATIONS
from moorline.catalog.service_audit import OperatorServices
from moorline.catalog.services import Part, signed
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.errors import IdentityTaken, ServiceTaken
from moorline.ids import NO_HOME

pytestmark = pytest.mark.process

PARTS = next(one.number for one in MIGRATIONS if one.name == "service_homes")
HERE, THERE = b"here", b"ther"


def made(home: bytes, count: int, seed: int = 1) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(20) + home for _ in range(count)]


async def before(dsn: str, *homes: bytes) -> asyncpg.Connection:
    """A catalog of before there were parts, with one service."""
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "moorline"})
    await migrate(connection, [one for one in MIGRATIONS if one.number < PARTS])
    for home in homes:
        await connection.execute(
            "insert into home (number, name, node) values ($1, $2, $1)", home, home.decode()
        )
    await connection.execute(
        "insert into service (id, fingerprint, principal, name, salt) values ($1, $1, 'one', 'one', $2)",
        b"i" * 24,
        bytes(16),
    )
    return connection


async def associate_as_before(connection: asyncpg.Connection, queues: list[bytes]) -> None:
    hashes = hash_ids(queues)
    await connection.fetchval(
        "select associate((select number from service), $1, $2, $3)",
        queues,
        signed(hashes[:, 0]),
        signed(hashes[:, 1]),
    )


async def parts_of(dsn: str) -> dict[bytes, Digest]:
    """What is kept, which is what is there."""
    async with Catalog.open(dsn) as catalog:
        services = OperatorServices(catalog)
        (row,) = await services.all()
        found = {}
        for part in await services.parts_of(row.number):
            found[part.home] = await services.digest(part)
            checked = await services.checked(part)
            assert checked.is_right
            assert checked.true == found[part.home]
        assert row.digest == await services.sum(row.number)
        return {home: digest for home, digest in found.items() if digest.count}


async def test_queues_of_before_are_of_the_home_that_a_node_would_say(dsn: str) -> None:
    """By the exception first, then by the end of the id; what neither says is of no home yet."""
    connection = await before(dsn, HERE, THERE)
    here, there, strange = made(HERE, 300), made(THERE, 200), made(b"????", 100)
    await associate_as_before(connection, here + there + strange)
    for queue in [*here[:10], *strange[:5]]:
        await connection.execute("insert into home_exception values ($1, $2)", queue, THERE)
    await connection.close()
    assert await parts_of(dsn) == {
        HERE: Digest.of(here[10:]),
        THERE: Digest.of(there + here[:10] + strange[:5]),
        NO_HOME: Digest.of(strange[5:]),
    }


async def test_where_there_is_one_home_all_is_its_own(dsn: str) -> None:
    connection = await before(dsn, HERE)
    queues = made(HERE, 50) + made(b"????", 50)
    await associate_as_before(connection, queues)
    await connection.close()
    assert await parts_of(dsn) == {HERE: Digest.of(queues)}


async def test_where_nobody_has_a_home_yet_it_is_said_later(dsn: str) -> None:
    connection = await before(dsn)
    queues = made(b"????", 50)
    await associate_as_before(connection, queues)
    await connection.close()
    assert await parts_of(dsn) == {NO_HOME: Digest.of(queues)}


async def test_a_node_of_the_version_before_changes_the_parts_too(dsn: str) -> None:
    """While a cluster is upgraded node by node: it calls what it always called."""
    connection = await before(dsn, HERE, THERE)
    here, there = made(HERE, 30), made(THERE, 20)
    await associate_as_before(connection, here)
    await migrate(connection)
    await associate_as_before(connection, here + there)
    await connection.fetch("select * from dissociate($1)", here[:5] + there[:5])
    await connection.close()
    assert await parts_of(dsn) == {HERE: Digest.of(here[5:]), THERE: Digest.of(there[5:])}


@pytest.fixture
async def services(dsn: str) -> AsyncIterator[OperatorServices]:
    async with Catalog.open(dsn) as catalog:
        yield OperatorServices(catalog)


async def opened(services: OperatorServices) -> int:
    return (await services.open("one", b"f", b"i" * 24, bytes(16))).number


async def test_whoever_was_taken_over_changes_nothing(services: OperatorServices) -> None:
    number = await opened(services)
    part, queues = Part(number, HERE), made(HERE, 10)
    older = await services.take(number)
    await services.associate(part, queues[:5], hash_ids(queues[:5]), epoch=older)
    newer = await services.take(number)
    assert newer > older
    with pytest.raises(ServiceTaken):
        await services.associate(part, queues, hash_ids(queues), epoch=older)
    with pytest.raises(ServiceTaken):
        await services.dissociate_from(part, queues, epoch=older)
    assert await services.digest(part) == Digest.of(queues[:5])
    await services.associate(part, queues, hash_ids(queues), epoch=newer)
    assert len(await services.dissociate_from(part, queues[:3], epoch=newer)) == 3
    assert await services.digest(part) == Digest.of(queues[3:])


async def test_a_takeover_and_changes_at_once_leave_nothing_behind_it(
    services: OperatorServices,
) -> None:
    """What is there when the takeover is done is all that the older one will ever have put there."""
    number = await opened(services)
    part = Part(number, HERE)
    epoch = await services.take(number)
    blocks = [made(HERE, 20, seed) for seed in range(30)]
    done: list[bytes] = []

    async def change(queues: list[bytes]) -> None:
        try:
            await services.associate(part, queues, hash_ids(queues), epoch=epoch)
            done.extend(queues)
        except ServiceTaken:
            pass

    async def take() -> Digest:
        await services.take(number)
        return await services.digest(part)

    *_, at_takeover = await asyncio.gather(*map(change, blocks[:15]), take())
    for queues in blocks[15:]:
        await change(queues)
    assert await services.digest(part) == at_takeover == Digest.of(done)


async def test_a_process_that_lost_its_identity_changes_no_part(dsn: str) -> None:
    async with Catalog.open(dsn) as first, Catalog.open(dsn) as second:
        node = b"n" * 24
        await pretend(first, "a", node_id=node)
        (home,) = await Homes(first).all()
        services = OperatorServices(first)
        part, queues = Part(await opened(services), home), made(home, 4)
        await services.associate(part, queues[:2], hash_ids(queues[:2]))
        # Its folder was copied, and the copy was started.
        await second.execute("update moorline.node set incarnation = 'another' where id = $1", node)
        with pytest.raises(IdentityTaken):
            await services.associate(part, queues, hash_ids(queues))
        assert await services.digest(part) == Digest.of(queues[:2])


async def test_a_queue_that_came_to_another_home_leaves_the_part_where_it_was(
    services: OperatorServices,
) -> None:
    number = await opened(services)
    queues = made(HERE, 40)
    hashes = hash_ids(queues)
    await services.associate(Part(number, HERE), queues, hashes)
    moved = await services.associate(Part(number, THERE), queues[:15], hashes[:15])
    assert len(moved) == 15
    assert await services.digest(Part(number, HERE)) == Digest.of(queues[15:])
    assert await services.digest(Part(number, THERE)) == Digest.of(queues[:15])
    assert await services.sum(number) == Digest.of(queues)


async def test_pages_over_all_parts_name_every_queue_once(services: OperatorServices) -> None:
    number = await opened(services)
    for home in (HERE, THERE, NO_HOME):
        queues = made(home, 33)
        await services.associate(Part(number, home), queues, hash_ids(queues))
    found: list[bytes] = []
    while page := await services.page(number, found[-1] if found else b"", 10):
        found += page
    assert len(found) == len(set(found)) == 99
    of_one = await services.page(number, b"", 100, HERE)
    assert set(of_one) == set(made(HERE, 33))
