"""Of which home the parts of a list are: only a queue's own home may say that it is gone."""

from typing import NamedTuple

import pytest

from moorline.core.standing import NOT_FOUND, Standing, is_gone, standing

ONE, OTHER, NONE = b"1" * 16, b"2" * 16, b""


class Home(NamedTuple):
    number: bytes
    node_id: bytes


HOMES = [Home(b"aaaa", ONE), Home(b"bbbb", b"3" * 16)]


@pytest.mark.parametrize(
    ("node", "is_empty", "expected"),
    [
        (ONE, False, b"aaaa"),
        (OTHER, False, None),
        (OTHER, True, b""),
        (NONE, False, b""),
        (NONE, True, b""),
    ],
)
def test_of_which_home_a_part_is(node: bytes, is_empty: bool, expected: bytes | None) -> None:
    assert standing(node, HOMES, is_empty=is_empty) == expected


@pytest.mark.parametrize("node", Standing)
def test_not_found_counts_only_at_home(node: Standing) -> None:
    assert is_gone(NOT_FOUND, node) == (node is Standing.HOME)
    assert is_gone("NOT_OWNER", node)
