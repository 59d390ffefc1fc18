"""Cursors: what was signed comes back, and nothing else is taken."""

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.records.tables import TABLE

from moorline.core.records.cursor import (
    Asked,
    SigningKey,
    SigningKeys,
    TableCursor,
    Why,
    brief_of,
    misfit,
)
from moorline.core.records.log_reach import LogReach
from moorline.core.records.snapshot import Snapshot
from moorline.core.sets.digest import Digest
from moorline.limits import RECORD_CURSOR_CHARACTERS_MAX, RECORD_CURSOR_OPEN_MAX

OLD = SigningKey(1, b"o" * 32, 100)
NEW = SigningKey(2, b"n" * 32, 200)
KEYS = SigningKeys([OLD, NEW])
F, P = b"f" * 16, b"p" * 16
CURSOR = TableCursor("runs", "e1", Snapshot(10, 20, (12, 15)), F, P, Digest(3, b"d" * 16))


def test_what_was_signed_comes_back() -> None:
    text = KEYS.sign(CURSOR)
    assert KEYS.open_cursor(text, 60) == CURSOR
    assert "=" not in text
    assert misfit(CURSOR, TABLE, F, P) is None


@given(st.integers(1, 1 << 62), st.sets(st.integers(0, 3_000), max_size=50), st.integers(0, 9))
def test_snapshots_come_back(xmin: int, opened: set[int], beyond: int) -> None:
    open_ = tuple(sorted(xmin + one for one in opened))
    snapshot = Snapshot(xmin, max((xmin, *(one + 1 for one in open_))) + beyond, open_)
    cursor = msgspec.structs.replace(CURSOR, snapshot=snapshot)
    assert KEYS.open_cursor(KEYS.sign(cursor), 0) == cursor


def test_too_many_open_transactions_are_left_out() -> None:
    most = Snapshot(
        1,
        1 << 40,
        tuple(range(1, (1 << 40), (1 << 40) // RECORD_CURSOR_OPEN_MAX))[:RECORD_CURSOR_OPEN_MAX],
    )
    text = KEYS.sign(msgspec.structs.replace(CURSOR, snapshot=most))
    assert len(text) <= RECORD_CURSOR_CHARACTERS_MAX
    found = KEYS.open_cursor(text, 0)
    assert isinstance(found, TableCursor)
    assert found.snapshot == most
    more = Snapshot(1, 5_000, tuple(range(1, RECORD_CURSOR_OPEN_MAX + 2)))
    found = KEYS.open_cursor(KEYS.sign(msgspec.structs.replace(CURSOR, snapshot=more)), 0)
    assert isinstance(found, TableCursor)
    assert found.snapshot is None
    assert misfit(found, TABLE, F, P) is Why.NO_SNAPSHOT


def test_keys_are_rotated() -> None:
    before = SigningKeys([OLD]).sign(CURSOR)
    assert KEYS.open_cursor(before, 99) == CURSOR
    assert KEYS.open_cursor(before, 100) is Why.UNKNOWN_KEY
    assert SigningKeys([NEW]).open_cursor(before, 0) is Why.UNKNOWN_KEY
    other = SigningKeys([SigningKey(1, b"x" * 32, 100)])
    assert other.open_cursor(before, 0) is Why.FORGED
    assert "o" * 8 not in repr(OLD)


def test_every_bit_is_signed() -> None:
    data = bytearray(base64.urlsafe_b64decode(KEYS.sign(CURSOR) + "=="))
    for bit in range(len(data) * 8):
        data[bit // 8] ^= 1 << bit % 8
        text = base64.urlsafe_b64encode(data).rstrip(b"=").decode()
        assert KEYS.open_cursor(text, 0) in (Why.FORGED, Why.UNKNOWN_KEY, Why.MALFORMED)
        data[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize(
    "text", ["", "A", "=", "AAAA", "ä", "\ud800", "A" * 20_000, "+/+/", "a\nb=", "%u"]
)
def test_garbage_is_malformed(text: str) -> None:
    assert KEYS.open_cursor(text, 0) is Why.MALFORMED


@given(st.one_of(st.text(), st.binary().map(lambda data: base64.urlsafe_b64encode(data).decode())))
def test_whatever_comes_there_is_a_reason(text: str) -> None:
    assert isinstance(KEYS.open_cursor(text, 0), Why)


@given(st.binary(max_size=60))
def test_a_body_that_was_signed_and_is_none_is_malformed(body: bytes) -> None:
    """Of an older or newer node that shares the keys: a reason, and no error."""
    import hashlib
    import hmac

    head = b"\2" + min(23 + len(body), 40).to_bytes(2, "big") + (2).to_bytes(4, "big")
    data = head + hmac.digest(NEW.secret, head + body, hashlib.sha256)[:16] + body
    text = base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    assert KEYS.open_cursor(text, 0) is Why.MALFORMED


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"table": "other"}, Why.OTHER_TABLE),
        ({"epoch": "e2"}, Why.OTHER_EPOCH),
        ({"filter_hash": b"x" * 16}, Why.OTHER_FILTER),
        ({"permit_hash": b"x" * 16}, Why.OTHER_PERMIT),
        ({"snapshot": None}, Why.NO_SNAPSHOT),
    ],
)
def test_a_cursor_of_something_else_says_of_what(changed: dict[str, object], why: Why) -> None:
    assert misfit(msgspec.structs.replace(CURSOR, **changed), TABLE, F, P) is why


