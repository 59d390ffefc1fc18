"""Whom a proxy speaks for, and what a client cannot make it say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.access.forwarded import Client, Family, client_of
from moorline.limits import HTTP_PROXY_HOPS_MAX

TRUSTED = {"127.0.0.1", "10.0.0.2", "fd00::2"}


def found(*headers: tuple[str, str], family: Family = "x-forwarded") -> Client | None:
    raw = [(name.encode(), value.encode()) for name, value in headers]
    return client_of(raw, family, TRUSTED.__contains__)


def test_one_proxy_says_who_asks() -> None:
    said = (
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "moor.example:8443"),
    )
    assert found(*said) == Client("203.0.113.7", "https", "moor.example:8443")


def test_nothing_said_is_nobody() -> None:
    assert found() is None
    assert found(("x-forwarded-proto", "https")) is None, "of nobody"
    assert found(("forwarded", "for=1.2.3.4")) is None, "the other family is not read"
    assert found(("x-forwarded-for", "1.2.3.4"), family="forwarded") is None


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("6.6.6.6, 203.0.113.7", "203.0.113.7"),
        ("127.0.0.1, 203.0.113.7", "203.0.113.7"),
        ("127.0.0.1, 10.0.0.2, 203.0.113.7", "203.0.113.7"),
        ("<script>, 203.0.113.7", "203.0.113.7"),
        ("6.6.6.6, 203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("203.0.113.7, 10.0.0.2, 127.0.0.1", "203.0.113.7"),
        ("10.0.0.2, 127.0.0.1", "10.0.0.2"),
        ("203.0.113.7:4711", "203.0.113.7"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("203.0.113.7,", "203.0.113.7"),
    ],
)
def test_what_a_client_wrote_itself_stands_too_far_to_the_left(said: str, address: str) -> None:
    made = found(("x-forwarded-for", said))
    assert made is not None
    assert made.address == address


def test_a_client_that_writes_a_line_of_its_own_is_no_further() -> None:
    made = found(("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "203.0.113.7"))
    assert made == Client("203.0.113.7")


def test_each_proxy_of_a_chain_has_its_own_scheme_and_name() -> None:
    made = found(
        ("x-forwarded-for", "203.0.113.7, 10.0.0.2"),
        ("x-forwarded-proto", "https, http"),
        ("x-forwarded-host", "moor.example, inside"),
    )
    assert made == Client("203.0.113.7", "https", "moor.example")


@pytest.mark.parametrize(
    "said",
    [
        (("x-forwarded-for", "unknown"),),
        (("x-forwarded-for", "203.0.113.7, somebody"),),
        (("x-forwarded-for", "203.0.113.7"), ("x-forwarded-proto", "gopher")),
        (("x-forwarded-for", "203.0.113.7"), ("x-forwarded-proto", "https, http")),
        (("x-forwarded-for", "1.2.3.4, 5.6.7.8, 9.9.9.9"), ("x-forwarded-host", "a, b")),
        (("x-forwarded-for", ",".join(["1.2.3.4"] * (HTTP_PROXY_HOPS_MAX + 1))),),
    ],
)
def test_what_cannot_be_read_is_refused(said: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(ValueError, match=r"prox|values beside"):
        found(*said)


@pytest.mark.parametrize(
    ("said", "client"),
    [
        ("for=203.0.113.7", Client("203.0.113.7")),
        ("For=203.0.113.7;Proto=HTTPS", Client("203.0.113.7", "https")),
        ('for="[2001:db8::1]:4711";host="moor.example"', Client("2001:db8::1", "", "moor.example")),
        ('for=6.6.6.6, for="203.0.113.7" ; proto=wss', Client("203.0.113.7", "https")),
        ('for="6.6.6.6, for=127.0.0.1", for=203.0.113.7', Client("203.0.113.7")),
        ("for=203.0.113.7;by=x;ext=1, for=10.0.0.2", Client("203.0.113.7")),
        (r'for="203.0.113\.7"', Client("203.0.113.7")),
    ],
)
def test_the_standard_header_is_read_in_the_same_way(said: str, client: Client) -> None:
    assert found(("forwarded", said), family="forwarded") == client


@pytest.mark.parametrize(
    "said",
    [
        'for="1.2.3.4',
        "for=unknown",
        "for=_hidden",
        "proto=https",
        "for",
        "for=1.2.3.4;for=5.6.7.8",
        "for=1.2.3.4 proto=https",
        'for="a"b',
        "=x",
    ],
)
def test_half_of_the_standard_header_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match=r"forwarded|a proxy speaks for"):
        found(("forwarded", said), family="forwarded")


@given(st.lists(st.binary(max_size=40), max_size=4), st.sampled_from(["x-forwarded", "forwarded"]))
def test_whatever_a_client_sends_before_it_the_proxys_word_counts(
    lines: list[bytes], family: Family
) -> None:
    """Lines of a client's own, and behind them the one that our proxy adds."""
    name = b"forwarded" if family == "forwarded" else b"x-forwarded-for"
    own = b"for=203.0.113.7" if family == "forwarded" else b"203.0.113.7"
    try:
        made = client_of(
            [*((name, line) for line in lines), (name, own)], family, TRUSTED.__contains__
        )
    except ValueError:
        return  # it is refused: nobody else is taken for it
    assert made is not None
    assert made.address == "203.0.113.7"
