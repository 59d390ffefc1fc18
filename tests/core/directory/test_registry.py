"""The directory: who is found, who is gone, and each invariant shown to be able to fail."""

from collections.abc import Callable

import pytest

from moorline.core.directory.path import DEFAULT
from moorline.core.directory.registry import Claim, Registration, Registry

TTL_MS = 1_000
SALT = b"s" * 16


def login(registry: Registry, name: str, now_ms: int = 0, address: str = "") -> Registration:
    claim = Claim("p", name.encode().ljust(16, b"."), address or f"tcp://{name}:1")
    return registry.open(registry.begin(), claim, name.encode().ljust(32, b"!"), SALT, now_ms)


def names(found: list[Registration]) -> list[bytes]:
    return [one.claim.instance.rstrip(b".") for one in found]


def purge(registry: Registry) -> list[str]:
    return [path for changed in registry.purging() for path in changed.removed]


def test_entries_of_several_publishers() -> None:
    registry = Registry(ttl_ms=TTL_MS, ready_at_ms=0)
    one, two = login(registry, "one"), login(registry, "two")
    assert registry.publish(one, [("/a", 0), ("/b", 0)], 0).added == ["/a", "/b"]
    assert registry.publish(two, [("/a", 2)], 0).added == []
    found, flags = registry.find("/a")
    assert (names(found), flags) == ([b"one", b"two"], 2)
    assert registry.unpublish(one, ["/a", "/b", "/c"], 0).removed == ["/b"]
    assert names(registry.find("/a")[0]) == [b"two"]
    registry.check(0, 0)


def test_who_is_silent_is_gone_at_the_next_tick_and_found_by_nobody_while_it_is_purged() -> None:
    registry = Registry(ttl_ms=TTL_MS, ready_at_ms=0)
    one, two = login(registry, "one"), login(registry, "two")
    registry.publish(one, [(f"/{number}", 0) for number in range(300)], 0)
    registry.publish(two, [("/0", 0)], 0)
    assert registry.tick(TTL_MS) == []
    registry.heard(two, TTL_MS)
    assert registry.tick(TTL_MS + 1) == [one]
    assert registry.find("/1") == ([], 0)
    assert not registry.is_published("/1")
    assert names(registry.find("/0")[0]) == [b"two"]
    assert registry.is_published("/0")
    # It may come back while its old entries leave.
    again = login(registry, "one", TTL_MS + 1)
    assert (again is one, again.digest().count) == (False, 0)
    registry.publish(again, [("/1", 0)], TTL_MS + 1)
    registry.check(TTL_MS + 1, TTL_MS + 1)
    assert sorted(purge(registry)) == sorted(f"/{number}" for number in range(2, 300))
    assert sorted(registry.tree) == ["/0", "/1"]
    registry.check(TTL_MS + 1, TTL_MS + 1)


def test_what_is_taken_away_is_no_sign_of_life() -> None:
    registry = Registry(ttl_ms=TTL_MS, ready_at_ms=0)
    one, two = login(registry, "one"), login(registry, "two")
    registry.publish(one, [("/a", 0), ("/b", 0)], 0)
    registry.publish(two, [("/a", 0)], 0)
    assert registry.take_away(one, ["/a", "/b", "/c"]).removed == ["/b"]
    assert names(registry.find("/a")[0]) == [b"two"]
    assert registry.tick(TTL_MS + 1) == [one, two]
    registry.check(TTL_MS + 1, TTL_MS + 1)


def test_a_default_that_is_gone_leaves_the_one_above() -> None:
    registry = Registry(ttl_ms=TTL_MS, ready_at_ms=0)
    far, near = login(registry, "far"), login(registry, "near")
    registry.publish(far, [("/a", DEFAULT)], 0)
    registry.publish(near, [("/a/b", DEFAULT), ("/a/b/c", 0)], 0)
    assert names(registry.find("/a/b/x")[0]) == [b"near"]
    assert names(registry.find("/a/b/c")[0]) == [b"near"]
    registry.close(near)
    assert names(registry.find("/a/b/x")[0]) == [b"far"]
    assert names(registry.find("/a/b/c")[0]) == [b"far"]


