"""Room: client/records. Messages of records out of frames of the native protocol; some fit no frame."""

from moorline.errors import Malformed
from moorline.limits import RECORD_PARTS_BYTES_MAX
from moorline.wire.records import FromNode, RecordMessages, client_msgpack


class Reassembly:
    """Of one link, from its beginning."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def take(self, message: RecordMessages) -> list[FromNode]:
        """What is whole with this frame; nothing while more of it comes."""
        data = message.messages
        if message.is_part or self._waiting:
            self._waiting += data
            if len(self._waiting) > RECORD_PARTS_BYTES_MAX:
                raise Malformed(f"more than {RECORD_PARTS_BYTES_MAX} bytes in parts")
            if message.is_part:
                return []
            data, self._waiting = bytes(self._waiting), bytearray()
        found: list[FromNode] = client_msgpack.decode(data)
        return found
