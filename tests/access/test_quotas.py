"""Which bound applies to whom, and what whoever meets it is told."""

import random

import pytest

from moorline.access.quotas import Allowance, Quotas, QuotaTable
from moorline.core.access.quota import UNBOUNDED, Bounds, Quota
from moorline.errors import CallFailed, OverQuota

GROUPS = {"alice": ("@everyone", "@small", "@large"), "bob": ("@everyone",)}
TABLE = QuotaTable(
    rows={
        "alice": Bounds(queues=2),
        "@small": Bounds(queues=100, groups=5, messages_per_s=10),
        "@large": Bounds(groups=50, messages_per_s=UNBOUNDED),
    },
    defaults={"@everyone": Bounds(queues=7, groups=1, stages=3), "stranger": Bounds(groups=2)},
    listeners={"tcp://0.0.0.0:7411": Bounds(connections=3, messages_per_s=4)},
)


class Hand:
    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


def quotas(table: QuotaTable = TABLE) -> tuple[Quotas, Hand]:
    now = Hand()
    return Quotas(table, lambda name: GROUPS.get(name, ("@everyone",)), now), now


@pytest.mark.parametrize(
    ("principal", "quota", "bound"),
    [
        ("alice", Quota.QUEUES, 2),  # her own row, though a group is more generous
        ("alice", Quota.GROUPS, 50),  # the most generous of her groups
        ("alice", Quota.MESSAGES_PER_S, UNBOUNDED),
        ("alice", Quota.STAGES, 3),  # nobody said anything: the default
        ("alice", Quota.TOPICS, UNBOUNDED),
        ("bob", Quota.QUEUES, 7),
        ("carol", Quota.GROUPS, 1),
        ("stranger", Quota.GROUPS, 2),  # the settings have a line for it
    ],
)
def test_the_first_that_says_anything_decides(principal: str, quota: Quota, bound: int) -> None:
    found, _ = quotas()
    assert found.held_by(principal).principal.bound(quota) == bound


def test_at_the_bound_it_is_refused_and_below_it_given_again() -> None:
    found, _ = quotas()
    alice = found.held_by("alice")
    found.take(alice, (Quota.QUEUES, 2))
    with pytest.raises(OverQuota, match="the quota queues is 2, and all of it is taken"):
        found.take(alice, (Quota.QUEUES, 1))
    found.take(found.held_by("bob"), (Quota.QUEUES, 1))
    found.give_back(alice, (Quota.QUEUES, 1))
    found.take(alice, (Quota.QUEUES, 1))


def test_a_rate_says_when_to_come_again() -> None:
    found, now = quotas(QuotaTable(defaults={"bob": Bounds(messages_per_s=1_500)}))
    bob = found.held_by("bob")
    assert bob.is_publishing_bounded
    found.take(bob, (Quota.MESSAGES_PER_S, 1_500))
    with pytest.raises(
        OverQuota, match="the quota messages_per_s is 1,500: come again in 1,000 ms"
    ):
        found.take(bob, (Quota.MESSAGES_PER_S, 1_500))
    with pytest.raises(OverQuota, match="ask for less"):
        found.take(bob, (Quota.MESSAGES_PER_S, 1_501))
    now.ms += 1_000
    found.take(bob, (Quota.MESSAGES_PER_S, 1_500))


def test_connections_of_one_principal_share_its_account() -> None:
    found, _ = quotas()
    assert found.held_by("alice").principal is found.held_by("alice").principal


def test_a_listener_has_bounds_for_all_who_come_through_it() -> None:
    found, _ = quotas()
    through = [found.held_by(name, "tcp://0.0.0.0:7411") for name in ("alice", "bob", "carol")]
    for one in through:
        found.take(one, (Quota.CONNECTIONS, 1))
    dave = found.held_by("dave", "tcp://0.0.0.0:7411")
    with pytest.raises(OverQuota, match="connections is 3"):
        found.take(dave, (Quota.CONNECTIONS, 1))
    assert dave.principal.held(Quota.CONNECTIONS) == 0, "what was refused is not held"
    found.take(found.held_by("dave", "tls://0.0.0.0:7412"), (Quota.CONNECTIONS, 1))
    found.give_back(through[0], (Quota.CONNECTIONS, 1))
    found.take(dave, (Quota.CONNECTIONS, 1))
    assert dave.is_publishing_bounded
    assert not found.held_by("dave", "tls://0.0.0.0:7412").is_publishing_bounded


