"""Heads of the PROXY protocol: whole and cut, of both versions, and what is none."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.errors import Malformed
from moorline.limits import PROXY_HEAD_BYTES_MAX
from moorline.wire.proxy_head import NOBODY, SIGNATURE, Source, source_of, wanted

BEHIND = b"\x16\x03\x01 what stands behind it"


def read(data: bytes) -> tuple[Source, bytes]:
    """As from a socket: what `wanted` says is read, and no byte more."""
    head = b""
    while count := wanted(head):
        some = data[len(head) : len(head) + count]
        if not some:
            raise EOFError(head)
        head += some
    return source_of(head), data[len(head) :]


def second(command: int, family: int, addresses: bytes, more: bytes = b"") -> bytes:
    inner = addresses + more
    return SIGNATURE + struct.pack(">BBH", command, family, len(inner)) + inner


IPV4 = bytes((192, 0, 2, 7, 127, 0, 0, 1)) + struct.pack(">HH", 50_000, 1_883)
IPV6 = bytes.fromhex("20010db8000000000000000000000007") + bytes(16) + struct.pack(">HH", 1, 2)


@pytest.mark.parametrize(
    ("head", "source"),
    [
        (b"PROXY TCP4 192.0.2.7 127.0.0.1 50000 1883\r\n", Source("192.0.2.7", 50_000)),
        (b"PROXY TCP6 2001:db8::7 ::1 1 2\r\n", Source("2001:db8::7", 1)),
        (b"PROXY UNKNOWN\r\n", NOBODY),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", NOBODY),
        (second(0x21, 0x11, IPV4), Source("192.0.2.7", 50_000)),
        (second(0x21, 0x21, IPV6), Source("2001:db8::7", 1)),
        # What else a proxy says is passed over.
        (second(0x21, 0x11, IPV4, b"\x04\0\x05extra"), Source("192.0.2.7", 50_000)),
        # The proxy itself, and families without an address that we know.
        (second(0x20, 0x00, b""), NOBODY),
        (second(0x20, 0x11, IPV4), NOBODY),
        (second(0x21, 0x00, b""), NOBODY),
        (second(0x21, 0x31, bytes(216)), NOBODY),
    ],
)
def test_a_head_is_read_and_nothing_behind_it(head: bytes, source: Source) -> None:
    assert read(head + BEHIND) == (source, BEHIND)
    for cut in range(len(head)):
        with pytest.raises(EOFError):
            read(head[:cut])


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x10\x0c\x00\x04MQTT",
        b"PROXIED\r\n",
        b"PROXY TCP4 192.0.2.7 127.0.0.1 50000\r\n",
        b"PROXY TCP4 192.0.2.256 127.0.0.1 1 2\r\n",
        b"PROXY TCP4 ::1 ::1 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 127.0.0.1 65536 1\r\n",
        b"PROXY TCP4 192.0.2.7 127.0.0.1 -1 1\r\n",
        b"PROXY TCP4  192.0.2.7 127.0.0.1 1 1\r\n",
        b"PROXY UDP4 192.0.2.7 127.0.0.1 1 2\r\n",
        b"PROXY \r\n",
        b"PROXY " + b"x" * 200,
        SIGNATURE[:11] + b"\r" + bytes(4),
        second(0x11, 0x11, IPV4),
        second(0x22, 0x11, IPV4),
        second(0x21, 0x11, IPV4[:11]),
        second(0x21, 0x21, IPV6[:35]),
        second(0x21, 0x11, IPV4, bytes(PROXY_HEAD_BYTES_MAX)),
    ],
)
def test_what_is_no_head(head: bytes) -> None:
    with pytest.raises(Malformed):
        read(head)


@given(st.binary(max_size=64), st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE]))
def test_any_bytes_are_a_head_or_none_and_bounded(data: bytes, begin: bytes) -> None:
    try:
        source, rest = read(begin + data + bytes(PROXY_HEAD_BYTES_MAX))
    except (Malformed, EOFError):
        return
    assert isinstance(source, Source)
    assert len(begin + data) + PROXY_HEAD_BYTES_MAX - len(rest) <= PROXY_HEAD_BYTES_MAX
