"""Nodes that die in the middle, certificates that nobody trusts, topics and messages that are not there."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
import trustme
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from tests.process.nodes import NodeProcess, run_moor
from tests.spark.archives import count_of, messages_of, until_sealed
from tests.spark.conftest import SMALL_GENERATIONS
from tests.spark.proxy import Door
from tests.spark.publishing import COUNT, Message, copy_streams, publish, read

from moorline.errors import ConfigError, ConnectionLost, NotFound, Refused
from moorline.spark.options import topic_options
from moorline.spark.topic_reader import TopicBatchReader
from moorline.spark.writer import writer

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = 20_000
OFFSET = StructType().add("offset", "long")


class Mortal:
    """A node that can be killed and started again behind a door, while others wait for it."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.node = NodeProcess(data, *SMALL_GENERATIONS)
        self.door = Door(self.node.address)
        self.deaths = 0
        self._starting: threading.Thread | None = None

    def dies(self) -> None:
        self.deaths += 1
        self.door.shut()
        self.node.kill()

    def restarts(self) -> None:
        """Dies, and is there again when it is."""
        self.dies()
        self._starting = threading.Thread(target=self._start)
        self._starting.start()

    def _start(self) -> None:
        self.node = NodeProcess(self._data, *SMALL_GENERATIONS)
        self.door.open(self.node.address)

    def is_back(self) -> None:
        assert self._starting is not None
        self._starting.join()

    def close(self) -> None:
        if self._starting is not None:
            self._starting.join()
        self.door.close()
        self.node.__exit__(None, None, None)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Mortal]:
    made = Mortal(tmp_path / "data")
    try:
        yield made
    finally:
        made.close()


def load(spark: SparkSession, **options: Any) -> DataFrame:
    return spark.read.format("moorline").options(**{"topics": "#", **options}).load()


def planned(**options: str) -> TopicBatchReader:
    """A reader in this process: errors of a plan need no Spark."""
    return TopicBatchReader(topic_options({"topics": "#", **options}, is_stream=False), OFFSET)


def test_a_node_that_dies_during_a_read_is_read_once_it_is_back(
    spark: SparkSession, mortal: Mortal
) -> None:
    published = asyncio.run(publish(mortal.node.address))
    mortal.door.after(100_000, mortal.restarts)
    rows = load(
        spark, address=mortal.door.address, includeHeaders="true", maxRecordsPerPartition="300"
    )
    assert read(rows.collect()) == published, "every message, and none twice"
    assert mortal.deaths == 1


def test_a_node_that_dies_during_a_write_has_every_row_once(
    spark: SparkSession, mortal: Mortal
) -> None:
    mortal.door.after(300_000, mortal.restarts, towards_node=True)
    frame = spark.range(0, ROWS, numPartitions=4).selectExpr(
        "'written' topic", "cast(id as string) value"
    )
    place = {"address": mortal.door.address}
    frame.write.format("moorline").mode("append").options(**place).save()
    assert mortal.deaths == 1
    mortal.is_back()
    written = asyncio.run(messages_of(mortal.node.address, "written", ROWS))
    assert sorted(int(one.value) for one in written) == list(range(ROWS))
    assert asyncio.run(count_of(mortal.node.address, "written")) == ROWS


def test_a_node_that_stays_away_is_named(mortal: Mortal) -> None:
    asyncio.run(publish(mortal.node.address))
    where = mortal.door.address
    reader = planned(address=where, topics="orders/#")
    part = reader.partitions()[0]
    mortal.dies()
    with pytest.raises(ConnectionLost, match=r"node-1/0/\d+ from 0 to .*its node is away: "):
        list(reader.read(part))
    with pytest.raises(ConnectionLost, match=re.escape(where)):
        planned(address=where).partitions()


# --- topics ---------------------------------------------------------------------------------------


def test_a_topic_that_no_node_has_is_named(
    spark: SparkSession, node: NodeProcess, published: list[Message]
) -> None:
    assert published
    # While a stream has no digest yet, nobody is certain of its topics, and a read only warns.
    until_sealed(node)
    with pytest.raises(
        PySparkException,
        match=r"no message of the topic 'orders/eu/11' \(there is 'orders/eu/1'.*failOnMissingTopic",
    ):
        load(spark, address=node.address, topics="größe,orders/eu/11").collect()
    some = load(spark, address=node.address, topics="größe,nix", failOnMissingTopic="false")
    assert some.count() == sum(one.topic == "größe" for one in published)
    with pytest.raises(NotFound, match="'nix'"):
        planned(address=node.address, topics="nix").partitions()


# --- gaps -----------------------------------------------------------------------------------------