def test_what_a_listener_brought_lately_is_bounded_for_all_who_come_through_it() -> None:
    """A30: queues, groups and bytes, which are their owners' and not the listener's."""
    listener = "tcp://0.0.0.0:7411"
    bounds = Bounds(queues=3, stored_bytes=1_000)
    found, now = quotas(QuotaTable(listeners={listener: bounds}))

    def came(name: str, by: str = listener) -> Allowance:
        return Allowance(found, found.held_by(name, by), name, by)

    for name in ("alice", "bob", "carol"):
        came(name).take_made(Quota.QUEUES)
    with pytest.raises(OverQuota, match="the quota queues is 3: come again in 3,600,000 ms"):
        came("dave").take_made(Quota.QUEUES)
    for free in (came("dave", "tls://0.0.0.0:7412"), came("dave", "")):
        free.take_made(Quota.QUEUES)
        assert not free.is_rate_bounded
    came("dave").take_made(Quota.GROUPS)  # nothing was said of them
    assert came("alice").is_rate_bounded
    came("alice").take_published(1, 900, Quota.STORED_BYTES)
    came("alice").take_published(1, 900)  # into topics
    with pytest.raises(OverQuota, match="stored_bytes is 1,000"):
        came("bob").take_published(1, 101, Quota.STORED_BYTES)
    now.ms += 3_600_000
    with pytest.raises(OverQuota):
        came("dave").take_made(Quota.QUEUES)
    now.ms += 3_600_000
    came("dave").take_made(Quota.QUEUES)
    came("bob").take_published(1, 1_000, Quota.STORED_BYTES)


def test_other_bounds_hold_at_once_for_those_who_are_here() -> None:
    found, _ = quotas()
    carol = found.held_by("carol", "tls://0.0.0.0:7412")
    found.take(carol, (Quota.QUEUES, 7))
    found.load(
        QuotaTable(
            rows={"carol": Bounds(queues=8)},
            listeners={"tls://0.0.0.0:7412": Bounds(messages_per_s=1)},
        )
    )
    found.take(carol, (Quota.QUEUES, 1), (Quota.MESSAGES_PER_S, 1))
    with pytest.raises(OverQuota):
        found.take(carol, (Quota.QUEUES, 1))
    with pytest.raises(OverQuota, match="messages_per_s is 1"):
        found.take(carol, (Quota.MESSAGES_PER_S, 1))


def test_a_connection_hears_at_once_that_its_rates_are_bounded_now() -> None:
    """What every message asks for is looked up when bounds change, and not by each of them."""
    found, _ = quotas(QuotaTable())
    here = Allowance(found, found.held_by("carol", "tls://0.0.0.0:7412"), "carol", "")
    assert not here.is_rate_bounded
    assert not here.is_publishing_bounded
    assert here.topic_bytes_max == UNBOUNDED
    found.load(QuotaTable(rows={"carol": Bounds(messages_per_s=1, topic_bytes=5)}))
    assert here.is_rate_bounded
    assert here.is_publishing_bounded
    assert here.topic_bytes_max == 5
    here.take_published(1, 10)
    with pytest.raises(OverQuota, match="messages_per_s is 1"):
        here.take_published(1, 10)
    found.load(QuotaTable(listeners={"tls://0.0.0.0:7412": Bounds(stored_bytes=9)}))
    assert here.is_rate_bounded, "by its listener"
    found.load(QuotaTable())
    assert not here.is_rate_bounded


@pytest.mark.parametrize("seed", range(20))
def test_a_run_takes_what_its_calls_would_take_one_by_one(seed: int) -> None:
    """By the rates of a principal and of its listener, and by what came lately through that."""
    chance, listener = random.Random(seed), "tcp://0.0.0.0:7411"

    def drawn(*bounds: int) -> int | None:
        return chance.choice([None, *bounds])

    table = QuotaTable(
        rows={"alice": Bounds(messages_per_s=drawn(3, 40), bytes_per_s=drawn(90, 3_000))},
        listeners={
            listener: Bounds(
                messages_per_s=drawn(2, 60),
                bytes_per_s=drawn(200, 4_000),
                topic_bytes=drawn(3_000, 90_000),
            )
        },
    )
    (together, now), (singly, later) = quotas(table), quotas(table)
    one, other = (
        Allowance(found, found.held_by("alice", listener), "alice", listener)
        for found in (together, singly)
    )

    def each(allowance: Allowance, sizes: list[int]) -> list[str]:
        answers = []
        for size in sizes:
            try:
                allowance.take_published(1, size)
            except OverQuota as error:
                answers.append(str(error))
            else:
                answers.append("")
        return answers

    runs = 0
    for _ in range(300):
        now.ms = later.ms = now.ms + chance.choice([0, 0, 1, 30, 900])
        sizes = chance.choices(range(60), k=chance.randint(1, 8))
        wanted = each(other, sizes)
        if one.take_run(len(sizes), sum(sizes), now.ms):
            runs += 1
            assert not any(wanted)
        else:
            assert each(one, sizes) == wanted
        assert together.used("alice") == singly.used("alice")
    assert runs


def test_who_is_gone_is_forgotten() -> None:
    found, _ = quotas()
    for number in range(500):
        one = found.held_by(f"p{number}")
        found.take(one, (Quota.CONNECTIONS, 1))
        if number:
            found.give_back(one, (Quota.CONNECTIONS, 1))
    assert found.forget_idle() == 499
    assert len(found) == 1


def test_the_error_travels_by_its_code() -> None:
    assert isinstance(CallFailed.of("OVER_QUOTA", "the quota queues is 2"), OverQuota)
    assert OverQuota.exit_code == 12