def test_the_last_who_proved_an_address_has_it() -> None:
    registry = Registry(ttl_ms=TTL_MS, ready_at_ms=0)
    one = login(registry, "one", address="tcp://x:1")
    registry.publish(one, [("/a", 0)], 0)
    two = login(registry, "two", address="tcp://x:1")
    assert not one.is_found
    assert registry.find("/a") == ([], 0)
    # The same one again keeps its entries, under another secret.
    registry.publish(two, [("/b", 0)], 0)
    again = registry.open(
        registry.begin(), two.claim._replace(priority=2), b"other" * 6 + b"..", SALT, 5
    )
    assert again is two
    assert (two.secret[:5], two.claim.priority, two.digest().count) == (b"other", 2, 1)
    registry.check(5, 5)


def test_a_resolver_that_stood_still_blames_nobody() -> None:
    registry = Registry(ttl_ms=TTL_MS, ready_at_ms=0)
    login(registry, "one")
    registry.slept(5_000, 5_000)
    assert registry.tick(5_500) == []
    assert len(registry.tick(6_001)) == 1


def test_who_was_heard_of_behind_the_standstill_is_not_alive_in_the_future() -> None:
    """Found by the simulation of the whole: what had waited in a socket is heard before the clock is read."""
    registry = Registry(ttl_ms=TTL_MS, ready_at_ms=0)
    one, two = login(registry, "one"), login(registry, "two")
    registry.heard(two, 600_000)
    registry.slept(599_000, 600_000)
    assert (one.heard_ms, two.heard_ms) == (599_000, 600_000)
    assert len(registry.tick(600_000 + TTL_MS + 1)) == 2


def test_what_the_cluster_publishes_comes_and_goes_as_a_whole() -> None:
    registry = Registry(ttl_ms=TTL_MS, ready_at_ms=0)
    assert registry.put_cluster({"/nodes/a", "/nodes/b"}).added
    changed = registry.put_cluster({"/nodes/b", "/nodes/c"})
    assert changed == (["/nodes/c"], ["/nodes/a"])
    assert registry.is_published("/nodes/b")
    registry.check(0, 0)


def test_before_it_is_ready_it_says_so() -> None:
    registry = Registry(ttl_ms=TTL_MS, ready_at_ms=10)
    assert [registry.is_ready(now_ms) for now_ms in (9, 10)] == [False, True]


def _break_tree(registry: Registry, one: Registration) -> None:
    registry.tree.remove("/a", one.number)


def _break_digest(registry: Registry, one: Registration) -> None:  # noqa: ARG001
    one.entries._mixed ^= 1


def _break_silence(registry: Registry, one: Registration) -> None:  # noqa: ARG001
    one.heard_ms = -TTL_MS - 1


def _break_state(registry: Registry, one: Registration) -> None:
    registry._end(one)
    registry._registrations[one.number] = registry._by_key[one.claim.key] = one
    registry._leaving.clear()


def _break_address(registry: Registry, one: Registration) -> None:
    other = login(registry, "other")
    other.claim = other.claim._replace(address=one.claim.address)
    registry._by_key[other.claim.key] = other


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("D1", _break_tree),
        ("D2", _break_digest),
        ("D3", _break_silence),
        ("D4", _break_state),
        ("D5", _break_address),
    ],
)
def test_each_invariant_can_fail(name: str, harm: Callable[[Registry, Registration], None]) -> None:
    registry = Registry(ttl_ms=TTL_MS, ready_at_ms=0)
    one = login(registry, "one")
    registry.publish(one, [("/a", 0)], 0)
    registry.check(0, 0)
    harm(registry, one)
    with pytest.raises(AssertionError, match=name):
        registry.check(0, 0)
