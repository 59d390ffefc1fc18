"""Room: staging. Rows that are to be staged: those that could never be published are refused by name."""

import msgspec
import numpy as np

from moorline.core.frames.frame import FRAME, KEYED, PRODUCER, PRODUCER_PART
from moorline.core.topic import check_topic
from moorline.errors import BadTopic, CallFailed, TooLarge
from moorline.ids import text_of
from moorline.limits import TOPIC_HEADERS_BYTES_MAX, TOPIC_KEY_BYTES_MAX, TOPICS_CACHED_MAX
from moorline.topics.paths import check_reserved
from moorline.topics.publishing import PUBLISHERS_FLAGS
from moorline.wire.packed_rows import unpacked
from moorline.wire.staging import QUEUES, queue_rows_decoder


class RowChecker:
    """Refuses rows that could never be published, and says which. In the thread."""

    def __init__(self, message_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._known: set[str] = set()

    def check_rows(self, data: bytes) -> tuple[int, list[str]]:
        """How many they are, and the topics that they name."""
        rows = unpacked(data)
        for topic in rows.names:
            if topic not in self._known:
                self._learn(topic)
        sizes = rows.check()
        if not rows.count:
            return 0, []
        others = np.flatnonzero(sizes.flags & ~(PUBLISHERS_FLAGS | KEYED | PRODUCER))
        if len(others):
            raise BadTopic(f"flags {sizes.flags[others[0]]} are not a publisher's to set")
        parts = FRAME.size + PRODUCER_PART.size + sizes.topics + sizes.keys + sizes.headers
        for what, lengths, bytes_max, where in (
            (
                "a value",
                rows.lengths - parts,
                self._message_bytes_max,
                " (streams.message_bytes_max)",
            ),
            ("a key", sizes.keys, TOPIC_KEY_BYTES_MAX, ""),
            ("headers", sizes.headers, TOPIC_HEADERS_BYTES_MAX, ""),
        ):
            row = int(lengths.argmax())
            if lengths[row] > bytes_max:
                topic = rows.names[int(rows.topics[row])]
                raise TooLarge(
                    f"{what} of {lengths[row]} bytes for the topic {topic!r}; this node takes "
                    f"{bytes_max}{where}"
                )
        return rows.count, rows.names

    def check_queue_rows(self, rows: bytes, bytes_max: int) -> tuple[int, set[bytes]]:
        """How many they are, and the queues that they are for."""
        try:
            found = queue_rows_decoder.decode(rows)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CallFailed(f"these are no rows for queues: {error}") from error
        for row in found:
            if len(row.body) > bytes_max:
                raise TooLarge(
                    f"a value of {len(row.body)} bytes for the queue {text_of(row.queue)}; this node "
                    f"takes {bytes_max} (queues.message_bytes_max)"
                )
        return len(found), {row.queue for row in found}

    def _learn(self, topic: str) -> None:
        check_topic(topic)
        check_reserved(topic)
        if len(self._known) >= TOPICS_CACHED_MAX:
            self._known.clear()
        self._known.add(topic)


class TopicsSeen:
    """The topics of rows that are looked at on their way through a check. In the thread."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __call__(self, target: int, rows: bytes) -> None:
        if target != QUEUES:
            self.names.update(unpacked(rows).names)
