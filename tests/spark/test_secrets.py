"""A secret is in a file, and nowhere that Spark shows, sends or writes: options, plans, partitions."""

import asyncio
import pickle
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.client.proving_node import PASSWORD, TOKEN, WRONG, ProvingNode, secret_file
from tests.process.nodes import NodeProcess
from tests.spark.publishing import Message

from moorline.catalog.location import CatalogLocation
from moorline.catalog.socket_folder import PORT
from moorline.cli.endpoint import Endpoint as CommandEndpoint
from moorline.cli.pipeline import endpoint_options
from moorline.errors import ConfigError, Refused
from moorline.spark.group_reader import GROUP
from moorline.spark.id_sets import IdSetSource, Side, read_side
from moorline.spark.jobs.audit import audit
from moorline.spark.jobs.node_side import node_ids
from moorline.spark.node_link import Links
from moorline.spark.options import (
    ASSOCIATIONS,
    QUEUES,
    SECRETS,
    TOPICS,
    Endpoint,
    catalog_of,
    check_names,
    endpoint_of,
    topic_options,
)
from moorline.spark.source import MoorlineSource
from moorline.spark.topic_reader import TopicBatchReader
from moorline.spark.writer import OPTIONS, writer
from moorline.wire.node import Echo, Echoed

OFFSET = StructType().add("offset", "long")


@pytest.fixture
def proofs(tmp_path: Path) -> list[dict[str, str]]:
    """The options of both proofs, whose files are there."""
    password = secret_file(tmp_path / "password", PASSWORD)
    token = secret_file(tmp_path / "token", TOKEN)
    return [{"user": "alice", "passwordFile": str(password)}, {"tokenFile": str(token)}]


