"""Lines of quotas in the settings."""

import pytest

from moorline.config.access import Access
from moorline.config.quotas import DEFAULTS, bounds_by_subject, parsed
from moorline.core.access.quota import Bounds, Quota


def test_a_line_is_a_subject_a_quota_and_a_bound() -> None:
    assert parsed("alice queues 1_000") == ("alice", Quota.QUEUES, 1_000)
    assert parsed("tls://0.0.0.0:7411 connections 5").is_listeners
    for quota in ("topics", "queues", "groups", "stored_bytes", "topic_bytes"):
        assert parsed(f"tls://0.0.0.0:7411 {quota} 5").is_listeners
    assert not parsed("@sales topics 0").is_listeners


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("alice queues", "SUBJECT QUOTA BOUND"),
        ("alice cars 3", "there is no quota cars"),
        ("alice queues many", "many is no bound"),
        ("alice queues -1", "-1 is no bound"),
        ("tls://0.0.0.0:7411 paths 5", "a listener has no paths of its own"),
    ],
)
def test_what_is_wrong_is_told_by_name(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parsed(line)
    (problem,) = Access(quotas=[line]).problems()
    assert why in problem.accepted


def test_of_several_lines_about_the_same_the_last_counts() -> None:
    lines = [parsed(text) for text in ("a queues 1", "a topics 2", "a queues 3", "b stages 4")]
    assert bounds_by_subject(lines) == {"a": Bounds(queues=3, topics=2), "b": Bounds(stages=4)}


def test_without_a_word_nobody_who_proved_something_can_take_all_of_a_node() -> None:
    bounds = bounds_by_subject(map(parsed, DEFAULTS))
    assert bounds.keys() == {"@authenticated"}
    stated = {quota for quota in Quota if bounds["@authenticated"].of(quota) is not None}
    assert set(Quota) - stated == {Quota.MESSAGES_PER_S, Quota.BYTES_PER_S}
