"""Room: spark. The data source `moorline`: finds out what is asked for, and hands it to its reader or writer.

    spark.read.format("moorline").option("topics", "orders/#").load()
    spark.readStream.format("moorline").option("topics", "orders/#").load()
    df.write.format("moorline")…

What is large is imported where it is used: Spark makes a source in many processes, and most only ask for
its schema.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from moorline.errors import ConfigError
from moorline.spark.garbage import spare_the_collector
from moorline.spark.options import (
    ASSOCIATIONS,
    QUEUES,
    check_names,
    check_no_table,
    kind_of,
    switch_of,
    topic_options,
)
from moorline.spark.value_types import value_type_of

TOPIC_COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "stream": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
}
HEADER_COLUMNS = {"headers": "array<struct<key:string,value:binary>>"}
GAP_COLUMNS = {"gap": "struct<first:bigint,upto:bigint,reason:string>"}
SYSTEM_COLUMNS = {
    "ttl_s": "bigint",
    "flags": "int",
    "producer": "bigint",
    "sequence": "bigint",
    "raw_headers": "binary",
}
NEVER_NULL = frozenset({"topic", "stream", "partition", "offset", "timestamp"})
"""Columns of a message that Spark need not look for nulls in, where no row is about a gap. A tombstone has
no value."""

OPTIONAL_COLUMNS = {
    "includeHeaders": HEADER_COLUMNS,
    "includeSystem": SYSTEM_COLUMNS,
    "includeGaps": GAP_COLUMNS,
}
QUEUE_COLUMNS = {
    "queue": "binary",
    "message": "bigint",
    "timestamp": "timestamp",
    "is_quota_marker": "boolean",
    "body": "binary",
}
ASSOCIATION_COLUMNS = {
    "service": "string",
    "service_id": "binary",
    "queue": "binary",
    "hash": "binary",
}
VALUE_COLUMNS = {
    "path": "string",
    "value": "string",
    "publisher": "string",
    "time": "timestamp",
}
"""`valueType` says which type a value has; as JSON it is text."""
FIRST_COLUMNS = {"is_first": "boolean"}
RECORD_COLUMNS = {"key": "string", "seq": "bigint", "row": "string"}
"""Key and row are JSON: a key as in the topics that tables feed, a row as clients get it."""
KIND_COLUMNS = {"kind": "string"}
ALL_COLUMNS = {
    "topics": {**TOPIC_COLUMNS, **HEADER_COLUMNS, **SYSTEM_COLUMNS, **GAP_COLUMNS},
    "group": {**TOPIC_COLUMNS, **HEADER_COLUMNS, **SYSTEM_COLUMNS, **GAP_COLUMNS},
    "queues": QUEUE_COLUMNS,
    "associations": ASSOCIATION_COLUMNS,
    "values": {**VALUE_COLUMNS, **FIRST_COLUMNS},
    "records": {**RECORD_COLUMNS, **KIND_COLUMNS},
}


STREAMS = {"group": "group_reader", "values": "value_stream", "records": "record_stream"}
"""Where the streaming reads are, but for that of topics."""


class MoorlineSource(DataSource):
    """What Spark makes for `format("moorline")`."""

    @classmethod
    def name(cls) -> str:
        return "moorline"

    def schema(self) -> str:
        check_no_table(self.options)
        columns = self._columns(self._kind())
        sure = () if "gap" in columns else NEVER_NULL
        return ", ".join(
            f"`{name}` {kind}{' NOT NULL' if name in sure else ''}"
            for name, kind in columns.items()
        )

    def _columns(self, kind: str) -> dict[str, str]:
        if kind in ("queues", "associations"):
            return ALL_COLUMNS[kind]
        if kind == "records":
            has_kind = switch_of(self.options, "includeKind", default=False)
            return RECORD_COLUMNS | (KIND_COLUMNS if has_kind else {})
        optional = OPTIONAL_COLUMNS
        columns = dict(TOPIC_COLUMNS)
        if kind == "values":
            columns = VALUE_COLUMNS | {"value": value_type_of(self.options).column}
            optional = {"includeFirst": FIRST_COLUMNS}
        for option, more in optional.items():
            if switch_of(self.options, option, default=False):
                columns |= more
        return columns

    def _check_columns(self, schema: StructType, kind: str) -> None:
        known = ALL_COLUMNS[kind]
        if kind == "values":
            known = known | {"value": value_type_of(self.options).column}
        check_columns(schema, known)

    def reader(self, schema: StructType) -> DataSourceReader:
        kind = self._kind()
        self._check_columns(schema, kind)
        if kind == "queues":
            from moorline.spark.queue_reader import QueueReader

            check_names(self.options, QUEUES)
            return QueueReader(dict(self.options), schema)
        if kind == "associations":
            from moorline.spark.association_reader import AssociationReader

            check_names(self.options, ASSOCIATIONS)
            return AssociationReader(dict(self.options), schema)
        if kind in ("values", "records"):
            part = _later("value_reader" if kind == "values" else "record_reader")
            found: DataSourceReader = part.reader(self.options, schema)
            return found
        if kind == "group":
            raise ConfigError("group: a member of a group is a stream: use spark.readStream")
        from moorline.spark.topic_reader import TopicBatchReader

        return TopicBatchReader(topic_options(self.options, is_stream=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        kind = self._kind()
        self._check_columns(schema, kind)
        if kind in STREAMS:
            part = _later(STREAMS[kind])
            made: DataSourceStreamReader = part.stream_reader(self.options, schema)
            return made
        if kind != "topics":
            raise ConfigError(f"{kind}: they can be read as they are now: use spark.read")
        from moorline.spark.topic_reader import TopicStreamReader

        return TopicStreamReader(topic_options(self.options, is_stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        spare_the_collector()
        made: DataSourceWriter = _later("writer").writer(self.options, schema, overwrite)
        return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        made: DataSourceStreamWriter = _later("writer").stream_writer(
            self.options, schema, overwrite
        )
        return made

    def _kind(self) -> str:
        spare_the_collector()
        return kind_of(self.options)


def check_columns(schema: StructType, known: Mapping[str, str]) -> None:
    """Refuses a schema with other columns than there are, by name and by type."""
    for field in schema.fields:
        if field.name not in known:
            raise ConfigError(f"there is no column {field.name!r}: there are {', '.join(known)}")
        given = field.dataType.simpleString()
        if given != known[field.name]:
            raise ConfigError(f"the column {field.name!r} is {known[field.name]}, not {given}")


def _later(name: str) -> Any:
    """A part of this room that is only loaded by those who use it."""
    return import_module(f"moorline.spark.{name}")
