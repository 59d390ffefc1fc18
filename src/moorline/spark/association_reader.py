"""Room: spark. The associations of services: the ids of their queues and the hashes that digests are made of.

From the catalog they come as Postgres copies them out, rows of one width, which numpy cuts into columns:

    row   fields   2 bytes   1
          queue    4 + 24    its length and its bytes

From a node they come page by page. The hashes are computed here, from the ids: a digest over them is one of
the queues that are there, whatever is stored beside them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import asyncpg
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from moorline.catalog.address import OPEN_ERRORS, unreachable
from moorline.catalog.statements import statement
from moorline.core.sets.hashing import hash_ids
from moorline.errors import ConfigError, Malformed
from moorline.ids import ID_BYTES, text_of
from moorline.limits import CATALOG_CONNECT_MS_MAX, MIB, SPARK_ASSOCIATIONS_PER_TASK
from moorline.spark.endpoint_errors import naming_endpoint
from moorline.spark.id_sets import hashed
from moorline.spark.node_link import Links
from moorline.spark.options import catalog_of, partitions_of, reading_endpoint_of
from moorline.wire.service_operator import (
    ListServiceQueues,
    ListServices,
    ServiceQueuesListed,
    ServicesListed,
)

ALL = "*"
HASH_BYTES = 16
ROW_BYTES = 2 + 4 + ID_BYTES
COPY_HEAD_BYTES = 19
"""What Postgres writes before the first row: a signature, flags, and the length of nothing."""

SERVICES = statement("services")
ASSOCIATIONS = statement("associations", "moorline.spark")

_ROW = np.dtype(
    [
        ("fields", ">i2"),
        ("queue_bytes", ">i4"),
        ("queue", f"V{ID_BYTES}"),
    ]
)
assert _ROW.itemsize == ROW_BYTES
_FIRST, _LAST = -(1 << 63), (1 << 63) - 1


class AssociationPartition(InputPartition):
    """A service, by its number in the catalog, and hashes `first` to `last`, signed as it has them."""

    def __init__(self, name: str, service_id: bytes, number: int, first: int, last: int) -> None:
        super().__init__(None)
        self.name = name
        self.service_id = service_id
        self.number = number
        self.first = first
        self.last = last


class AssociationReader(DataSourceReader):
    """`associations` is `*`, or names or ids of services with commas."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        lowered = {name.lower(): value for name, value in options.items()}
        self._catalog = catalog_of(options)
        if self._catalog and lowered.get("address"):
            raise ConfigError("catalog and address: give one, Postgres or a node")
        self._endpoint = reading_endpoint_of(options)
        self._wanted = [part.strip() for part in lowered["associations"].split(",")]
        self._min_partitions = partitions_of(options)
        self._schema = schema

    # --- planning ---------------------------------------------------------------------------------

    def partitions(self) -> Sequence[InputPartition]:
        found = self._chosen(
            asyncio.run(self._catalog_services()) if self._catalog else self._node_services()
        )
        if not self._catalog:
            # A node gives pages of a service one after the other.
            return [AssociationPartition(*one[:2], 0, 0, 0) for one in found]
        total = sum(count for *_, count in found)
        parts: list[InputPartition] = []
        for name, service_id, number, count in found:
            pieces = max(1, -(-count // SPARK_ASSOCIATIONS_PER_TASK))
            if total:
                pieces = max(pieces, -(-self._min_partitions * count // total))
            room = _LAST - _FIRST + 1
            for piece in range(pieces):
                first = _FIRST + room * piece // pieces
                last = _FIRST + room * (piece + 1) // pieces - 1
                parts.append(AssociationPartition(name, service_id, number, first, last))
        return parts

    def _chosen(
        self, services: list[tuple[str, bytes, int, int]]
    ) -> list[tuple[str, bytes, int, int]]:
        if self._wanted == [ALL]:
            return services
        names = {word for name, service_id, *_ in services for word in (name, text_of(service_id))}
        for wanted in self._wanted:
            if wanted not in names:
                known = ", ".join(sorted(name for name, *_ in services)) or "none"
                raise ConfigError(f"associations: no service {wanted!r}; there are {known}")
        return [
            one for one in services if one[0] in self._wanted or text_of(one[1]) in self._wanted
        ]

    async def _catalog_services(self) -> list[tuple[str, bytes, int, int]]:
        assert self._catalog is not None
        dsn = self._catalog.address()
        connection = await connected(dsn)
        try:
            rows = await connection.fetch(SERVICES)
        except OPEN_ERRORS as error:
            raise unreachable(dsn, error) from None
        finally:
            await connection.close()
        return [(row["name"], row["id"], row["number"], row["count"]) for row in rows]

    def _node_services(self) -> list[tuple[str, bytes, int, int]]:
        found: list[tuple[str, bytes, int, int]] = []
        with naming_endpoint(self._endpoint), contextlib.closing(Links(self._endpoint)) as links:
            while True:
                skip = len(found)
                listed = links.call(
                    (self._endpoint.address,),
                    partial(ListServices, skip=skip),
                    ServicesListed,
                )
                if not listed.services:
                    return found
                found += [(one.name, one.id, 0, one.count) for one in listed.services]

    # --- reading ----------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        if not isinstance(partition, AssociationPartition):
            return  # Spark's own, in place of no partition at all
        schema = to_arrow_schema(self._schema, timezone="UTC")
        pieces = (
            self._copied(partition)
            if self._catalog
            else self._listed(text_of(partition.service_id))
        )
        with naming_endpoint(self._endpoint):
            for queues, hashes in pieces:
                yield _batch(partition, queues, hashes, schema)

    def _copied(self, partition: AssociationPartition) -> Iterator[tuple[bytes, bytes]]:
        """Ids and hashes, each in one buffer, from the catalog."""
        with asyncio.Runner() as runner:
            pieces = self._copy(partition)
            while True:
                rows = runner.run(anext(pieces, None))
                if rows is None:
                    return
                yield _cut(rows)

    async def _copy(self, partition: AssociationPartition) -> AsyncIterator[bytes]:
        assert self._catalog is not None
        dsn = self._catalog.address()
        connection = await connected(dsn)
        chunks: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=64)

        async def copy() -> None:
            try:
                await connection.copy_from_query(
                    ASSOCIATIONS,
                    partition.number,
                    partition.first,
                    partition.last,
                    output=chunks.put,
                    format="binary",
                )
            finally:
                await chunks.put(None)

        copying = asyncio.create_task(copy())
        waiting = bytearray()
        is_begun = False
        try:
            while (chunk := await chunks.get()) is not None:
                waiting += chunk
                if not is_begun and len(waiting) >= COPY_HEAD_BYTES:
                    del waiting[:COPY_HEAD_BYTES]
                    is_begun = True
                whole = len(waiting) // ROW_BYTES * ROW_BYTES
                if is_begun and whole >= MIB:
                    yield bytes(waiting[:whole])
                    del waiting[:whole]
            await copying
            # Behind the last row stands a mark of two bytes.
            whole = len(waiting) // ROW_BYTES * ROW_BYTES
            if whole:
                yield bytes(waiting[:whole])
        except OPEN_ERRORS as error:
            raise unreachable(dsn, error) from None
        finally:
            copying.cancel()
            await connection.close()

    def _listed(self, service: str) -> Iterator[tuple[bytes, bytes]]:
        """The same from a node."""
        links = Links(self._endpoint)
        after = b""
        try:
            while True:
                listed = links.call(
                    (self._endpoint.address,),
                    partial(ListServiceQueues, service=service, after=after),
                    ServiceQueuesListed,
                )
                if not listed.queues:
                    return
                after = listed.queues[-1]
                hashes = hash_ids(listed.queues).astype(">u8").tobytes()
                yield b"".join(listed.queues), hashes
        finally:
            links.close()


async def connected(dsn: str) -> asyncpg.Connection:
    """A connection that can only look."""
    try:
        return await asyncpg.connect(
            dsn,
            timeout=CATALOG_CONNECT_MS_MAX / 1_000,
            server_settings={
                "application_name": "moorline spark",
                "default_transaction_read_only": "on",
            },
        )
    except OPEN_ERRORS as error:
        raise unreachable(dsn, error) from None


def _cut(data: bytes) -> tuple[bytes, bytes]:
    rows = np.frombuffer(data, _ROW)
    if not ((rows["fields"] == 1) & (rows["queue_bytes"] == ID_BYTES)).all():
        raise Malformed("the catalog copied out a row of another width than an association has")
    queues = rows["queue"].tobytes()
    # Big-endian again: numpy makes numbers of its own kind of them.
    return queues, hashed(_fixed(queues, ID_BYTES)).astype(">u8").tobytes()


def _batch(
    partition: AssociationPartition, queues: bytes, hashes: bytes, schema: pa.Schema
) -> pa.RecordBatch:
    count = len(queues) // ID_BYTES
    columns = {
        "service": lambda: pa.repeat(pa.scalar(partition.name), count),
        "service_id": lambda: pa.repeat(pa.scalar(partition.service_id), count),
        "queue": lambda: _fixed(queues, ID_BYTES),
        "hash": lambda: _fixed(hashes, HASH_BYTES),
    }
    made = [columns[name]() for name in schema.names]
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _fixed(data: bytes, width: int) -> Any:
    """A binary column of values of one width, over the bytes as they are."""
    edges = np.arange(0, len(data) + 1, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(data) // width, buffers)
