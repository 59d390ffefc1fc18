"""How many messages a second come to a shard, from how far it has come."""

import pytest

from moorline.core.group.loads import Loads
from moorline.core.stream import Shard

ONE, OTHER = Shard("n1", 0), Shard("n2", 0)


def test_a_load_comes_to_what_arrives_and_each_look_is_half_of_it() -> None:
    loads = Loads()
    loads.saw({ONE: 500}, 1_000)
    assert loads.per_s == {}, "one look says nothing"
    seen = []
    for look in range(1, 11):
        loads.saw({ONE: 500 + 80 * look}, 1_000 + 2_000 * look)
        seen.append(loads.per_s[ONE])
    assert seen[:3] == [20.0, 30.0, 35.0]
    assert seen[-1] == pytest.approx(40, rel=0.01)


def test_what_is_new_or_was_away_is_not_known() -> None:
    loads = Loads()
    loads.saw({ONE: 0}, 0)
    loads.saw({ONE: 10, OTHER: 1_000}, 1_000)
    assert loads.per_s == {ONE: 5.0}, "what OTHER had before was not seen to come"
    loads.saw({OTHER: 1_010}, 2_000)
    assert loads.per_s == {OTHER: 5.0}
    loads.saw({ONE: 90, OTHER: 1_010}, 3_000)
    assert loads.per_s == {OTHER: 2.5}


def test_a_shard_that_went_back_carries_nothing() -> None:
    loads = Loads()
    loads.saw({ONE: 100}, 0)
    loads.saw({ONE: 40}, 1_000)
    assert loads.per_s == {ONE: 0.0}


def test_a_second_look_in_the_same_moment_changes_nothing() -> None:
    loads = Loads()
    loads.saw({ONE: 0}, 0)
    loads.saw({ONE: 10}, 1_000)
    loads.saw({ONE: 99}, 1_000)
    assert loads.per_s == {ONE: 5.0}
