"""Room: net. What is in a keytab: its entries without their keys.

    file      0x05 0x02, then records
    record    i32 length; a negative one is a hole of that size
              u16 components, realm, components (each u16 length and bytes), u32 name type,
              u32 time, u8 version, u16 encryption type, u16 key length, key, perhaps u32 version

The format is MIT's, version 2, which Heimdal and Java write too. No key leaves this file.
"""

import struct
from pathlib import Path

import msgspec

from moorline.errors import ConfigError
from moorline.limits import KEYTAB_BYTES_MAX, KEYTAB_ENTRIES_MAX
from moorline.net.kerberos import check_keytab_file

ENCRYPTION = {
    1: "des-cbc-crc",
    3: "des-cbc-md5",
    16: "des3-cbc-sha1",
    17: "aes128-cts-hmac-sha1-96",
    18: "aes256-cts-hmac-sha1-96",
    19: "aes128-cts-hmac-sha256-128",
    20: "aes256-cts-hmac-sha384-192",
    23: "arcfour-hmac",
    25: "camellia128-cts-cmac",
    26: "camellia256-cts-cmac",
}
"""By their numbers (RFC 3961 and what followed it)."""

WEAK = frozenset({1, 2, 3, 16, 23, 24})
"""Those that nobody should use any more (RFC 6649, RFC 8429)."""

_HEAD = b"\x05\x02"


class KeytabEntry(msgspec.Struct, frozen=True):
    principal: str
    version: int
    """Of the key: `kvno`."""
    encryption: str
    is_weak: bool
    made_s: int
    """When it was put there, since 1970."""


def read_keytab(path: Path) -> list[KeytabEntry]:
    """Its entries in their order; `ConfigError` says why it is none."""
    check_keytab_file(path)
    data = path.read_bytes()
    if len(data) > KEYTAB_BYTES_MAX or data[:2] != _HEAD:
        raise ConfigError(f"{str(path)!r} is no keytab: ktadd of kadmin makes one")
    entries: list[KeytabEntry] = []
    start = len(_HEAD)
    try:
        while start < len(data):
            (length,) = struct.unpack_from(">i", data, start)
            start += 4
            if length == 0:
                break
            if length > 0:
                if start + length > len(data) or len(entries) >= KEYTAB_ENTRIES_MAX:
                    raise ValueError
                entries.append(_entry(data[start : start + length]))
            start += abs(length)
    except (struct.error, ValueError):
        raise ConfigError(f"{str(path)!r} is a damaged keytab: get it anew (ktadd)") from None
    return entries


def _entry(record: bytes) -> KeytabEntry:
    (count,) = struct.unpack_from(">H", record)
    place = 2
    parts: list[str] = []
    for _ in range(count + 1):
        (size,) = struct.unpack_from(">H", record, place)
        if place + 2 + size > len(record):
            raise ValueError
        parts.append(record[place + 2 : place + 2 + size].decode(errors="replace"))
        place += 2 + size
    _, made_s, version, kind, key_bytes = struct.unpack_from(">IIBHH", record, place)
    place += 13 + key_bytes
    if place > len(record):
        raise ValueError
    if len(record) - place >= 4:
        # The one byte was not enough for everybody.
        (longer,) = struct.unpack_from(">I", record, place)
        version = longer or version
    realm, *names = parts
    return KeytabEntry(
        f"{'/'.join(names)}@{realm}",
        version,
        ENCRYPTION.get(kind, f"type {kind}"),
        kind in WEAK,
        made_s,
    )
