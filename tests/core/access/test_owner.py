"""Owners of queues: as their store keeps them, as people read them, and as rights judge them."""

from hypothesis import given
from hypothesis import strategies as st

from moorline.core.access.owner import FINGERPRINT_BYTES, judged_name_of, name_of, owner_of
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
