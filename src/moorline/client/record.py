"""Room: client. What a user of topics says, in the form of the wire: messages to publish, places to begin at.

What a node would take for the words of a broken peer, and end the link for, is refused here.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from moorline.core.frames.frame import QOS0, RETAIN, TOMBSTONE
from moorline.errors import BadStart, BadTopic, ConfigError, TooLarge
from moorline.limits import (
    FILTER_LENGTH_MAX,
    PRODUCER_LENGTH_MAX,
    SESSION_EXPIRY_S_MAX,
    SESSION_NAME_BYTES_MAX,
    START_LENGTH_MAX,
    TOPIC_BYTES_MAX,
    TOPIC_KEY_BYTES_MAX,
    TOPIC_WINDOW_MAX,
    TTL_S_MAX,
)
from moorline.wire.topic import Record

Headers = Mapping[str, bytes | str] | Sequence[tuple[str, bytes]]


def record(
    topic: str,
    body: bytes | None,
    *,
    key: bytes | str | None = None,
    headers: Headers | None = None,
    ttl_s: int = 0,
    retain: bool = False,
    qos: int = 1,
) -> Record:
    """A message as it is published. None is a tombstone: there is nothing under this key any more.

    What a node would take for a broken peer is refused here; what else it does not like, it says.
    """
    if not 1 <= len(topic) <= TOPIC_BYTES_MAX:
        raise BadTopic(f"a topic has 1 to {TOPIC_BYTES_MAX} bytes, this one has {len(topic)}")
    if body is not None and not isinstance(body, bytes):
        raise ConfigError(f"a body is bytes or None, not {type(body).__name__}")
    if not 0 <= ttl_s <= TTL_S_MAX:
        raise ConfigError(f"ttl_s is 0 (never) to {TTL_S_MAX}, not {ttl_s}")
    if qos not in (0, 1):
        raise ConfigError(f"qos is 0 or 1, not {qos}")
    flags = (RETAIN if retain else 0) | (QOS0 if qos == 0 else 0)
    if body is None:
        flags |= TOMBSTONE
    try:
        key_bytes = key.encode() if isinstance(key, str) else key
        pairs = _pairs(headers)
        topic.encode()
    except UnicodeEncodeError as error:
        raise BadTopic(f"a topic, key or header that is not text: {error}") from error
    if key_bytes is not None and len(key_bytes) > TOPIC_KEY_BYTES_MAX:
        raise TooLarge(f"a key has at most {TOPIC_KEY_BYTES_MAX} bytes, not {len(key_bytes)}")
    return Record(topic, body or b"", key_bytes, pairs, ttl_s, flags)


def _pairs(headers: Headers | None) -> list[tuple[str, bytes]] | None:
    if not headers:
        return None
    items = headers.items() if isinstance(headers, Mapping) else headers
    pairs = []
    for name, value in items:
        name.encode()
        pairs.append((name, value.encode() if isinstance(value, str) else value))
    return pairs


def check_filter_text(filter_text: str) -> None:
    """Refuses the length that a node would take for a broken peer's."""
    if not 1 <= len(filter_text) <= FILTER_LENGTH_MAX:
        raise BadTopic(f"a filter has 1 to {TOPIC_BYTES_MAX} bytes, this has {len(filter_text)}")


def check_producer(producer: str, sequence: int) -> None:
    """The same for who publishes."""
    if len(producer) > PRODUCER_LENGTH_MAX:
        raise ConfigError(f"a producer's name has at most {PRODUCER_LENGTH_MAX} characters")
    if not 0 <= sequence < 1 << 63:
        raise ConfigError(f"a sequence is 0 to 2^63 - 1, not {sequence}")


def check_subscription(filter_text: str, window: int, start: str, qos: int) -> None:
    """Refuses what a node would take for a broken peer; the rest it says itself."""
    check_filter_text(filter_text)
    if not 1 <= window <= TOPIC_WINDOW_MAX:
        raise ConfigError(f"window is 1 to {TOPIC_WINDOW_MAX}, not {window}")
    if len(start) > START_LENGTH_MAX:
        raise BadStart(f"{start[:START_LENGTH_MAX]!r}… is no start")
    if qos not in (0, 1):
        raise ConfigError(f"qos is 0 or 1, not {qos}")
    try:
        filter_text.encode()
        start.encode()
    except UnicodeEncodeError as error:
        raise BadTopic(f"a filter or a start that is not text: {error}") from error


def check_session(name: str, expiry_s: int) -> None:
    """The same for a session."""
    if not 1 <= len(name) <= SESSION_NAME_BYTES_MAX or "\0" in name:
        raise ConfigError(f"a session's name has 1 to {SESSION_NAME_BYTES_MAX} characters")
    if not 0 <= expiry_s <= SESSION_EXPIRY_S_MAX:
        raise ConfigError(f"expiry_s is 0 to {SESSION_EXPIRY_S_MAX}, not {expiry_s}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"a session's name that is not text: {error}") from error


def start_text(start: str | int | datetime) -> str:
    """`"now"`, `"beginning"`, a time, or an offset, as the wire has it."""
    if isinstance(start, datetime):
        return f"time:{int(start.timestamp() * 1_000_000)}"
    if isinstance(start, int):
        return f"offset:{start}"
    return start


def record_bytes(one: Record) -> int:
    """About as many as it takes in a frame."""
    return len(one.body) + len(one.topic) + 64