def test_a_stream_shows_its_gaps_in_its_progress_and_as_rows(
    spark: SparkSession, node: NodeProcess, published: list[Message], tmp_path: Path
) -> None:
    assert len(published) == COUNT
    copy_streams(node.data, tmp_path / "copy")
    oldest = min((tmp_path / "copy" / "streams" / "000").glob("*.seg"))
    for path in oldest.parent.glob(f"{oldest.stem}.*"):
        path.unlink()

    def query(**options: str) -> Any:
        wanted = {"topics": "#", "path": str(tmp_path / "copy"), **options}
        wanted["startingOffsets"] = '{"node-1/0": 0, "node-1/1": 0}'
        frame = spark.readStream.format("moorline").options(**wanted).load()
        started = (
            frame.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "state"))
            .trigger(availableNow=True)
            .start()
        )
        started.awaitTermination()
        return started

    with pytest.raises(
        PySparkException, match=r"gone before they were read: \d+ messages of node-1/0, 0"
    ):
        query()
    # The same checkpoint, with another mind: what is left is read, and the gap is told.
    done = query(failOnDataLoss="false", includeGaps="true")
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    (gap,) = [row for row in rows if row.gap is not None]
    assert (gap.stream, gap.gap.first, gap.gap.reason, gap.value) == (
        "node-1/0",
        0,
        "RETENTION",
        None,
    )
    assert len(rows) == COUNT - gap.gap.upto + 1
    source = json.loads(done.recentProgress[0].json)["sources"][0]
    assert source["latestOffset"]["lost"] == {
        "messages": gap.gap.upto,
        "ranges": [f"{gap.gap.upto} messages of node-1/0, 0 to {gap.gap.upto - 1}"],
    }


# --- certificates ---------------------------------------------------------------------------------------


class Certificates(NamedTuple):
    """PEM files: the node's and the client's from one authority, and others from nobody's."""

    address: str
    ca: str
    certificates: str
    wrong_ca: str
    wrong: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certificates]:
    """A node that speaks TLS."""
    folder = tmp_path_factory.mktemp("tls")
    made: list[str] = []
    for name, authority in (("ours", trustme.CA()), ("theirs", trustme.CA())):
        ca, certificates = folder / f"{name}-ca.pem", folder / f"{name}.pem"
        authority.cert_pem.write_to_path(str(ca))
        issued = authority.issue_cert("127.0.0.1", common_name=name)
        issued.private_key_and_cert_chain_pem.write_to_path(str(certificates))
        made += [str(ca), str(certificates)]
    ca_flag, certificates_flag = made[0], made[1]
    flags = (
        "--listen=tls://127.0.0.1:0",
        f"--tls-certificate={certificates_flag}",
        f"--tls-key={certificates_flag}",
        f"--tls-client-ca={ca_flag}",
    )
    with NodeProcess(folder / "data", "--set=streams.shards=2", *flags) as node:
        found = re.search(r"tls://\S+", node.ready_line)
        assert found is not None
        granted = ["grant", "add", "/topics", "ours", "slw", f"--address={node.address}"]
        assert run_moor(*granted).returncode == 0
        yield Certificates(found[0], *made)


def test_executors_show_the_certificates_they_are_given(
    spark: SparkSession, guarded: Certificates
) -> None:
    place = {
        "address": guarded.address,
        "ca": guarded.ca,
        "certificate": guarded.certificates,
        "key": guarded.certificates,
    }
    frame = spark.range(0, 1_000, numPartitions=3).selectExpr("'safe' topic", "string(id) value")
    frame.write.format("moorline").mode("append").options(**place).save()
    rows = load(spark, topics="safe", **place).collect()
    assert sorted(int(bytes(row.value)) for row in rows) == list(range(1_000))


@pytest.mark.parametrize(
    ("ca", "certificate", "text"),
    [
        (
            "wrong_ca",
            "certificates",
            r"TLS failed: .*: is .*theirs-ca\.pem the CA that signed it\?",
        ),
        ("ca", "wrong", r"tls://127\.0\.0\.1:\d+: .*theirs\.pem: the node refused our certificate"),
        ("ca", "ca", "there is no private key in it"),
    ],
)
def test_certificates_that_are_not_in_order_are_named(
    guarded: Certificates, ca: str, certificate: str, text: str
) -> None:
    place = {
        "address": guarded.address,
        "ca": getattr(guarded, ca),
        "certificate": getattr(guarded, certificate),
    }
    with pytest.raises((ConnectionLost, ConfigError, Refused), match=text):
        planned(**place).partitions()
    if certificate == "wrong":
        made = writer({**place, "topic": "safe"}, StructType().add("value", "binary"), False)
        with pytest.raises(Refused, match=text):
            made.write(iter([_one_row()]))


def _one_row() -> Any:
    return pa.RecordBatch.from_pydict({"value": pa.array([b"x"], pa.binary())})
