"""The copy of a client: what it applies, what it asks for next, and how it heals."""

from collections.abc import Sequence

import pytest
from tests.core.records.tables import TABLE

from moorline.core.records.copy import (
    Connected,
    Copy,
    Copying,
    CopyRepairer,
    DeletionCame,
    Drifted,
    Ended,
    LinkLost,
    Reconcile,
    RecordCame,
    Started,
    Store,
    Subscribe,
)
from moorline.core.records.feed_events import How
from moorline.core.records.row_hash import digest_of_rows, row_hashes
from moorline.core.records.table import Key
from moorline.core.sets.answerer import Answerer
from moorline.core.sets.asker import Answered, listed_of
from moorline.core.sets.digest import Digest
from moorline.core.sets.estimate import Estimate
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.prefix import Prefix, RangeDigest
from moorline.core.sets.sketch import Salt, Sketch
from moorline.limits import RECORD_HEALS_MAX
from moorline.net.reconcile import reconcile

SALT = TABLE.salt


def digest(**versions: int) -> Digest:
    return digest_of_rows(SALT, (((key,), seq) for key, seq in versions.items()))


def synced(**versions: int) -> Copy:
    copy = Copy("copy")
    copy.handle(Connected(), 0)
    copy.handle(Started(1, How.FULL, SALT), 0)
    for key, seq in versions.items():
        copy.handle(RecordCame((key,), seq, b"{}"), 0)
    assert copy.handle(Ended(1, "c1", digest(**versions)), 0) == [Store("c1", digest(**versions))]
    copy.check()
    return copy


def test_it_asks_by_what_it_has() -> None:
    copy = Copy("copy")
    assert copy.handle(Connected(), 0) == [Subscribe(1, "", None)]
    copy = synced(a=1)
    copy.handle(LinkLost(), 0)
    assert copy.handle(Connected(), 0) == [Subscribe(2, "c1", digest(a=1))]


def test_t27_a_first_sync_that_was_cut_off_goes_on_by_digest() -> None:
    copy = Copy("copy")
    copy.handle(Connected(), 0)
    copy.handle(Started(1, How.FULL, SALT), 0)
    copy.handle(RecordCame(("a",), 1, b"{}"), 0)
    copy.handle(LinkLost(), 0)
    assert copy.handle(Connected(), 0) == [Subscribe(2, "", digest(a=1))]


def test_a_cache_of_before_is_compared() -> None:
    copy = Copy("copy", SALT, {("a",): (1, b"{}")}, "c0")
    assert copy.handle(Connected(), 0) == [Subscribe(1, "c0", digest(a=1))]


def test_order_of_arrival_rules_and_nothing_counts_twice() -> None:
    """T45, and commit order is not seq order."""
    copy = synced(a=5)
    copy.handle(Started(1, How.LIVE), 0)
    for event in (
        RecordCame(("a",), 3, b"{}"),
        RecordCame(("a",), 3, b"{}"),
        DeletionCame(("z",)),
        RecordCame(("b",), 9, b"{}"),
        DeletionCame(("b",)),
        DeletionCame(("b",)),
    ):
        copy.handle(event, 0)
        copy.check()
    assert copy.handle(Ended(1, "c2", digest(a=3)), 0) == [Store("c2", digest(a=3))]


def test_a_full_sync_takes_away_at_its_end_what_it_did_not_bring() -> None:
    copy = synced(a=1, b=2)
    copy.handle(Started(1, How.FULL, SALT), 0)
    copy.handle(RecordCame(("b",), 3, b"{}"), 0)
    assert set(copy.rows) == {("a",), ("b",)}
    assert copy.handle(Ended(1, "c2", digest(b=3)), 0) == [Store("c2", digest(b=3))]
    assert set(copy.rows) == {("b",)}


def test_t31_t33_messages_of_a_subscription_before_are_dropped() -> None:
    copy = synced(a=1)
    assert copy.change() == [Subscribe(2, "", digest(a=1))]
    for event in (DeletionCame(("a",)), Started(1, How.LIVE), RecordCame(("x",), 1, b"{}")):
        assert copy.handle(event, 0) == []
    assert copy.handle(Ended(1, "old", digest()), 0) == []
    assert set(copy.rows) == {("a",)}
    assert copy.handle(Started(2, How.DIGEST, SALT), 0) == [Reconcile(2)]
    assert copy.handle(Ended(2, "c2", digest(a=1)), 0) == [Store("c2", digest(a=1))]


