"""Room: spark. Arrow columns → the rows of staged writes, in chunks that fit a frame of the wire.

    topics   topic string (or the option), value binary or string, and if there are such columns
             key binary or string, headers array<struct<key:string,value:binary>>, ttl_s int or long
    queues   queue string or binary (or the option), value binary or string

Columns become lists in one call each; rows are tuples that are encoded all at once.
"""

from collections.abc import Iterator
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

from moorline.core.topic import check_topic
from moorline.errors import BadTopic, ConfigError, Malformed, NotFound, TooLarge
from moorline.ids import ID_BYTES, id_of, text_of
from moorline.limits import (
    KIB,
    TOPIC_HEADERS_BYTES_MAX,
    TOPIC_KEY_BYTES_MAX,
    TOPICS_CACHED_MAX,
)

if TYPE_CHECKING:
    from pyarrow import RecordBatch

VALUE_BYTES_MAX = 512 * KIB
"""No node takes more: the largest that streams.message_bytes_max can be."""

ROW_EXTRA_BYTES = 32
"""A row's share of a chunk beside its texts: lengths and numbers."""

TTL_S_MAX = 0xFFFF_FFFF

FOR_TOPICS = ("topic", "key", "value", "headers", "ttl_s")
FOR_QUEUES = ("queue", "value")

_encoder = msgspec.msgpack.Encoder()


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


def chunks_of(batch: "RecordBatch", columns: Columns, bytes_max: int) -> Iterator[Chunk]:
    """The rows of a batch in order; an error names the topic or the queue of the row it is about."""
    if not batch.num_rows:
        return
    given = {name: batch.column(place) for place, name in enumerate(columns.names)}
    places = _places(given, columns, batch.num_rows)
    values = _binary(given["value"])
    sizes = _lengths(values) + ROW_EXTRA_BYTES
    _check_values(values, sizes, places)
    lists = [places, values.to_pylist()]
    sizes += _lengths(_binary(given[place])) if (place := columns.place) in given else 64
    if not columns.is_queues:
        lists += _rest(given, places, sizes)
    for first, end in _cuts(sizes, bytes_max):
        rows = list(zip(*(part[first:end] for part in lists), strict=True))
        yield Chunk(_encoder.encode(rows), end - first)


def _cuts(sizes: Any, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Runs of rows of about that many bytes; one that is larger goes alone."""
    ends = np.cumsum(sizes)
    first, before = 0, 0
    while first < len(ends):
        end = int(np.searchsorted(ends, before + bytes_max, side="right"))
        end = max(end, first + 1)
        yield first, end
        first, before = end, int(ends[end - 1])


def _binary(column: Any) -> Any:
    import pyarrow as pa

    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _lengths(column: Any) -> Any:
    """The bytes of each item; 0 for null."""
    import pyarrow.compute as pc

    return pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)


def _places(given: dict[str, Any], columns: Columns, count: int) -> list[Any]:
    """The topic or the id of the queue of every row."""
    if columns.is_queues:
        return _queues(given["queue"]) if "queue" in given else [columns.queue] * count
    return _topics(given["topic"]) if "topic" in given else [columns.topic] * count


def _topics(column: Any) -> list[str]:
    if column.null_count:
        row = column.is_null().index(True).as_py()
        raise BadTopic(f"the topic of row {row} of its batch is null")
    for topic in column.unique().to_pylist():
        if topic not in _known:
            check_topic(topic)
            if len(_known) >= TOPICS_CACHED_MAX:
                _known.clear()
            _known.add(topic)
    return column.to_pylist()  # type: ignore[no-any-return]


_known: set[str] = set()


def _queues(column: Any) -> list[bytes]:
    import pyarrow as pa

    if column.null_count:
        row = column.is_null().index(True).as_py()
        raise NotFound(f"the queue of row {row} of its batch is null")
    ids = column.to_pylist()
    if not pa.types.is_binary(column.type):
        known = {text: id_of(text) for text in set(ids)}
        return [known[text] for text in ids]
    for one in set(ids):
        if len(one) != ID_BYTES:
            raise Malformed(f"the queue {one.hex()} is no id: expected {ID_BYTES} bytes")
    return ids  # type: ignore[no-any-return]


def _check_values(values: Any, sizes: Any, places: list[Any]) -> None:
    if values.null_count:
        row = values.is_null().index(True).as_py()
        raise Malformed(
            f"a null value for {_shown(places[row])}: write an empty one, or leave it out"
        )
    row = int(sizes.argmax())
    if sizes[row] > VALUE_BYTES_MAX + ROW_EXTRA_BYTES:
        raise TooLarge(
            f"a value of {sizes[row] - ROW_EXTRA_BYTES} bytes for {_shown(places[row])}; no node takes "
            f"more than {VALUE_BYTES_MAX}"
        )


def _shown(place: str | bytes) -> str:
    return f"the queue {text_of(place)}" if isinstance(place, bytes) else f"the topic {place!r}"


def _rest(given: dict[str, Any], topics: list[str], sizes: Any) -> list[list[Any]]:
    """Key, headers and time to live, as far as the last one that there is; adds up their sizes."""
    nothing = [None] * len(topics)
    lists: list[list[Any]] = []
    if "key" in given:
        keys = _binary(given["key"])
        lengths = _lengths(keys)
        row = int(lengths.argmax())
        if lengths[row] > TOPIC_KEY_BYTES_MAX:
            raise TooLarge(
                f"a key of {lengths[row]} bytes for the topic {topics[row]!r}; at most "
                f"{TOPIC_KEY_BYTES_MAX}"
            )
        sizes += lengths
        lists.append(keys.to_pylist())
    if "headers" in given or "ttl_s" in given:
        lists = lists or [nothing]
        lists.append(_headers(given["headers"], topics, sizes) if "headers" in given else nothing)
    if "ttl_s" in given:
        times = [ttl_s or 0 for ttl_s in given["ttl_s"].to_pylist()]
        for ttl_s, topic in zip(times, topics, strict=True):
            if not 0 <= ttl_s <= TTL_S_MAX:
                raise Malformed(f"ttl_s {ttl_s} for the topic {topic!r}: 0 to {TTL_S_MAX}")
        lists.append(times)
    return lists


def _headers(column: Any, topics: list[str], sizes: Any) -> list[list[tuple[str, bytes]] | None]:
    found: list[list[tuple[str, bytes]] | None] = []
    for row, (pairs, topic) in enumerate(zip(column.to_pylist(), topics, strict=True)):
        if not pairs:
            found.append(None)
            continue
        headers = [_header(pair, topic) for pair in pairs]
        size = len(_encoder.encode(headers))
        if size > TOPIC_HEADERS_BYTES_MAX:
            raise TooLarge(
                f"headers of {size} bytes for the topic {topic!r}; at most {TOPIC_HEADERS_BYTES_MAX}"
            )
        sizes[row] += size
        found.append(headers)
    return found


def _header(pair: dict[str, Any] | None, topic: str) -> tuple[str, bytes]:
    if pair is None or pair["key"] is None:
        raise Malformed(f"a header without a key for the topic {topic!r}")
    value = pair["value"] or b""
    return pair["key"], value.encode() if isinstance(value, str) else value
