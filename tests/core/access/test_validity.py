"""The times of a certificate, read without a library, are those that a library reads."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.net.authority import Authority

from moorline.core.access.validity import Validity, validity_of

USERS = Authority("users")
NOW = datetime.now(UTC)


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (timedelta(days=-1), timedelta(days=1)),
        (timedelta(days=400), timedelta(days=401)),
        # Behind 2049 a time has four digits of year (RFC 5280).
        (timedelta(days=-1), datetime(2077, 5, 6, tzinfo=UTC) - NOW),
        (datetime(1999, 1, 2, tzinfo=UTC) - NOW, timedelta(days=1)),
    ],
)
def test_they_are_read_from_either_form(begin: timedelta, end: timedelta) -> None:
    issued = USERS.issue("alice", begin=begin, end=end)
    assert validity_of(issued.der) == Validity(
        round(issued.certificate.not_valid_before_utc.timestamp() * 1_000),
        round(issued.certificate.not_valid_after_utc.timestamp() * 1_000),
    )


ENCODED = USERS.issue("alice").der


def test_what_is_cut_anywhere_is_none_or_read_and_never_an_exception() -> None:
    assert validity_of(b"") is None
    for length in range(len(ENCODED)):
        assert validity_of(ENCODED[:length]) is None


@given(st.binary(max_size=200), st.integers(0, len(ENCODED) - 1))
def test_what_is_changed_anywhere_is_no_exception(noise: bytes, at: int) -> None:
    validity_of(noise)
    validity_of(ENCODED[:at] + noise + ENCODED[at + len(noise) :])
