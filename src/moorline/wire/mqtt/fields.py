"""Room: wire/mqtt. The data types of MQTT (1.5), read from the body of one packet and written to one.

byte, u16, u32    big-endian
varint            7 bits a byte, lowest first, at most 4 bytes, no longer than it must be
text              u16 bytes, UTF-8 without NUL and without halves of characters
binary            u16 bytes
"""

import struct

from moorline.core.mqtt.reason import ReasonCode, Violation

VARINT_MAX = 268_435_455

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")


def malformed(text: str) -> Violation:
    return Violation(ReasonCode.MALFORMED_PACKET, text)


def protocol_error(text: str) -> Violation:
    return Violation(ReasonCode.PROTOCOL_ERROR, text)


def text_of(raw: bytes, what: str) -> str:
    try:
        # Python's decoder refuses what the standard does: halves of characters, and longer forms than needed.
        text = raw.decode()
    except UnicodeDecodeError:
        raise malformed(f"{what} is not UTF-8") from None
    if "\0" in text:
        raise malformed(f"{what} has a zero character")
    return text


class Fields:
    """What is left of one packet: every read is within its bounds, or the packet is malformed."""

    __slots__ = ("at", "data", "stop")

    def __init__(self, data: bytes, at: int, stop: int) -> None:
        self.data = data
        self.at = at
        self.stop = stop

    def take(self, size: int, what: str) -> int:
        """Where a field of so many bytes begins; it is passed."""
        at = self.at
        if at + size > self.stop:
            raise malformed(f"the packet ends in {what}")
        self.at = at + size
        return at

    def byte(self, what: str) -> int:
        return self.data[self.take(1, what)]

    def u16(self, what: str) -> int:
        number: int = _U16.unpack_from(self.data, self.take(2, what))[0]
        return number

    def u32(self, what: str) -> int:
        number: int = _U32.unpack_from(self.data, self.take(4, what))[0]
        return number

    def varint(self, what: str) -> int:
        number = shift = 0
        while True:
            byte = self.byte(what)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                # MQTT 5, 1.5.5: the fewest bytes that hold it.
                if shift and not byte:
                    raise malformed(f"{what} is longer than it must be")
                return number
            shift += 7
            if shift > 21:
                raise malformed(f"{what} has more than 4 bytes")

    def binary(self, what: str) -> bytes:
        size = self.u16(what)
        at = self.take(size, what)
        return self.data[at : at + size]

    def text(self, what: str) -> str:
        return text_of(self.binary(what), what)

    def packet_id(self) -> int:
        number = self.u16("a packet id")
        if not number:
            raise protocol_error("packet id 0")
        return number

    def end(self) -> None:
        if self.at != self.stop:
            raise malformed(f"{self.stop - self.at} bytes behind the end of the packet")


# --- written --------------------------------------------------------------------------------------


def varint_bytes(number: int) -> bytes:
    assert 0 <= number <= VARINT_MAX, f"{number} is no varint"
    if number < 0x80:
        return bytes((number,))
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def u16_bytes(number: int) -> bytes:
    return _U16.pack(number)


def u32_bytes(number: int) -> bytes:
    return _U32.pack(number)


def binary_bytes(data: bytes) -> bytes:
    return _U16.pack(len(data)) + data


def text_bytes(text: str) -> bytes:
    return binary_bytes(text.encode())
