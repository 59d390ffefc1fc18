"""Room: core/frames. How a stored message looks: the same bytes on disk and on their way to a reader.

    frame   length   u32  bytes from `offset` to the end of the body
            check    u32  low half of XXH3-64, seeded, over those bytes
            offset   u64
            time_us  u64
            ttl_s    u32  0 is never
            topic    u16  bytes of the topic
            key      u16  bytes of the key
            headers  u16  bytes of the headers
            flags    u16  1 KEYED, 2 RETAIN, 4 PRODUCER, 8 QOS0, 16 TOMBSTONE
            then     topic, key, headers, [producer u64, sequence u64], body

Little-endian, so that numpy and Arrow read it in place. Design: docs/design/streams.md.

A frame is made once, by the publish, and never again: it is copied to the disk, to other nodes and to
clients as it is. So its check covers all that a reader relies on, and is seeded by the stream:
frames that were put into a file of another stream, or left over there, are not taken for its own. The
numbers of fixed width stand first, at places that do not depend on any other field, so that a column of one
of them can be read from thousands of frames at once (core/frames/fields.py).
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec
import xxhash
from msgspec import Meta

from moorline.errors import Malformed
from moorline.limits import HEADER_BYTES_MAX, HEADERS_MAX

# HEAD is what the check does not cover: the check itself, and the length. With a wrong length other bytes are
# checked, and those fail.
HEAD = struct.Struct("<II")
CONTENT = struct.Struct("<QQIHHHH")
PRODUCER_PART = struct.Struct("<QQ")
FRAME = struct.Struct("<IIQQIHHHH")

KEYED = 1
RETAIN = 2
PRODUCER = 4
QOS0 = 8
TOMBSTONE = 16
"""There is nothing under this key any more: no body at all, which is not an empty one."""
# A frame with any other flag is of a later version, and is refused before it is stored.
FLAGS_ALL = KEYED | RETAIN | PRODUCER | QOS0 | TOMBSTONE

# Half of the hash: 32 bits find a torn or altered frame, and a frame has four bytes less for each message.
CHECK_MASK = 0xFFFF_FFFF

Headers = Sequence[tuple[str, bytes]]

_encoder = msgspec.msgpack.Encoder()
HeaderName = Annotated[str, Meta(max_length=HEADER_BYTES_MAX)]
HeaderValue = Annotated[bytes, Meta(max_length=HEADER_BYTES_MAX)]
StoredHeaders = Annotated[list[tuple[HeaderName, HeaderValue]], Meta(max_length=HEADERS_MAX)]

_decoder = msgspec.msgpack.Decoder(StoredHeaders)


class Stored(NamedTuple):
    """A stored message, read."""

    offset: int
    time_us: int
    ttl_s: int
    flags: int
    topic: str
    key: bytes | None
    headers: bytes
    producer: int
    sequence: int
    body: bytes


def encode_headers(headers: Headers | None) -> bytes:
    # No headers are no bytes, and not an empty list: most messages have none, and readers skip them without
    # a look.
    return _encoder.encode(headers) if headers else b""


def decode_headers(data: bytes) -> list[tuple[str, bytes]]:
    if not data:
        return []
    try:
        return _decoder.decode(data)
    # A client can publish bytes in place of headers: they are stored as they are, and whoever reads them
    # must not stumble.
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"these are not headers: {error}") from error


def check_of(content: bytes | memoryview, seed: int) -> int:
    return xxhash.xxh3_64_intdigest(content, seed) & CHECK_MASK


def frame_of(stored: Stored, seed: int) -> bytes:
    """One frame; the hot path of a publish builds its own, the same way."""
    topic = stored.topic.encode()
    key = stored.key or b""
    producer = (
        PRODUCER_PART.pack(stored.producer, stored.sequence) if stored.flags & PRODUCER else b""
    )
    fixed = CONTENT.pack(
        stored.offset,
        stored.time_us,
        stored.ttl_s,
        len(topic),
        len(key),
        len(stored.headers),
        stored.flags,
    )
    # The body is last: its length is what is left, and needs no field.
    content = b"".join((fixed, topic, key, stored.headers, producer, stored.body))
    return HEAD.pack(len(content), check_of(content, seed)) + content


def stored_at(data: bytes, start: int) -> Stored:
    """The frame that begins there; that it is whole and true is known."""
    length, _, offset, time_us, ttl_s, topic, key, headers, flags = FRAME.unpack_from(data, start)
    end = start + HEAD.size + length
    at = start + FRAME.size
    name = data[at : at + topic].decode()
    at += topic
    # By the flag, not by the length: an empty key is a key, and decides the shard.
    key_bytes = data[at : at + key] if flags & KEYED else None
    at += key
    header_bytes = data[at : at + headers]
    at += headers
    producer = sequence = 0
    if flags & PRODUCER:
        producer, sequence = PRODUCER_PART.unpack_from(data, at)
        at += PRODUCER_PART.size
    return Stored(
        offset,
        time_us,
        ttl_s,
        flags,
        name,
        key_bytes,
        header_bytes,
        producer,
        sequence,
        data[at:end],
    )


def frames_in(data: bytes) -> Iterator[bytes]:
    """The frames that stand one behind the other, each for itself."""
    start = 0
    while start < len(data):
        stop = start + HEAD.size + HEAD.unpack_from(data, start)[0]
        yield data[start:stop]
        start = stop


def all_stored(data: bytes) -> Iterator[Stored]:
    """The messages of frames that stand one behind the other."""
    start = 0
    while start < len(data):
        yield stored_at(data, start)
        start += HEAD.size + HEAD.unpack_from(data, start)[0]


def without(frames: bytes, offsets: set[int]) -> bytes:
    """The frames but those of some offsets; rare, and so frame by frame."""
    kept, at = [], 0
    while at < len(frames):
        length, _, offset, *_ = FRAME.unpack_from(frames, at)
        if offset not in offsets:
            kept.append(frames[at : at + HEAD.size + length])
        at += HEAD.size + length
    return b"".join(kept)
