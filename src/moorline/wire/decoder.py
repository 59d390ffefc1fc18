"""Room: wire. Payloads to messages, for whichever set of them an end may hear."""

from typing import Protocol

import msgspec

from moorline.errors import Malformed
from moorline.wire.message import Message


class DecodesFrames(Protocol):
    """A decoder of msgspec, whatever its format."""

    def decode(self, payload: memoryview, /) -> list[Message]: ...


class MessageDecoder:
    """Payloads to messages: one call into C a frame."""

    def __init__(self, heard: object) -> None:
        self._decoder: DecodesFrames = msgspec.msgpack.Decoder(heard)

    def decode(self, payload: memoryview) -> list[Message]:
        try:
            return self._decoder.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Malformed(str(error)) from error
