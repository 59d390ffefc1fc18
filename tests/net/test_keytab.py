"""Keytabs: what is read of them, and that no damage does more than an error."""

import struct
from pathlib import Path

import pytest

from moorline.errors import ConfigError
from moorline.net.keytab import KeytabEntry, read_keytab

HEAD = b"\x05\x02"


def counted(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def entry(
    realm: str, *names: str, kind: int = 18, version: int = 3, longer: int | None = None
) -> bytes:
    record = struct.pack(">H", len(names)) + counted(realm) + b"".join(map(counted, names))
    record += struct.pack(">IIBHH", 1, 1_700_000_000, version & 255, kind, 32) + b"K" * 32
    if longer is not None:
        record += struct.pack(">I", longer)
    return struct.pack(">i", len(record)) + record


def written(folder: Path, data: bytes) -> Path:
    path = folder / "x.keytab"
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def test_entries_are_read_in_their_order_and_holes_are_skipped(tmp_path: Path) -> None:
    hole = struct.pack(">i", -5) + b"xxxxx"
    data = HEAD + entry("A", "alice") + hole + entry("A", "host", "x", kind=23, longer=300)
    assert read_keytab(written(tmp_path, data)) == [
        KeytabEntry("alice@A", 3, "aes256-cts-hmac-sha1-96", False, 1_700_000_000),
        KeytabEntry("host/x@A", 300, "arcfour-hmac", True, 1_700_000_000),
    ]
    assert read_keytab(written(tmp_path, HEAD)) == []


def test_every_cut_and_every_changed_byte_is_read_or_refused(tmp_path: Path) -> None:
    data = HEAD + entry("A", "alice") + entry("A", "host", "x", longer=300)
    for end in range(len(data)):
        _read_or_refused(written(tmp_path, data[:end]))
        for other in (0, 255, data[end] ^ 1):
            _read_or_refused(written(tmp_path, data[:end] + bytes([other]) + data[end + 1 :]))


def _read_or_refused(path: Path) -> None:
    try:
        assert len(read_keytab(path)) <= 2
    except ConfigError as error:
        assert "keytab" in str(error)  # noqa: PT017


def test_a_keytab_for_everybody_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD)
    path.chmod(0o604)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_keytab(path)
