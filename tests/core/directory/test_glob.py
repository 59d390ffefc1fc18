"""Globs: what each sign takes, what is refused, and that no glob takes long."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.directory.glob import MATCHES, NOT_YET, Glob, is_glob
from moorline.core.directory.path import is_at_or_below
from moorline.errors import BadPath
from moorline.limits import GLOB_ALTERNATIVES_MAX


@pytest.mark.parametrize(
    ("glob", "taken", "not_taken"),
    [
        ("/a/b", ["/a/b"], ["/a", "/a/b/c", "/a/bc"]),
        ("/a/*", ["/a/b", "/a/.x"], ["/a", "/a/b/c", "/ab"]),
        ("/a/**", ["/a/b", "/a/b/c"], ["/a", "/ab", "/b"]),
        ("/**", ["/a", "/a/b"], []),
        ("/**/c", ["/c", "/a/c", "/a/b/c"], ["/c/a", "/ac"]),
        ("/a/**/c/*", ["/a/c/x", "/a/b/c/x", "/a/c/c/x"], ["/a/c", "/a/b/x"]),
        ("/a/**/b/**", ["/a/b/c", "/a/x/b/c/d"], ["/a/b", "/a/x/b"]),
        ("/a?c", ["/abc", "/a.c"], ["/ac", "/abbc"]),
        ("/[ab]x", ["/ax", "/bx"], ["/cx", "/x"]),
        ("/[!ab]x", ["/cx"], ["/ax", "/x"]),
        ("/[a-c]x", ["/bx"], ["/dx"]),
        ("/[*]", ["/*"], ["/a"]),
        ("/[!]", ["/!"], ["/a"]),
        ("/{a,b}/c", ["/a/c", "/b/c"], ["/c/c", "/a,b/c"]),
        ("/x{a*,{b,c}?}", ["/xa", "/xabc", "/xb1", "/xc1"], ["/x", "/xb"]),
        ("/*a*b*", ["/ab", "/xaxbx", "/aab"], ["/ba", "/a"]),
        ("/*ab", ["/ab", "/aab", "/abab"], ["/aba"]),
        ("/a.b", ["/a.b"], ["/axb"]),
        ("/{,a}b", ["/b", "/ab"], ["/aab"]),
    ],
)
def test_what_a_glob_takes(glob: str, taken: list[str], not_taken: list[str]) -> None:
    compiled = Glob.parsed(glob)
    assert [path for path in taken if not compiled.matches(path)] == []
    assert [path for path in not_taken if compiled.matches(path)] == []
    assert all(is_at_or_below(path, compiled.root) for path in taken)


@pytest.mark.parametrize(
    "text",
    ["", "a", "/", "//a", "/a/", "/a**", "/[", "/[]", "/a]", "/{a", "/a}", "/[b-a]", "/{a/b}"],
)
def test_what_is_no_glob_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadPath, match="is no glob"):
        Glob.parsed(text)


def test_braces_that_stand_for_too_much_are_refused() -> None:
    Glob.parsed("/" + "{a,b}" * 5)
    with pytest.raises(BadPath, match=str(GLOB_ALTERNATIVES_MAX)):
        Glob.parsed("/" + "{a,b}" * 200)


def test_no_glob_takes_long() -> None:
    """An expression that goes back behind its stars would not be done with this in a lifetime."""
    glob = Glob.parsed("/" + "*a" * 400 + "b")
    assert not glob.matches("/" + "a" * 1_000)


def test_a_plain_path_is_no_glob() -> None:
    assert not is_glob("/a/b.c-d")
    assert all(is_glob(text) for text in ("/*", "/a?", "/[a]", "/{a}"))


LEVELS = st.lists(st.text("ab-", min_size=1, max_size=3), min_size=1, max_size=4)
WANTED = st.lists(
    st.one_of(
        st.just("**"), st.text("ab-?*", min_size=1, max_size=3).filter(lambda one: "**" not in one)
    ),
    min_size=1,
    max_size=4,
)


@given(WANTED, LEVELS)
def test_it_is_what_a_plain_expression_takes(wanted: list[str], levels: list[str]) -> None:
    path, text = "/" + "/".join(levels), "/" + "/".join(wanted)
    expression = ""
    for place, level in enumerate(wanted):
        if level == "**":
            expression += "(/[^/]+)+" if place == len(wanted) - 1 else "(/[^/]+)*"
        else:
            expression += "/" + re.escape(level).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    is_taken = re.fullmatch(expression, path) is not None
    glob = Glob.parsed(text)
    verdict = glob.judge(path)
    assert (verdict == MATCHES) == is_taken
    if verdict not in (MATCHES, NOT_YET):
        # Nothing below those levels is taken either.
        above = "/" + "/".join(levels[:verdict])
        assert re.fullmatch(expression, above + "/a") is None or len(levels) < verdict
        assert not glob.matches(above + "/b")
