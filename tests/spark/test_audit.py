"""`audit` on a real Spark and a real Postgres: kept digests that are wrong are found, by service."""

import asyncio
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from moorline.catalog import Catalog, EmbeddedPostgres
from moorline.catalog.location import CatalogLocation
from moorline.catalog.service_check import CheckedServices
from moorline.catalog.services import Part, Services
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.errors import CatalogUnreachable, ConfigError, DriftFound
from moorline.ids import NO_HOME
from moorline.spark.id_sets import Side
from moorline.spark.jobs.audit import Audited, audit, check
from moorline.spark.jobs.diff import diff

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]


def ids(count: int, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(24) for _ in range(count)]


BILLING, MAIL = ids(2_000, 1), ids(300, 2)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a catalog with three services; Postgres runs on a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    postgres = EmbeddedPostgres(tmp_path_factory.mktemp("audit") / "catalog")
    asyncio.run_coroutine_threadsafe(postgres.__aenter__(), loop).result(60)
    try:
        asyncio.run(fill(postgres.dsn))
        yield postgres.dsn
    finally:
        ended = postgres.__aexit__(None, None, None)
        asyncio.run_coroutine_threadsafe(ended, loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def fill(dsn: str) -> None:
    async with Catalog.open(dsn) as opened:
        services = Services(opened)
        for name, queues in (("billing", BILLING), ("empty", []), ("mail", MAIL)):
            number = (await services.open(name, name.encode(), name.encode() * 3, bytes(16))).number
            if queues:
                await services.associate(Part(number, NO_HOME), queues, hash_ids(queues))


async def execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(statement)
    await connection.close()


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Side]:
    """What the clients of two services have: that of mail lacks one id."""
    folder = tmp_path_factory.mktemp("clients")
    pq.write_table(pa.table({"queue": pa.array(BILLING, pa.binary())}), folder / "a.parquet")
    pq.write_table(pa.table({"queue": pa.array(MAIL[1:], pa.binary())}), folder / "b.parquet")
    return {
        "billing": Side.of(f"{folder}/a.parquet#queue"),
        "mail": Side.of(f"{folder}/b.parquet"),
    }


def test_kept_digests_are_recomputed_and_compared_with_those_of_clients(
    spark: SparkSession, catalog: str, clients: dict[str, Side]
) -> None:
    billing, empty, mail = audit(spark, CatalogLocation(catalog), clients)
    assert billing.is_right
    assert billing.kept == billing.recomputed == billing.client == Digest.of(BILLING)
    assert (empty.is_right, empty.recomputed) == (True, Digest.empty())
    assert mail.kept == mail.recomputed == Digest.of(MAIL)
    assert (mail.is_right, mail.is_kept_right, mail.is_client_right) == (False, True, False)
    assert (mail.only_client, mail.only_node) == (0, 1)
    assert (billing.only_client, billing.only_node) == (0, 0)
    with pytest.raises(DriftFound) as caught:
        check([billing, empty, mail])
    assert str(caught.value) == (
        "client and node differ for 1 of 3 services, the first is mail (0 ids only at the client, "
        "1 only at the node): decide first which of the two is right; `moor service verify` shows the "
        "difference, `moor service repair` makes the node equal to the client's list"
    )


def test_a_diff_with_the_catalog_says_which_id_the_client_lacks(
    spark: SparkSession, catalog: str, clients: dict[str, Side]
) -> None:
    found = diff(spark, Side.of(f"catalog:{catalog}#mail"), clients["mail"], tasks=2, limit=10)
    assert found.ids == [(MAIL[0], "left")]


def test_a_changed_bucket_and_a_changed_hash_are_found(spark: SparkSession, catalog: str) -> None:
    asyncio.run(put_right(catalog))
    asyncio.run(
        execute(catalog, "update moorline.service_bucket set count = count + 1 where bucket = 7")
    )
    asyncio.run(
        execute(
            catalog,
            "update moorline.association set hash_low = hash_low # 1 where queue = "
            f"'\\x{BILLING[0].hex()}'",
        )
    )
    billing, _, mail = audit(spark, CatalogLocation(catalog))
    assert (billing.wrong_hashes, mail.wrong_hashes) == (1, 0)
    assert billing.wrong_buckets == [7]
    assert billing.recomputed == Digest.of(BILLING)
    assert not billing.is_right
    with pytest.raises(DriftFound, match="the first is billing: `moor service recompute` hashes"):
        check([billing])
    assert mail.is_right == (7 not in {int(one) >> 56 for one in hash_ids(MAIL)[:, 0]})


def test_what_cannot_be_audited_is_named(spark: SparkSession, catalog: str) -> None:
    with pytest.raises(ConfigError, match="no service 'nobody' in the catalog; there are billing"):
        audit(spark, CatalogLocation(catalog), {"nobody": Side.of("a.parquet")})
    with pytest.raises(CatalogUnreachable) as caught:
        audit(spark, CatalogLocation("postgresql://me@127.0.0.1:1/db"))
    assert "me@127.0.0.1:1" in str(caught.value)
    with pytest.raises(ConfigError, match="holds no catalog of Moorline"):
        audit(spark, CatalogLocation(catalog.replace("/postgres?", "/template1?")))


def test_an_id_that_was_changed_under_its_hash_is_found_and_the_advice_mends_it(
    spark: SparkSession, catalog: str, tmp_path: Path
) -> None:
    """Every digest over stored hashes says equal; audit and diff hash the ids."""
    asyncio.run(put_right(catalog))
    changed = f"update moorline.association set queue = decode('{'aa' * 24}', 'hex') where queue = "
    asyncio.run(execute(catalog, changed + f"'\\x{MAIL[5].hex()}'"))
    pq.write_table(pa.table({"queue": pa.array(MAIL, pa.binary())}), tmp_path / "mail.parquet")
    clients = {"mail": Side.of(f"{tmp_path}/mail.parquet#queue")}
    _, _, mail = audit(spark, CatalogLocation(catalog), clients)
    assert (mail.wrong_hashes, mail.is_kept_right, mail.is_client_right) == (1, False, False)
    assert (mail.only_client, mail.only_node) == (1, 1)
    with pytest.raises(DriftFound, match="1 ids are stored beside a hash that is not theirs"):
        check([mail])
    found = diff(spark, Side.of(f"catalog:{catalog}#mail"), clients["mail"], tasks=2, limit=10)
    assert sorted(found.ids) == sorted([(b"\xaa" * 24, "left"), (MAIL[5], "right")])
    asyncio.run(put_right(catalog))
    _, _, mail = audit(spark, CatalogLocation(catalog), clients)
    assert (mail.is_kept_right, mail.only_client, mail.only_node) == (True, 1, 1)


async def put_right(dsn: str) -> None:
    """What `moor service recompute --all` does."""
    async with Catalog.open(dsn) as opened:
        services = CheckedServices(opened)
        for row in await services.all():
            await services.put_right(Part(row.number, NO_HOME))


def test_a_proof_over_nothing_is_none() -> None:
    empty = Audited("empty", Digest.empty(), Digest.empty(), 0)
    for found in ([], [empty]):
        with pytest.raises(DriftFound, match="nothing was proven"):
            check(found)
    check([empty, Audited("full", Digest.of(MAIL), Digest.of(MAIL), 0)])
