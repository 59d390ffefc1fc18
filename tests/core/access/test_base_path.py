"""The path below which a proxy serves a node."""

import pytest

from moorline.core.access.base_path import below, check_base_path


@pytest.mark.parametrize("text", ["", "/moor", "/a/b.c/~d-e_f", "/...", "/a..b"])
def test_levels_of_plain_letters_are_taken(text: str) -> None:
    check_base_path(text)


@pytest.mark.parametrize(
    "text",
    [
        "moor",
        "/",
        "/moor/",
        "//",
        "/a//b",
        "/.",
        "/..",
        "/a/../b",
        "/a/./b",
        "/a/..",
        "/a b",
        "/%61",
        "/a?b",
        "/a#b",
        "/a;b",
        "/a\n",
        "/ä",
        "/a\\b",
        "/" + "a" * 200,
        "http://x/y",
    ],
)
def test_what_could_be_written_in_two_ways_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="accepted: empty, or /LEVEL"):
        check_base_path(text)


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/moor/console/", "/console/"),
        ("/console/", "/console/"),
        ("/moor", "/"),
        ("/moor/", "/"),
        ("/moorings", "/moorings"),
        ("/moor.", "/moor."),
        ("/MOOR/console/", "/MOOR/console/"),
        ("/%6door/console/", "/%6door/console/"),
        ("/moor//console/", "//console/"),
        ("/moor/../livez", "/../livez"),
        ("/moor/moor/console/", "/moor/console/"),
        ("", ""),
    ],
)
def test_it_is_taken_away_once_and_only_as_it_is_written(path: str, known: str) -> None:
    assert below("/moor", path) == known
    assert below("", path) == path
