"""Paths of values: what can be one, and what is below what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.directory.path import (
    DEFAULT,
    WRITABLE,
    check_path,
    entry_id,
    entry_of,
    is_at_or_below,
    is_path,
    is_reserved,
    parent_of,
)
from moorline.errors import BadPath
from moorline.limits import PATH_BYTES_MAX, PATH_LEVELS_MAX

MISLEADING = "".join(map(chr, (*range(0x2028, 0x202F), *range(0x2066, 0x206A))))
LEVEL = st.text(
    st.characters(exclude_characters="/" + MISLEADING, exclude_categories=("Cc", "Cs")),
    min_size=1,
    max_size=8,
)
PATH = st.lists(LEVEL, min_size=1, max_size=6).map(lambda levels: "/" + "/".join(levels))


@given(PATH)
def test_levels_with_a_slash_before_each_are_a_path(path: str) -> None:
    check_path(path)
    assert is_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "oslo",
        "/oslo/",
        "//oslo",
        "/a//b",
        "/a\0b",
        "/a\nb",
        "/a\x7f",
        "/a\x85b",
        "/a\x9b31m",
        *(f"/a{one}b" for one in MISLEADING),
        "/\ud800",
        "/" + "a" * PATH_BYTES_MAX,
        "/" + "å" * (PATH_BYTES_MAX // 2),
        "/a" * (PATH_LEVELS_MAX + 1),
    ],
)
def test_what_is_no_path_is_refused(path: str) -> None:
    assert not is_path(path)
    with pytest.raises(BadPath):
        check_path(path)


def test_the_longest_paths_are_taken() -> None:
    check_path("/" + "a" * (PATH_BYTES_MAX - 1))
    check_path("/a" * PATH_LEVELS_MAX)


@given(PATH, LEVEL)
def test_a_child_is_below_its_parent_and_a_longer_name_is_not(path: str, level: str) -> None:
    child = f"{path}/{level}"
    assert parent_of(child) == path
    assert is_at_or_below(child, path)
    assert is_at_or_below(path, path)
    assert is_at_or_below(path, "/")
    assert not is_at_or_below(path, child)
    assert not is_at_or_below(f"{path}-{level}", path)


def test_the_parent_of_a_first_level_is_the_root() -> None:
    assert parent_of("/a") == "/"


def test_what_is_of_nodes_is_told_by_its_first_level() -> None:
    assert is_reserved("/nodes/n1")
    assert is_reserved("/topics")
    assert not is_reserved("/nodes2/n1")
    assert not is_reserved("/values/nodes")


@given(PATH, st.integers(0, DEFAULT | WRITABLE))
def test_an_entry_is_found_again_in_its_bytes(path: str, flags: int) -> None:
    assert entry_of(entry_id(path, flags)) == (path, flags)
