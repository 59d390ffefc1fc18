"""A node's certificate that cannot be verified is told at once; a node that is not up yet is waited for."""

import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import pyarrow as pa
import pytest
import trustme
from pyspark.sql.types import StructType
from tests.process.nodes import NodeProcess
from tests.spark.proxy import Door
from tests.waiting import eventually

from moorline.errors import Untrusted
from moorline.spark.group_reader import stream_reader
from moorline.spark.jobs import archive as archive_job
from moorline.spark.jobs.archive import ArchiveOptions, _Upkeep, opened
from moorline.spark.jobs.node_side import ask, check_reached
from moorline.spark.options import endpoint_of, topic_options
from moorline.spark.rows import Columns
from moorline.spark.topic_reader import TopicBatchReader
from moorline.spark.writer import Destination, Staged, commit, writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

OFFSET = StructType().add("offset", "long")
NOW = datetime.now(UTC)
DAY = timedelta(days=1)


class Guarded(NamedTuple):
    """A node that speaks TLS behind a door, and the CA that whoever comes is told to trust."""

    door: Door
    inside: str
    ca: str

    @property
    def address(self) -> str:
        return self.door.address.replace("tcp://", "tls://")

    @property
    def options(self) -> dict[str, str]:
        return {"address": self.address, "ca": self.ca}


@pytest.fixture(scope="module")
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    kind: str = request.param
    folder = tmp_path_factory.mktemp("certificates")
    ca, certificates = folder / "ca.pem", folder / "node.pem"
    authority = trustme.CA()
    issued = {
        "good": lambda: authority.issue_cert("127.0.0.1"),
        "of another CA": lambda: trustme.CA().issue_cert("127.0.0.1"),
        "expired": lambda: authority.issue_cert("127.0.0.1", not_after=NOW - DAY),
        "too early": lambda: authority.issue_cert("127.0.0.1", not_before=NOW + DAY),
        "of another name": lambda: authority.issue_cert("node-1.example"),
    }[kind]()
    authority.cert_pem.write_to_path(str(ca))
    issued.private_key_and_cert_chain_pem.write_to_path(str(certificates))
    flags = (
        "--listen=tls://127.0.0.1:0",
        f"--tls-certificate={certificates}",
        f"--tls-key={certificates}",
        "--set=streams.shards=2",
    )
    with NodeProcess(folder / "data", *flags) as node:
        found = re.search(r"tls://\S+", node.ready_line)
        assert found is not None
        door = Door(found[0])
        yield Guarded(door, found[0], str(ca))
        door.close()


def planned(**options: str) -> TopicBatchReader:
    return TopicBatchReader(topic_options({"topics": "#", **options}, is_stream=False), OFFSET)


@pytest.mark.parametrize(
    ("guarded", "text"),
    [
        ("of another CA", r"unable to get local issuer.*: is .*ca\.pem the CA that signed it\?"),
        ("expired", r"certificate has expired\): renew it on the node, or set the clock"),
        ("too early", r"not yet valid\): renew it on the node, or set the clock"),
        (
            "of another name",
            r"not valid for '127\.0\.0\.1'\): name the node in the address as its certificate does",
        ),
    ],
    indirect=["guarded"],
)
def test_a_certificate_that_cannot_be_verified_is_an_error_at_once(
    guarded: Guarded, text: str
) -> None:
    whole = rf"^tls://127\.0\.0\.1:\d+: TLS failed: .*{text}"
    written = writer(
        {**guarded.options, "topic": "safe"}, StructType().add("value", "binary"), False
    )
    row = pa.RecordBatch.from_pydict({"value": pa.array([b"x"], pa.binary())})
    group = stream_reader({**guarded.options, "group": "$shared/g/#"}, OFFSET)
    staged = [Staged("q", 0, b"s" * 16, 1, b"h" * 16)]
    ways: dict[str, Callable[[], object]] = {
        "a read": lambda: planned(**guarded.options).partitions(),
        "a stage": lambda: written.write(iter([row])),
        "a commit": lambda: commit(
            Destination(endpoint_of(guarded.options), Columns(("value",))), "q", 0, staged
        ),
        "a member of a group": group.initialOffset,
        "a job": lambda: check_reached(guarded.options),
    }
    for name, way in ways.items():
        before = guarded.door.accepted
        with pytest.raises(Untrusted, match=whole):
            way()
        assert guarded.door.accepted - before == 1, f"{name} tried it again"


@pytest.mark.parametrize("guarded", ["good"], indirect=True)
def test_a_node_that_is_not_up_yet_is_waited_for(guarded: Guarded) -> None:
    guarded.door.shut()

    def comes_up() -> None:
        eventually(lambda: guarded.door.accepted > 0)
        guarded.door.open(guarded.inside)

    start = threading.Thread(target=comes_up)
    start.start()
    try:
        assert planned(**guarded.options).partitions() == []
    finally:
        start.join()
    assert guarded.door.accepted > 1


@pytest.mark.parametrize("guarded", ["expired"], indirect=True)
def test_an_archive_that_goes_on_does_not_pass_it_over(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_job, "ARCHIVE_UPKEEP_MS", 0)
    options = ArchiveOptions(
        str(tmp_path / "archive"), guarded.options, trigger="1 second", compact=False
    )
    spark = cast("SparkSession", None)  # compaction would need one
    upkeep = _Upkeep(spark, options, opened(options), lambda: ask(guarded.options).seals)
    with pytest.raises(Untrusted, match="expired"):
        upkeep.now_and_then()
    # A node that is away is asked again the next time.
    guarded.door.shut()
    upkeep.now_and_then()
