"""Of which node a list is: only its own may say that a queue is gone."""

import pytest

from moorline.core.standing import NOT_FOUND, Standing, is_gone, standing

ONE, OTHER, NONE = b"1" * 16, b"2" * 16, b""


@pytest.mark.parametrize(
    ("home", "node", "is_empty", "expected"),
    [
        (ONE, ONE, False, Standing.HOME),
        (ONE, OTHER, False, Standing.ELSEWHERE),
        (ONE, OTHER, True, Standing.HOME),
        (NONE, ONE, False, Standing.UNKNOWN),
        (NONE, ONE, True, Standing.HOME),
        (ONE, NONE, False, Standing.UNKNOWN),
        (NONE, NONE, True, Standing.UNKNOWN),
    ],
)
def test_what_a_node_is_to_a_list(
    home: bytes, node: bytes, is_empty: bool, expected: Standing
) -> None:
    assert standing(home, node, is_empty=is_empty) is expected


@pytest.mark.parametrize("node", Standing)
def test_not_found_counts_only_at_home(node: Standing) -> None:
    assert is_gone(NOT_FOUND, node) == (node is Standing.HOME)
    assert is_gone("NOT_OWNER", node)