def test_t32_after_a_completed_sync_and_a_loss_it_subscribes_again() -> None:
    copy = synced()
    copy.handle(LinkLost(), 0)
    assert copy.handle(RecordCame(("x",), 1, b"{}"), 0) == []
    assert not copy.rows
    assert copy.handle(Connected(), 0) == [Subscribe(2, "c1", None)]
    assert copy.state is Copying.ASKING


def test_a_copy_that_is_wrong_finds_out_and_heals() -> None:
    copy = synced(a=1)
    copy.handle(Started(1, How.LIVE), 0)
    effects = copy.handle(Ended(1, "c2", digest(b=1)), 0)
    assert effects == [Drifted(digest(a=1), digest(b=1)), Subscribe(2, "", digest(a=1))]
    for sync in range(2, RECORD_HEALS_MAX + 2):
        copy.handle(Started(sync, How.DIGEST, SALT), 0)
        effects = copy.handle(Ended(sync, "c", digest(b=1)), 0)
    # By digest it does not come to rest: from nothing.
    assert effects[1] == Subscribe(RECORD_HEALS_MAX + 2, "", None)


def test_another_salt_makes_another_digest() -> None:
    copy = synced(a=1)
    copy.handle(Started(1, How.REPLAY, 99), 0)
    assert copy.digest() == digest_of_rows(99, [(("a",), 1)])
    copy.check()


def test_co1_a_digest_that_is_not_of_the_rows() -> None:
    copy = synced(a=1)
    copy.rows["b",] = (1, b"")
    with pytest.raises(AssertionError, match="CO1"):
        copy.check()


def test_co2_a_cursor_of_other_rows() -> None:
    copy = synced(a=1)
    copy.handle(Started(1, How.DIGEST, SALT), 0)
    copy.cursor = "c1"
    with pytest.raises(AssertionError, match="CO2"):
        copy.check()


class NodeSet:
    """What a node has scanned, as the answering side of a reconciliation."""

    def __init__(self, rows: dict[Key, int]) -> None:
        words = row_hashes(SALT, rows.items())
        self._own = IdSet(words[:, 0], words[:, 1])
        self.salt = Salt(b"s" * 16)

    async def digest(self) -> Digest:
        return self._own.digest()

    async def digests(self, prefixes: Sequence[Prefix]) -> list[RangeDigest]:
        return self._own.ranges(prefixes)

    async def estimate(self, digest: Digest) -> Estimate:  # noqa: ARG002
        return self._own.estimate(self.salt)

    async def sketch(self, digest: Digest, cells: int) -> Sketch:  # noqa: ARG002
        return self._own.sketch(self.salt, cells)

    async def ids(self, prefixes: Sequence[Prefix]) -> list[bytes]:
        return [listed_of(self._own.highs(prefix)) for prefix in prefixes]

    def below(self, prefix: Prefix, high: int) -> bool:
        return prefix.first <= high <= prefix.last


@pytest.mark.parametrize("differing", [0, 1, 40, 900])
async def test_the_projects_reconciliation_makes_the_copy_what_the_node_has(differing: int) -> None:
    """The node is the authority: stale versions, rows that are gone and rows that are new, in one."""
    theirs: dict[Key, int] = {(str(n),): n for n in range(1_000)}
    own = dict(theirs)
    for n in range(differing):
        if n % 3 == 0:
            own[str(n),] = n + 5_000
        elif n % 3 == 1:
            del own[str(n),]
        else:
            own[f"x{n}",] = n
    copy = Copy("copy", SALT, {key: (seq, b"") for key, seq in own.items()})
    copy.handle(Connected(), 0)
    copy.handle(Started(1, How.DIGEST, SALT), 0)
    node = NodeSet(theirs)
    highs = {key: int(row_hashes(SALT, [(key, seq)])[0, 0]) for key, seq in theirs.items()}

    async def fetch(prefixes: list[Prefix]) -> None:
        for key, high in highs.items():
            if any(node.below(prefix, high) for prefix in prefixes):
                copy.handle(RecordCame(key, theirs[key], b""), 0)

    answerer = Answerer(node)

    class Exchange:
        async def verify(self, digest: Digest, estimate: bytes, cells_min: int) -> Answered:
            return await answerer.verify(digest, estimate, cells_min)

        async def ranges(self, prefixes: list[Prefix]) -> list[RangeDigest]:
            return await answerer.ranges(prefixes)

        async def lists(self, prefixes: list[Prefix]) -> list[bytes]:
            return await answerer.lists(prefixes)

    right = await node.digest()
    proven = await reconcile("copy", Exchange(), CopyRepairer(copy, fetch), node.salt, right)
    assert proven == right == copy.digest()
    assert {key: seq for key, (seq, _) in copy.rows.items()} == theirs
    copy.check()