def is_secret(data: bytes | str) -> bool:
    whole = data.encode() if isinstance(data, str) else data
    return PASSWORD.encode() in whole or TOKEN.encode() in whole


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [TOPICS, QUEUES, ASSOCIATIONS, GROUP, OPTIONS])
@pytest.mark.parametrize("name", [*SECRETS, "Password"])
def test_a_secret_as_an_option_is_refused_by_name(known: tuple[str, ...], name: str) -> None:
    with pytest.raises(ConfigError, match=rf"option '{name}': .* give .*File") as refused:
        check_names({"wrong": "x", name: PASSWORD}, known)
    assert not is_secret(str(refused.value))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"user": "alice"}, "user: give passwordFile too"),
        ({"passwordFile": "p"}, "passwordFile: whose password is it"),
        ({"USER": "a", "tokenFile": "t"}, "user and tokenFile: each says who we are"),
        ({"passwordfile": "p", "tokenfile": "t"}, "passwordFile and tokenFile: each says"),
        ({"keytabFile": "k", "tokenFile": "t"}, "give one kind"),
        ({"ccacheFile": "c", "user": "a", "passwordFile": "p"}, "give one kind"),
        ({"kerberosPrincipal": "a"}, "give keytabFile or ccacheFile too"),
    ],
)
def test_proofs_that_do_not_go_together_are_refused_by_name(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        endpoint_of(options)


def test_a_job_hands_on_the_names_of_files(proofs: list[dict[str, str]]) -> None:
    password, token = proofs[0]["passwordFile"], proofs[1]["tokenFile"]
    plain = CommandEndpoint("tcp://127.0.0.1:1", None, None, None)
    for given, options in (
        (("alice", Path(password), None), proofs[0]),
        (("", None, Path(token)), proofs[1]),
    ):
        endpoint = CommandEndpoint(plain.address, None, None, None, *given)
        assert endpoint_options(endpoint) == {"address": plain.address, **options}
    asked = CommandEndpoint(plain.address, None, None, None, "alice")
    with pytest.raises(Exception, match=r"--user alice: .* give --password-file, or --token-file"):
        endpoint_options(asked)


# --- links ----------------------------------------------------------------------------------------


async def test_a_link_reads_the_file_where_it_is_opened(proofs: list[dict[str, str]]) -> None:
    node = ProvingNode("password", "token")
    async with node.open() as address:
        for options in proofs:
            # As it comes to an executor.
            endpoint: Endpoint = pickle.loads(
                pickle.dumps(endpoint_of({"address": address, **options}))
            )
            links = Links(endpoint)
            try:
                told = await asyncio.to_thread(
                    links.call, (address,), lambda call: Echo(call, b"ahoy"), Echoed
                )
            finally:
                await asyncio.to_thread(links.close)
            assert told.body == b"ahoy"
    assert node.entered == ["alice", "spark"]


async def test_a_proof_that_is_refused_is_not_tried_again(tmp_path: Path) -> None:
    file = secret_file(tmp_path / "token", "moor_guessed")
    async with ProvingNode("token").open() as address:
        with pytest.raises(Refused, match=WRONG) as refused:
            await asyncio.to_thread(node_ids, {"address": address, "tokenFile": str(file)})
    assert "guessed" not in str(refused.value)


# --- what is sent and shown -----------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.slow
def test_readers_partitions_and_writers_have_no_secret(
    node: NodeProcess, published: list[Message], proofs: list[dict[str, str]]
) -> None:
    assert published
    for proof in proofs:
        options = topic_options({"topics": "#", "path": str(node.data), **proof}, is_stream=False)
        reader = TopicBatchReader(options, OFFSET)
        partitions = reader.partitions()
        assert partitions
        written = writer({"topic": "t", **proof}, StructType().add("value", "binary"), False)
        for sent in (reader, options, written, *partitions):
            assert not is_secret(pickle.dumps(sent))
            assert not is_secret(repr(sent))


@pytest.mark.process
@pytest.mark.slow
def test_a_plan_shows_no_secret(
    spark: SparkSession,
    node: NodeProcess,
    published: list[Message],
    proofs: list[dict[str, str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert published
    for proof in proofs:
        frame = (
            spark.read.format("moorline")
            .options(topics="#", path=str(node.data), **proof)
            .load()
            .select("offset")
        )
        assert frame.count() >= len(published), "others publish at this node as well"
        frame.explain(True)
        shown = capsys.readouterr().out + frame._jdf.queryExecution().toString()
        assert "offset" in shown
        assert not is_secret(shown)


# --- the address of a catalog ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://me:{PASSWORD}@host/db",
        f"postgresql://me@host/db?sslmode=require&password={PASSWORD}",
        f"postgresql://me@host/db?sslpassword={PASSWORD}",
    ],
)
def test_a_password_in_the_address_of_a_catalog_is_refused_by_the_name_of_the_option(
    address: str,
) -> None:
    for refused in (
        lambda: catalog_of({"Catalog": address}),
        lambda: Side.of(f"catalog:{address}#billing"),
    ):
        with pytest.raises(
            ConfigError, match=r"has a password in it.* give catalog.?[Ff]ile"
        ) as said:
            refused()
        assert not is_secret(str(said.value))


def test_a_file_has_the_address_where_a_task_opens_it(tmp_path: Path) -> None:
    address = f"postgresql://me:{PASSWORD}@host/db"
    file = tmp_path / "catalog"
    file.write_text(f"{address}\n")
    sent = pickle.dumps(catalog_of({"catalogFile": str(file)}))
    assert not is_secret(sent)
    place: CatalogLocation = pickle.loads(sent)
    assert not is_secret(repr(place) + str(place))
    assert place.address() == address
    file.write_text(f"{address}\n{address}\n")
    with pytest.raises(ConfigError, match="holds one line") as said:
        place.address()
    assert not is_secret(str(said.value))


def test_no_reader_has_a_secret(proofs: list[dict[str, str]], tmp_path: Path) -> None:
    """Whatever is read: a reader, of a batch or a stream, is sent to the executors and is in plans."""
    file = tmp_path / "catalog"
    file.write_text(f"postgresql://me:{PASSWORD}@host/db\n")
    near = {"address": "tcp://127.0.0.1:1"}
    for proof in proofs:
        made: list[object] = []
        for what in ("queues", "associations", "values", "records"):
            wanted = {"queues": "*", "values": "/a"}.get(what, "a")
            source = MoorlineSource({what: wanted, **near, **proof})
            made.append(source.reader(StructType()))
        for what in ("topics", "group", "values", "records"):
            name = {"group": "$share/g/a", "values": "/a"}.get(what, "a")
            source = MoorlineSource({what: name, **near, **proof})
            made.append(source.streamReader(StructType()))
        of_catalog = {"associations": "*", "catalogFile": str(file)}
        made.append(MoorlineSource(of_catalog).reader(StructType()))
        for reader in made:
            assert not is_secret(repr(reader))
            assert not is_secret(repr(vars(reader)))
            assert not is_secret(pickle.dumps(reader))


@pytest.mark.process
@pytest.mark.slow
def test_the_plan_of_a_catalog_shows_no_secret(
    spark: SparkSession,
    node: NodeProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The embedded Postgres asks for no password, so that any is right there."""
    folder = (node.data / "run").resolve()
    file = tmp_path / "catalog"
    file.write_text(f"postgresql://postgres:{PASSWORD}@/postgres?host={folder}&port={PORT}\n")
    source = spark.read.format("moorline").options(associations="*", catalogFile=str(file))
    job = IdSetSource.name()
    frame = source.load()
    frame.count()
    frame.explain(True)
    shown = capsys.readouterr().out + frame._jdf.queryExecution().toString()
    audit(spark, CatalogLocation(file=str(file)))
    side = Side.of_catalog(CatalogLocation(file=str(file)), "nobody")
    ids = read_side(spark, side, tasks=1)
    ids.explain(True)
    shown += capsys.readouterr().out + ids._jdf.queryExecution().toString()
    assert "queue" in shown
    assert job in shown
    assert not is_secret(shown)


@pytest.mark.process
@pytest.mark.slow
def test_spark_says_the_name_of_a_refused_option_alone(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="option 'password'") as refused:
        spark.read.format("moorline").options(topics="#", password=PASSWORD).load().count()
    assert not is_secret(str(refused.value))
