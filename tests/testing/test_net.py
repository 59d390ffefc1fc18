"""The net that loses, repeats, delays and reorders."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from moorline.testing import Delivery, UnreliableNet

SEEDS = st.integers(0, 2**32)


def take_all(net: UnreliableNet) -> list[Delivery]:
    taken = []
    while (due_ms := net.next_due_ms()) is not None:
        delivery = net.take(due_ms)
        assert delivery is not None
        taken.append(delivery)
    return taken


def send_many(net: UnreliableNet, count: int) -> None:
    for number in range(count):
        net.send("a", "b", number, now_ms=number // 3)
        net.send("c", "b", number, now_ms=number // 3)


@given(SEEDS, st.integers(0, 20))
def test_without_faults_every_message_comes_once_and_in_order(seed: int, delay_ms: int) -> None:
    net = UnreliableNet(random.Random(seed), delay_ms=(delay_ms, delay_ms))
    send_many(net, 30)
    taken = take_all(net)
    for source in ("a", "c"):
        assert [d.message for d in taken if d.source == source] == list(range(30))
    assert all(d.due_ms == d.message // 3 + delay_ms and d.target == "b" for d in taken)


@given(SEEDS)
def test_an_ordered_net_delays_but_keeps_the_order(seed: int) -> None:
    net = UnreliableNet(random.Random(seed), delay_ms=(0, 50), ordered=True)
    send_many(net, 30)
    assert [d.message for d in take_all(net) if d.source == "a"] == list(range(30))


def test_random_delay_reorders() -> None:
    net = UnreliableNet(random.Random(1), delay_ms=(0, 50))
    send_many(net, 30)
    messages = [d.message for d in take_all(net) if d.source == "a"]
    assert messages != sorted(messages)
    assert sorted(messages) == list(range(30))


def test_loses_and_repeats_about_as_often_as_told() -> None:
    net = UnreliableNet(random.Random(1), loss=0.25, repeat=0.5)
    send_many(net, 1_000)
    copies = Counter((d.source, d.message) for d in take_all(net))
    assert 400 < 2_000 - len(copies) < 600
    assert net.lost_count == 2_000 - len(copies)
    assert 0.4 < sum(count == 2 for count in copies.values()) / len(copies) < 0.6


def test_nothing_arrives_early() -> None:
    net = UnreliableNet(random.Random(1), delay_ms=(10, 10))
    assert net.send("a", "b", "x", now_ms=0) == 1
    assert net.next_due_ms() == 10
    assert net.take(9) is None
    assert net.take(10) == Delivery(10, 1, "a", "b", "x")
    assert net.next_due_ms() is None


def test_a_cut_link_loses_both_ways_until_healed() -> None:
    net = UnreliableNet(random.Random(1))
    net.send("a", "b", "on its way", now_ms=0)
    net.send_sure("a", "b", "the end", now_ms=0)
    net.cut("b", "a")
    assert net.is_cut("a", "b")
    assert net.send("a", "b", "x", now_ms=0) == 0
    assert net.send("b", "a", "x", now_ms=0) == 0
    assert net.send("a", "c", "other", now_ms=0) == 1
    assert [d.message for d in take_all(net)] == ["the end", "other"]
    net.heal("a", "b")
    assert net.send("a", "b", "x", now_ms=0) == 1


def test_a_cut_does_not_change_what_happens_on_other_links() -> None:
    def run(*, cut: bool) -> list[Delivery]:
        net = UnreliableNet(random.Random(3), loss=0.3, repeat=0.3, delay_ms=(0, 9))
        if cut:
            net.cut("a", "b")
        send_many(net, 50)
        return [d for d in take_all(net) if d.source == "c"]

    def plain(deliveries: list[Delivery]) -> list[tuple[int, int]]:
        return [(d.due_ms, d.message) for d in deliveries]

    assert plain(run(cut=True)) == plain(run(cut=False))


def test_is_bounded() -> None:
    net = UnreliableNet(random.Random(1), in_flight_max=10)
    send_many(net, 100)
    assert net.in_flight() == 10
    assert net.lost_count == 190


def test_calm_ends_the_faults() -> None:
    net = UnreliableNet(random.Random(1), loss=1.0)
    net.cut("a", "b")
    net.calm()
    assert net.send("a", "b", "x", now_ms=0) == 1
