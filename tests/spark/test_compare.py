"""Two sides of a stream compared by offset: what is missing, extra, altered, or lost on the node."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from moorline.spark.jobs.compare import ALTERED, EXTRA, LOST, MISSING, judge, runs_of
from moorline.spark.jobs.digests import Rows


def rows(pairs: list[tuple[int, int]]) -> Rows:
    """(offset, content), the content as a hash."""
    offsets = np.array([offset for offset, _ in pairs], np.int64)
    hashes = np.array([(content, content) for _, content in pairs], np.uint64).reshape(-1, 2)
    return Rows(offsets, hashes)


def found(
    node: list[tuple[int, int]], archive: list[tuple[int, int]], *lost: tuple[int, int]
) -> dict[str, list[int]]:
    verdict = judge(rows(node), list(lost), rows(archive))
    return {kind: offsets.tolist() for kind, offsets in verdict.offsets.items() if len(offsets)}


def test_equal_sides_have_no_differences() -> None:
    assert found([(1, 7), (2, 8)], [(2, 8), (1, 7)]) == {}
    assert found([], []) == {}


def test_each_kind_is_told_apart() -> None:
    node = [(1, 1), (2, 2), (3, 3)]
    assert found(node, [(1, 1), (3, 3)]) == {MISSING: [2]}
    assert found(node, [*node, (9, 9)]) == {EXTRA: [9]}
    assert found(node, [(1, 1), (2, 5), (3, 3)]) == {ALTERED: [2]}
    assert found(node, []) == {MISSING: [1, 2, 3]}
    assert found([], node) == {EXTRA: [1, 2, 3]}


def test_of_two_rows_of_one_offset_the_right_one_stays() -> None:
    assert found([(1, 1)], [(1, 1), (1, 1)]) == {EXTRA: [1]}
    assert found([(1, 1)], [(1, 5), (1, 1)]) == {EXTRA: [1]}
    assert found([(1, 1)], [(1, 5), (1, 6)]) == {ALTERED: [1]}


def test_what_the_node_has_lost_is_left_as_the_archive_has_it() -> None:
    assert found([(1, 1)], [(1, 1), (2, 2)], (2, 3)) == {}
    assert found([(1, 1)], [(1, 1)], (2, 4)) == {LOST: [2, 3]}


sides = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), max_size=20)


@given(st.dictionaries(st.integers(0, 12), st.integers(0, 2)), sides)
def test_after_a_repair_both_sides_are_equal(
    node: dict[int, int], archive: list[tuple[int, int]]
) -> None:
    true = sorted(node.items())
    verdict = judge(rows(true), [], rows(archive))
    kept = [pair for pair, bad in zip(archive, verdict.is_bad, strict=True) if not bad]
    fetched = [(offset, node[offset]) for offset in verdict.needed.tolist()]
    assert sorted(kept + fetched) == true


def test_offsets_as_ranges() -> None:
    assert runs_of(np.array([1, 2, 3, 7, 9, 10], np.int64)) == [(1, 4), (7, 8), (9, 11)]
    assert runs_of(np.array([], np.int64)) == []
