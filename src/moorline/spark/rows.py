"""Room: spark. Arrow columns → the rows of staged writes, in chunks that fit a frame of the wire.

    topics   topic string (or the option), value binary or string, null for a tombstone, and if there are
             such columns
             key binary or string, headers array<struct<key:string,value:binary>>, ttl_s int or long
    queues   queue string or binary (or the option), value binary or string

Rows for topics are packed column by column (spark.packing); those for queues are encoded one by one and
sent together.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

from moorline.core.frames.frame import encode_headers
from moorline.core.topic import check_topic
from moorline.errors import BadTopic, ConfigError, Malformed, NotFound, TooLarge
from moorline.ids import ID_BYTES, id_of, text_of
from moorline.limits import (
    SPARK_ROW_EXTRA_BYTES,
    SPARK_VALUE_BYTES_MAX,
    TOPIC_HEADERS_BYTES_MAX,
    TOPIC_KEY_BYTES_MAX,
    TOPICS_CACHED_MAX,
    TTL_S_MAX,
)
from moorline.wire.staging import QueueRow, encode_queue_rows

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from moorline.spark.packing import TopicRows

FOR_TOPICS = ("topic", "key", "value", "headers", "ttl_s")
FOR_QUEUES = ("queue", "value")


class Columns(msgspec.Struct, frozen=True):
    """Which columns there are; `topic` and `queue` are for all rows where there is no such column."""

    names: tuple[str, ...]
    topic: str = ""
    queue: bytes = b""

    @property
    def is_queues(self) -> bool:
        return bool(self.queue) or "queue" in self.names

    @property
    def place(self) -> str:
        """The column that says where a row goes."""
        return "queue" if self.is_queues else "topic"


class Chunk(msgspec.Struct, frozen=True):
    """Encoded rows, and how many they are."""

    rows: bytes
    count: int


def columns_of(schema: StructType, topic: str, queue: bytes) -> Columns:
    """Refuses a schema that has no place to go to, or columns that nobody would look at."""
    names = tuple(field.name for field in schema.fields)
    columns = Columns(names, topic, queue)
    accepted = FOR_QUEUES if columns.is_queues else FOR_TOPICS
    for field in schema.fields:
        if field.name not in accepted:
            what = "queues" if columns.is_queues else "topics"
            raise ConfigError(
                f"column {field.name!r}: a write to {what} has the columns {', '.join(accepted)}"
            )
        if not _fits(field.name, field.dataType):
            raise ConfigError(
                f"column {field.name!r} is {field.dataType.simpleString()}: accepted: "
                f"{_ACCEPTED[field.name]}"
            )
    if "value" not in names:
        raise ConfigError("no column 'value': what is to be written?")
    place, given = columns.place, bool(queue) if columns.is_queues else bool(topic)
    if given == (place in names):
        raise ConfigError(f"where to? Give a column {place!r} or an option {place!r}, one of them")
    return columns


_TEXT_OR_BYTES = "binary, string"
_ACCEPTED = {
    "topic": "string",
    "queue": f"{_TEXT_OR_BYTES} (32 characters, or the 24 bytes they stand for)",
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "headers": "array<struct<key:string,value:binary>>",
    "ttl_s": "int, bigint",
}


def _fits(name: str, kind: DataType) -> bool:
    if name == "topic":
        return isinstance(kind, StringType)
    if name == "ttl_s":
        return isinstance(kind, (IntegerType, LongType))
    if name != "headers":
        return isinstance(kind, (BinaryType, StringType))
    pair = kind.elementType if isinstance(kind, ArrayType) else None
    return (
        isinstance(pair, StructType)
        and pair.names == ["key", "value"]
        and isinstance(pair["key"].dataType, StringType)
        and isinstance(pair["value"].dataType, (BinaryType, StringType))
    )


def chunks_of(
    batch: "RecordBatch", columns: Columns, shards: int, bytes_max: int
) -> Iterator[Chunk]:
    """The rows of a batch in order; an error names the topic or the queue of the row it is about."""
    if not batch.num_rows:
        return
    given = {name: batch.column(place) for place, name in enumerate(columns.names)}
    if columns.is_queues:
        yield from _queue_chunks(given, columns, bytes_max)
        return
    from moorline.spark.packing import packed_chunks

    for data, count in packed_chunks(_topic_rows(given, columns), shards, bytes_max):
        yield Chunk(data, count)


def _queue_chunks(given: dict[str, Any], columns: Columns, bytes_max: int) -> Iterator[Chunk]:
    from moorline.spark.packing import cuts, lengths_of

    values = _binary(given["value"])
    queues = _queues(given["queue"]) if "queue" in given else [columns.queue] * len(values)
    _check_values(values, lambda row: f"the queue {text_of(queues[row])}", may_be_null=False)
    bodies = values.to_pylist()
    for first, end in cuts(lengths_of(values) + SPARK_ROW_EXTRA_BYTES + ID_BYTES, bytes_max):
        rows = list(map(QueueRow, queues[first:end], bodies[first:end]))
        yield Chunk(encode_queue_rows(rows), end - first)


def _topic_rows(given: dict[str, Any], columns: Columns) -> "TopicRows":
    from moorline.spark.packing import TopicRows

    values = _binary(given["value"])
    if "topic" in given:
        names, topics = _topics(given["topic"])
    else:
        names, topics = [columns.topic], np.zeros(len(values), np.int64)

    def topic_of(row: int) -> str:
        return f"the topic {names[int(topics[row])]!r}"

    _check_values(values, topic_of, may_be_null=True)
    keys = _keys(given["key"], topic_of) if "key" in given else None
    headers = _headers(given["headers"], topic_of) if "headers" in given else None
    ttls_s = _ttls(given["ttl_s"], topic_of) if "ttl_s" in given else None
    return TopicRows(names, topics, values, keys, headers, ttls_s)


def _binary(column: Any) -> Any:
    import pyarrow as pa

    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _topics(column: Any) -> tuple[list[str], Any]:
    """The topics that there are, and which of them each row has."""
    if column.null_count:
        row = column.is_null().index(True).as_py()
        raise BadTopic(f"the topic of row {row} of its batch is null")
    encoded = column.dictionary_encode()
    names: list[str] = encoded.dictionary.to_pylist()
    for topic in names:
        if topic not in _known:
            check_topic(topic)
            if len(_known) >= TOPICS_CACHED_MAX:
                _known.clear()
            _known.add(topic)
    return names, encoded.indices.to_numpy().astype(np.int64)


_known: set[str] = set()


def _queues(column: Any) -> list[bytes]:
    import pyarrow as pa

    if column.null_count:
        row = column.is_null().index(True).as_py()
        raise NotFound(f"the queue of row {row} of its batch is null")
    ids = column.to_pylist()
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        known = {text: id_of(text) for text in set(ids)}
        return [known[text] for text in ids]
    for one in set(ids):
        if len(one) != ID_BYTES:
            raise Malformed(f"the queue {one.hex()} is no id: expected {ID_BYTES} bytes")
    return ids  # type: ignore[no-any-return]


def _check_values(values: Any, place_of: Callable[[int], str], *, may_be_null: bool) -> None:
    from moorline.spark.packing import lengths_of

    if values.null_count and not may_be_null:
        row = values.is_null().index(True).as_py()
        raise Malformed(f"a null value for {place_of(row)}: write an empty one, or leave it out")
    lengths = lengths_of(values)
    row = int(lengths.argmax())
    if lengths[row] > SPARK_VALUE_BYTES_MAX:
        raise TooLarge(
            f"a value of {lengths[row]} bytes for {place_of(row)}; no node takes more than "
            f"{SPARK_VALUE_BYTES_MAX}"
        )


def _keys(column: Any, place_of: Callable[[int], str]) -> Any:
    from moorline.spark.packing import lengths_of

    keys = _binary(column)
    lengths = lengths_of(keys)
    row = int(lengths.argmax())
    if lengths[row] > TOPIC_KEY_BYTES_MAX:
        raise TooLarge(
            f"a key of {lengths[row]} bytes for {place_of(row)}; at most {TOPIC_KEY_BYTES_MAX}"
        )
    return keys


def _ttls(column: Any, place_of: Callable[[int], str]) -> Any:
    ttls_s = column.fill_null(0).to_numpy().astype(np.int64)
    wrong = np.flatnonzero((ttls_s < 0) | (ttls_s > TTL_S_MAX))
    if len(wrong):
        row = int(wrong[0])
        raise Malformed(f"ttl_s {ttls_s[row]} for {place_of(row)}: 0 to {TTL_S_MAX}")
    return ttls_s


def _headers(column: Any, place_of: Callable[[int], str]) -> Any:
    """Encoded, one by one: they are lists."""
    import pyarrow as pa

    found: list[bytes] = []
    for row, pairs in enumerate(column.to_pylist()):
        headers = [_header(pair, row, place_of) for pair in pairs or ()]
        encoded = encode_headers(headers)
        if len(encoded) > TOPIC_HEADERS_BYTES_MAX:
            raise TooLarge(
                f"headers of {len(encoded)} bytes for {place_of(row)}; at most "
                f"{TOPIC_HEADERS_BYTES_MAX}"
            )
        found.append(encoded)
    return pa.array(found, pa.binary())


def _header(
    pair: dict[str, Any] | None, row: int, place_of: Callable[[int], str]
) -> tuple[str, bytes]:
    if pair is None or pair["key"] is None:
        raise Malformed(f"a header without a key for {place_of(row)}")
    value = pair["value"] or b""
    return pair["key"], value.encode() if isinstance(value, str) else value
