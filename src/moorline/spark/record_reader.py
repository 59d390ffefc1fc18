"""Room: spark. The rows of a registered Postgres table, as they are now, and as far as we may see them.

    spark.read.format("moorline").option("records", "experiments").option("where", '{"state": "NEW"}').load()

One task is a client as any other: it makes one full sync over the native link, whose digest it compares with
the node's, and gives the rows of that one moment. Rows that do not pass are never given.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from moorline.core.records.merge import RECORD
from moorline.errors import ConfigError, MoorlineError
from moorline.limits import SPARK_RECORDS_PER_BATCH
from moorline.spark.options import RECORDS, Endpoint, check_names, endpoint_of

if TYPE_CHECKING:
    from moorline.client.connecting import Connecting
    from moorline.client.records.asked import Asked

Row = tuple[str | None, int | None, str | None, str]
"""Key and row as JSON, with the version between them, and what it is."""
PLACES = {"key": 0, "seq": 1, "row": 2, "kind": 3}


class RecordOptions(msgspec.Struct, frozen=True):
    """What a read of records was asked for."""

    table: str
    endpoint: Endpoint
    where: dict[str, Any]
    columns: list[str] | None

    def asked(self) -> "Asked":
        # Not at the top: most processes of Spark's only ask for the schema.
        from moorline.client.records.asked import Asked

        return Asked.of(self.table, self.where, self.columns)

    def connecting(self) -> "Connecting":
        import moorline

        endpoint, proof = self.endpoint, self.endpoint.proof()
        files = endpoint.files()
        return moorline.connect(
            endpoint.address,
            # A task that failed is Spark's to try again.
            reconnect=False,
            user=proof.user,
            password_file=proof.password_file,
            token_file=proof.token_file,
            credentials=proof.credentials,
            ca=files["ca"],
            certificate=files["certificate"],
            key=files["key"],
        )


def record_options(options: Mapping[str, str]) -> RecordOptions:
    """The options of a read of records, checked; what a filter may say is judged with the table's types."""
    check_names(options, RECORDS)
    given = {name.lower(): value for name, value in options.items()}
    table = given["records"].strip()
    where = _where(given.get("where", "{}"))
    names = given.get("columns")
    columns = None if names is None else [one.strip() for one in names.split(",")]
    found = RecordOptions(table, endpoint_of(options), where, columns)
    try:
        found.asked()
    except MoorlineError as error:
        raise ConfigError(f"records: {error}") from None
    return found


def _where(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ConfigError(
            f'where: {text[:80]!r}: accepted: JSON such as {{"state": ["NEW", "DONE"]}}'
        )
    return found


def reader(options: Mapping[str, str], schema: StructType) -> "RecordReader":
    return RecordReader(record_options(options), schema)


class RecordReader(DataSourceReader):
    """`records` is the name that a table is served under."""

    def __init__(self, options: RecordOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        # One: two syncs would be of two moments, and together no table that ever was.
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        rows = asyncio.run(_synced(self._options))
        yield from batches_of(rows, self._schema)


def batches_of(rows: Sequence[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow = to_arrow_schema(schema, timezone="UTC")
    for start in range(0, len(rows), SPARK_RECORDS_PER_BATCH):
        some = rows[start : start + SPARK_RECORDS_PER_BATCH]
        made = [pa.array([row[PLACES[one.name]] for row in some], one.type) for one in arrow]
        yield pa.RecordBatch.from_arrays(made, schema=arrow)


async def _synced(options: RecordOptions) -> list[Row]:
    """All rows at one moment, proven by digest."""
    async with (
        options.connecting() as moor,
        moor.records(options.table, where=options.where, columns=options.columns) as table,
    ):
        # A live change may have begun since: between its start and its end the rows are of no moment.
        while not table.is_synced:
            await table.synced()
        found: list[Row] = []
        for key in table.rows:
            texts = [str(part) for part in (key if isinstance(key, tuple) else (key,))]
            row = msgspec.json.encode(table.rows[key]).decode()
            key_text = msgspec.json.encode(texts).decode()
            found.append((key_text, table.rows.seq(key), row, RECORD))
        return found
