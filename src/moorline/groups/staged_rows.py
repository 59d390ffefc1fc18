"""Room: groups. Rows that are to be staged: those that could never be published are refused by name."""

import msgspec

from moorline.core.topic import check_topic
from moorline.errors import BadTopic, CallFailed, TooLarge
from moorline.groups.topics import PUBLISHERS_FLAGS
from moorline.ids import text_of
from moorline.limits import TOPIC_HEADERS_BYTES_MAX, TOPICS_CACHED_MAX
from moorline.wire.segment import encode_headers
from moorline.wire.staging import queue_rows_decoder, records_decoder


class RowChecker:
    """Refuses rows that could never be published, and says which. In the thread."""

    def __init__(self, message_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._known: set[str] = set()

    def check_records(self, rows: bytes) -> int:
        try:
            records = records_decoder.decode(rows)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CallFailed(f"these are no rows for topics: {error}") from error
        for record in records:
            if record.topic not in self._known:
                self._learn(record.topic)
            if len(record.body) > self._message_bytes_max:
                raise TooLarge(
                    f"a value of {len(record.body)} bytes for the topic {record.topic!r}; this node "
                    f"takes {self._message_bytes_max} (streams.message_bytes_max)"
                )
            if record.flags & ~PUBLISHERS_FLAGS:
                raise BadTopic(f"flags {record.flags} are not a publisher's to set")
            if record.headers:
                size = len(encode_headers(record.headers))
                if size > TOPIC_HEADERS_BYTES_MAX:
                    raise TooLarge(
                        f"headers of {size} bytes for the topic {record.topic!r}; at most "
                        f"{TOPIC_HEADERS_BYTES_MAX}"
                    )
        return len(records)

    def check_queue_rows(self, rows: bytes, bytes_max: int) -> int:
        try:
            found = queue_rows_decoder.decode(rows)
        except msgspec.MsgspecError as error:
            raise CallFailed(f"these are no rows for queues: {error}") from error
        for row in found:
            if len(row.body) > bytes_max:
                raise TooLarge(
                    f"a value of {len(row.body)} bytes for the queue {text_of(row.queue)}; this node "
                    f"takes {bytes_max} (queues.message_bytes_max)"
                )
        return len(found)

    def _learn(self, topic: str) -> None:
        check_topic(topic)
        if len(self._known) >= TOPICS_CACHED_MAX:
            self._known.clear()
        self._known.add(topic)
