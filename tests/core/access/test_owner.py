"""Owners of queues: as their store keeps them, as people read them, and as rights judge them."""

from hypothesis import given
from hypothesis import strategies as st

from moorline.core.access.owner import (
    FINGERPRINT_BYTES,
    claim_of,
    claimed,
    judged_name_of,
    name_of,
    owner_of,
)
from moorline.core.access.principal import ANONYMOUS


def test_nobody_who_proved_nothing_owns_anything() -> None:
    assert owner_of(ANONYMOUS) == b""
    assert name_of(b"") == judged_name_of(b"") == ""


@given(st.text(min_size=1, max_size=40).filter(lambda name: name != ANONYMOUS))
def test_a_principal_comes_back_as_itself(name: str) -> None:
    try:
        owner = owner_of(name)
    except UnicodeEncodeError:
        return  # halves of characters are no principal's
    assert name_of(owner) == judged_name_of(owner) == name


@given(st.binary(min_size=FINGERPRINT_BYTES, max_size=FINGERPRINT_BYTES))
def test_nobody_owns_by_being_called_like_a_fingerprint(fingerprint: bytes) -> None:
    assert name_of(fingerprint) == fingerprint.hex()
    assert judged_name_of(fingerprint) != fingerprint.hex()
    assert judged_name_of(fingerprint) == f"%{fingerprint.hex()}"


@given(
    st.binary(min_size=FINGERPRINT_BYTES, max_size=FINGERPRINT_BYTES),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40),
)
def test_who_claimed_a_fingerprint_stands_beside_it(fingerprint: bytes, name: str) -> None:
    owner = claimed(fingerprint, name)
    assert claim_of(owner) == (fingerprint.hex(), name)
    assert name_of(owner) == name
    assert judged_name_of(owner) == f"%{fingerprint.hex()}={name}"
    assert claim_of(fingerprint) is None
    assert claim_of(owner_of(name)) is None
