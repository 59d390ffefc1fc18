"""Patterns with one `*`, and what they take of a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.access.star_pattern import StarPattern

NAMES = st.text("ab@.", max_size=8)


@pytest.mark.parametrize(
    ("text", "name", "taken"),
    [
        ("anna", "anna", ""),
        ("anna", "ann", None),
        ("*", "anna", "anna"),
        ("*", "", None),
        ("*@a", "b@a", "b"),
        ("*@a", "@a", None),
        ("a*a", "a", None),
        ("a*a", "aa", None),
        ("a*a", "aba", "b"),
        ("A*", "ab", None),
    ],
)
def test_a_star_takes_one_character_at_least(text: str, name: str, taken: str | None) -> None:
    assert StarPattern.parsed(text).taken(name) == taken


@given(NAMES, NAMES, NAMES)
def test_what_is_taken_stands_between_the_rest(before: str, after: str, name: str) -> None:
    taken = StarPattern.parsed(f"{before}*{after}").taken(name)
    assert (taken is not None) == any(
        name == before + name[len(before) : end] + after
        for end in range(len(before) + 1, len(name) + 1)
    )
    if taken is not None:
        assert before + taken + after == name


@given(NAMES, NAMES)
def test_in_capitals_or_not(before: str, name: str) -> None:
    pattern = StarPattern.parsed(f"{before.upper()}*")
    assert pattern.lowered().taken(name) == StarPattern.parsed(f"{before}*").taken(name)


@pytest.mark.parametrize("text", ["", "**", "a*b*"])
def test_a_pattern_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="one at most is taken"):
        StarPattern.parsed(text)


@pytest.mark.parametrize(
    ("pattern", "name", "why"),
    [("a", "{}", "the pattern has no"), ("*", "{}{}", "the principal has two {}")],
)
def test_a_name_that_no_pattern_gives_is_refused(pattern: str, name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        StarPattern.parsed(pattern).check_name(name, "principal")
    StarPattern.parsed("*").check_name("host-{}", "principal")
