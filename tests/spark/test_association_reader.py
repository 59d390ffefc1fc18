"""The associations of services read by Spark, from the catalog and from a node."""

import asyncio
import secrets
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.process.nodes import NodeProcess

from moorline.catalog import Catalog, EmbeddedPostgres
from moorline.catalog.services import Part, Services
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.ids import NO_HOME

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

COUNTS = {"billing": 30_000, "mail": 7, "empty": 0}
Sets = dict[str, list[bytes]]


class Cluster:
    """A Postgres of its own, a node on it, and what the services mean."""

    def __init__(self, dsn: str, node: NodeProcess, sets: Sets) -> None:
        self.dsn = dsn
        self.node = node
        self.sets = sets


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("associations")
    with asyncio.Runner() as runner:
        postgres = EmbeddedPostgres(folder / "catalog")
        runner.run(postgres.__aenter__())
        try:
            sets = runner.run(_associate(postgres.dsn))
            with NodeProcess(folder / "data", f"--catalog={postgres.dsn}") as node:
                yield Cluster(postgres.dsn, node, sets)
        finally:
            runner.run(postgres.__aexit__(None, None, None))


async def _associate(dsn: str) -> Sets:
    sets = {
        name: sorted(secrets.token_bytes(24) for _ in range(count))
        for name, count in COUNTS.items()
    }
    async with Catalog.open(dsn) as catalog:
        services = Services(catalog)
        for name, queues in sets.items():
            opened = await services.open(
                name, secrets.token_bytes(32), secrets.token_bytes(24), secrets.token_bytes(16)
            )
            for start in range(0, len(queues), 10_000):
                part = queues[start : start + 10_000]
                await services.associate(Part(opened.number, NO_HOME), part, hash_ids(part))
    return sets


def test_the_catalog_and_a_node_give_every_id_with_its_hash(
    spark: SparkSession, cluster: Cluster
) -> None:
    for place in ({"catalog": cluster.dsn}, {"address": cluster.node.address}):
        frame = spark.read.format("moorline").options(associations="*", **place).load()
        rows = frame.collect()
        found: Sets = {name: [] for name in COUNTS}
        for row in rows:
            found[row.service].append(bytes(row.queue))
        assert {name: sorted(queues) for name, queues in found.items()} == cluster.sets
        for row in rows[:100]:
            assert Digest(1, bytes(row.hash)) == Digest.of([bytes(row.queue)])
        assert len({bytes(row.service_id) for row in rows}) == 2


def test_one_service_in_parts(spark: SparkSession, cluster: Cluster) -> None:
    options = {"associations": "billing", "catalog": cluster.dsn, "minPartitions": "5"}
    frame = spark.read.format("moorline").options(**options).schema("queue binary").load()
    parts = frame.rdd.glom().collect()
    assert len(parts) == 5
    assert min(map(len, parts)) > COUNTS["billing"] // 10, "hashes are spread evenly"
    assert sorted(bytes(row.queue) for part in parts for row in part) == cluster.sets["billing"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"associations": "nobody"}, "no service 'nobody'; there are billing, empty, mail"),
        ({"associations": "*", "topics_": "a"}, "unknown option 'topics_': there are address"),
        ({"associations": "*", "address": "tcp://127.0.0.1:1"}, "give one, Postgres or a node"),
        ({"associations": "*", "catalog": "nowhere"}, "no postgresql:// address"),
        (
            {"associations": "*", "catalog": "postgresql://u:geheim@127.0.0.1:1/x"},
            "option 'catalog' has a password in it, which Spark shows",
        ),
        ({"associations": "*", "catalog": "postgresql://u@127.0.0.1:1/x"}, "cannot be reached"),
        ({"associations": "*", "catalogFile": "/nowhere"}, "name two catalogs: give one"),
    ],
)
def test_what_is_wrong_is_named(
    spark: SparkSession, cluster: Cluster, options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException, match=text) as raised:
        spark.read.format("moorline").options(
            **{"catalog": cluster.dsn, **options}
        ).load().collect()
    assert "geheim" not in str(raised.value)