def test_t28_a_cursor_older_than_the_log_is_old() -> None:
    assert CURSOR.snapshot is not None
    table = msgspec.structs.replace(TABLE, reach=LogReach(CURSOR.snapshot.xmax + 1))
    assert misfit(CURSOR, table, F, P) is Why.OLD


def asked(cursor: TableCursor) -> Asked:
    return Asked(cursor.table, cursor.epoch, cursor.filter_hash, cursor.permit_hash, cursor.digest)


def test_a_brief_cursor_is_the_whole_one_for_who_asks_for_the_same() -> None:
    brief = brief_of(KEYS.sign(CURSOR))
    assert len(brief) < 40
    assert KEYS.open_brief(brief, asked(CURSOR), 60) == CURSOR
    assert KEYS.knows(brief, 60)
    assert not KEYS.knows(brief, 200)
    assert KEYS.open_brief(brief, asked(CURSOR), 200) is Why.UNKNOWN_KEY


@pytest.mark.parametrize(
    "changed",
    [
        {"table": "other"},
        {"epoch": "e2"},
        {"filter_hash": b"x" * 16},
        {"permit_hash": b"x" * 16},
        {"digest": Digest(3, b"x" * 16)},
    ],
)
def test_a_brief_cursor_of_anything_else_is_forged(changed: dict[str, object]) -> None:
    brief = brief_of(KEYS.sign(CURSOR))
    other = msgspec.structs.replace(CURSOR, **changed)
    assert KEYS.open_brief(brief, asked(other), 60) is Why.FORGED


def test_every_bit_of_a_brief_cursor_is_signed() -> None:
    brief = bytearray(brief_of(KEYS.sign(CURSOR)))
    for bit in range(len(brief) * 8):
        brief[bit // 8] ^= 1 << bit % 8
        found = KEYS.open_brief(bytes(brief), asked(CURSOR), 0)
        assert found in (Why.FORGED, Why.UNKNOWN_KEY, Why.MALFORMED)
        brief[bit // 8] ^= 1 << bit % 8
    for cut in range(len(brief)):
        assert KEYS.open_brief(bytes(brief[:cut]), asked(CURSOR), 0) is Why.MALFORMED


@given(st.binary(max_size=80))
def test_whatever_comes_as_a_brief_cursor_there_is_a_reason(data: bytes) -> None:
    assert isinstance(KEYS.open_brief(data, asked(CURSOR), 0), Why)
    KEYS.knows(data, 0)


@given(st.text())
def test_what_is_no_cursor_has_no_brief_form(text: str) -> None:
    assert brief_of(text) == b""
