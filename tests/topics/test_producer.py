"""A producer's number: a name within its principal."""

import xxhash
from hypothesis import given
from hypothesis import strategies as st

from moorline.topics.producer import producer_number
from moorline.wire.staging import (
    aside_producer_of,
    check_query,
    key_before,
    producer_of,
    query_key,
    query_name,
)

PRINCIPALS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def test_an_anonymous_ones_number_cannot_be_aimed_at_either() -> None:
    assert producer_number("anonymous", "p") != xxhash.xxh3_64_intdigest(b"p")
    key = query_key("anonymous", "query")
    assert (key, query_name(key)) == ("\0\0query", "query")
    assert producer_of(key, 3) != xxhash.xxh3_64_intdigest(b"query/3", 0x5354_4147_4544)


def test_what_an_older_program_decided_goes_on_under_its_number() -> None:
    assert key_before(query_key("anonymous", "query")) == "query"
    assert producer_of("query", 3) == xxhash.xxh3_64_intdigest(b"query/3", 0x5354_4147_4544)
    assert key_before(query_key("alice", "query")) == query_key("alice", "query")


def test_a_number_stays_what_it_is() -> None:
    """It is in the files of streams: another one would make old messages new."""
    assert producer_number("anonymous", "p") == 0xCF50EAECA8788752
    assert producer_of(query_key("anonymous", "q"), 0) == 0xA53069766C759E6B
    assert producer_number("alice", "p") == 0xFFF474AA2DF898E6
    assert producer_of(query_key("alice", "q"), 0) == 0x81B87FB3B4614E1
    assert aside_producer_of(query_key("alice", "q"), 0) == 0x34DA62C96D97CED0


@given(PRINCIPALS, NAMES, PRINCIPALS, NAMES)
def test_two_that_differ_in_anything_are_two(one: str, name: str, two: str, other: str) -> None:
    if (one, name) != (two, other):
        assert producer_number(one, name) != producer_number(two, other)


@given(PRINCIPALS, NAMES, PRINCIPALS, NAMES)
def test_no_two_queries_share_a_key(one: str, name: str, two: str, other: str) -> None:
    for query in (name, other):
        if query.startswith("\0"):
            return
        check_query(query)
    assert query_name(query_key(one, name)) == name
    if (one, name) != (two, other):
        assert query_key(one, name) != query_key(two, other)
