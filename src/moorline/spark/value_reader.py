"""Room: spark. Live values as they are now: a snapshot of a subtree.

    spark.read.format("moorline").option("values", "/oslo/**").option("address", "moor://host1,host2").load()

The driver asks the resolvers which paths there are. Each task subscribes to its share, takes the value that
it is answered with, and leaves: values come straight from their publishers. A path that is gone by then is
left out, counted and named in the log of the task, or fails it (`failOnVanished`).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from moorline.client.resolver import Resolver, resolvers_of
from moorline.client.values.subscriber import Subscriber
from moorline.client.values.subscription import ValueSubscription
from moorline.core.directory.glob import Glob
from moorline.errors import (
    BadPath,
    ConfigError,
    ConnectionLost,
    MoorlineError,
    NoSuchValue,
    NotFound,
)
from moorline.limits import (
    SPARK_LINK_TRIES,
    SPARK_NAMES_TOLD_MAX,
    SPARK_VALUES_PER_ASK,
    SPARK_VALUES_PER_TASK,
)
from moorline.spark.gathered import ValueRow
from moorline.spark.loop_thread import LoopThread
from moorline.spark.options import (
    VALUES,
    Endpoint,
    check_names,
    endpoint_of,
    partitions_of,
    switch_of,
)
from moorline.spark.value_types import converted, value_type_of

log = logging.getLogger("moorline.spark")

GONE = (NotFound, NoSuchValue)
"""What is said of a path that was listed, and that nobody has a value for."""


class ValueOptions(msgspec.Struct, frozen=True):
    """What a read of values was asked for."""

    glob: str
    endpoint: Endpoint
    type_name: str
    min_partitions: int
    fail_on_misfit: bool
    fail_on_vanished: bool


class ValuePartition(InputPartition):
    """The share of one task."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__(None)
        self.paths = paths


def value_options(options: Mapping[str, str]) -> ValueOptions:
    """The options of a read of values, checked."""
    check_names(options, VALUES)
    given = {name.lower(): value for name, value in options.items()}
    glob = given["values"].strip()
    try:
        Glob.parsed(glob)
    except BadPath as error:
        raise ConfigError(f"values: {error}") from None
    endpoint = endpoint_of(options)
    resolvers_of(endpoint.address)
    return ValueOptions(
        glob,
        endpoint,
        value_type_of(options).name,
        partitions_of(options),
        switch_of(options, "failOnMisfit", default=True),
        switch_of(options, "failOnVanished", default=False),
    )


def reader(options: Mapping[str, str], schema: StructType) -> "ValueReader":
    return ValueReader(value_options(options), schema)


class ValueReader(DataSourceReader):
    """`values` is a path or a glob."""

    def __init__(self, options: ValueOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        paths = asyncio.run(self._listed())
        parts = max(self._options.min_partitions, -(-len(paths) // SPARK_VALUES_PER_TASK), 1)
        edges = [len(paths) * place // parts for place in range(parts + 1)]
        shares = [paths[edges[place] : edges[place + 1]] for place in range(parts)]
        return [ValuePartition(share) for share in shares]

    async def _listed(self) -> list[str]:
        async with resolver_of(self._options.endpoint) as resolver:
            return await resolver.match(self._options.glob)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ValuePartition)
        thread = LoopThread("moorline-values")
        try:
            endpoint = self._options.endpoint
            vanished: list[str] = []
            for start in range(0, len(partition.paths), SPARK_VALUES_PER_ASK):
                some = partition.paths[start : start + SPARK_VALUES_PER_ASK]
                rows, gone = thread.run(taken(endpoint, some))
                vanished += gone
                self._report(gone)
                yield batch_of(rows, self._options, self._schema)
            if vanished:
                log.warning("%d of %d paths are left out", len(vanished), len(partition.paths))
        finally:
            thread.close()

    def _report(self, gone: list[str]) -> None:
        if not gone:
            return
        text = f"nobody has a value any more for {named(gone)}"
        if self._options.fail_on_vanished:
            raise NoSuchValue(f"{text}: failOnVanished=false leaves them out")
        log.warning("left out: %s", text)


def resolver_of(endpoint: Endpoint) -> Resolver:
    return Resolver(endpoint.address, **endpoint.given())


async def taken(endpoint: Endpoint, paths: list[str]) -> tuple[list[ValueRow], list[str]]:
    """The values of these paths, and those of them that are gone. Raises for a path that is denied."""
    rows: list[ValueRow] = []
    gone: list[str] = []
    async with Subscriber(endpoint.address, **endpoint.given()) as subscriber:
        for tries_left in reversed(range(SPARK_LINK_TRIES)):
            errors: dict[str, MoorlineError] = {}
            # A value that a publisher of several could not give may be had from another one.
            for path, found in zip(paths, await subscriber.subscribe_all(paths), strict=True):
                if isinstance(found, ValueSubscription):
                    rows.append(ValueRow(path, found.value, found.publisher.hex(), now_us(), True))
                elif isinstance(found, GONE):
                    gone.append(path)
                else:
                    errors[path] = found
            final = {
                path: error
                for path, error in errors.items()
                if not tries_left or not isinstance(error, ConnectionLost)
            }
            if final:
                raise named_error(final)
            paths = list(errors)
            if not paths:
                break
    return rows, gone


def named_error(errors: Mapping[str, MoorlineError]) -> MoorlineError:
    """The first of them, with the names of all paths that it is said of."""
    first = next(iter(errors.values()))
    paths = [path for path, error in errors.items() if type(error) is type(first)]
    return type(first)(f"{first} ({named(paths)})") if len(paths) > 1 else first


def named(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:SPARK_NAMES_TOLD_MAX])
    return (
        f"{shown} and {len(paths) - SPARK_NAMES_TOLD_MAX} more"
        if len(paths) > SPARK_NAMES_TOLD_MAX
        else shown
    )


def batch_of(rows: Sequence[ValueRow], options: ValueOptions, schema: StructType) -> pa.RecordBatch:
    """The columns that the schema has, of rows."""
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow = to_arrow_schema(schema, timezone="UTC")

    def values() -> list[Any]:
        pairs = ((row.path, row.value) for row in rows)
        found, misfits = converted(options.type_name, pairs, fail_on_misfit=options.fail_on_misfit)
        if misfits:
            log.warning("%d values are no %s: null is in their place", misfits, options.type_name)
        return found

    columns: dict[str, Callable[[], list[Any]]] = {
        "path": lambda: [row.path for row in rows],
        "value": values,
        "publisher": lambda: [row.publisher for row in rows],
        "time": lambda: [row.time_us for row in rows],
        "is_first": lambda: [row.is_first for row in rows],
    }
    made = [pa.array(columns[field.name](), field.type) for field in arrow]
    return pa.RecordBatch.from_arrays(made, schema=arrow)


def now_us() -> int:
    return time.time_ns() // 1_000
