"""Reconciliation against plain sets: whatever the difference, both sides end equal, and it is proven."""

import random
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawing import examples

from moorline.core.effects import Effect, Event
from moorline.core.machine import diagram
from moorline.core.sets.answerer import sketch_or_list
from moorline.core.sets.asker import (
    LISTED_BYTES,
    RANGE_BYTES,
    TRIES_MAX,
    Agreed,
    Answered,
    Asker,
    Asking,
    AskLists,
    AskRanges,
    AskVerify,
    Begin,
    GiveUp,
    ListsAnswered,
    Mode,
    RangesAnswered,
    Repair,
    Repaired,
    sketch_bytes,
)
from moorline.core.sets.digest import Digest
from moorline.core.sets.estimate import ESTIMATE_BYTES, Estimate
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.prefix import Prefix, RangeDigest
from moorline.core.sets.sketch import CELLS_FULL, DIVISORS, Salt, Sketch, Words, cells_for

SALT = Salt(bytes(range(16)))


def hashed(ids: list[bytes]) -> IdSet:
    digests = [xxhash.xxh3_128_intdigest(one) for one in ids]
    high = np.array([digest >> 64 for digest in digests], np.uint64)
    low = np.array([digest & (1 << 64) - 1 for digest in digests], np.uint64)
    return IdSet(high, low)


class Side:
    """The answering side: a plain set of ids."""

    def __init__(self, ids: set[bytes], *, estimate: bool = True, sketches: bool = True) -> None:
        self.ids = ids
        self.estimate = estimate
        self.sketches = sketches
        self.bytes = 0
        self.rounds = 0

    def answer(self, effect: Effect, asker: IdSet, names: list[bytes]) -> Event:
        own = hashed(sorted(self.ids))
        self.rounds += 1
        match effect:
            case AskVerify(digest, cells_min):
                return self._verify(own, digest, cells_min, asker)
            case AskRanges(prefixes):
                self.bytes += len(prefixes) * (9 + RANGE_BYTES)
                return RangesAnswered(own.ranges(prefixes))
            case AskLists(prefixes):
                highs = [own.highs(prefix) for prefix in prefixes]
                self.bytes += sum(9 + LISTED_BYTES * len(part) for part in highs)
                return ListsAnswered(highs)
            case Repair(missing, extra):
                return self._repair(own, missing, extra, asker, names)
            case _:
                raise AssertionError(f"nobody asks {effect}")

    def _verify(self, own: IdSet, digest: Digest, cells_min: int, asker: IdSet) -> Event:
        self.bytes += 48
        differences = None
        if self.estimate:
            self.bytes += ESTIMATE_BYTES
            differences = own.estimate(SALT).differences(asker.estimate(SALT))
        mode, cells = sketch_or_list(own.digest(), digest, differences, cells_min)
        if mode is Mode.SKETCH and not self.sketches:
            return Answered(own.digest(), Mode.EQUAL)
        payload = b""
        if mode is Mode.SKETCH:
            payload = bytes(own.sketch(SALT, cells))
        elif mode is Mode.LIST:
            payload = own.high.astype(">u8").tobytes()
        self.bytes += len(payload)
        return Answered(own.digest(), mode, cells, payload)

    def _repair(
        self, own: IdSet, missing: Words, extra: list[Prefix], asker: IdSet, names: list[bytes]
    ) -> Event:
        lacking = asker.order[np.isin(asker.high, missing)]
        self.ids |= {names[place] for place in lacking.tolist()}
        ordered = sorted(self.ids)
        now = hashed(ordered)
        for prefix in extra:
            part = now.slice_of(prefix)
            places = range(part.start, part.stop)
            if prefix.bits == 0 or len(places) == 1:
                self.ids -= {ordered[now.order[place]] for place in places}
        del own
        return Repaired(hashed(sorted(self.ids)).digest())


def reconcile(client: set[bytes], side: Side) -> list[Effect]:
    names = sorted(client)
    own = hashed(names)
    asker = Asker("client", own, SALT)
    (effect,) = asker.handle(Begin(), 0)
    asker.check()
    story = [effect]
    while not isinstance(effect, Agreed | GiveUp):
        (effect,) = asker.handle(side.answer(effect, own, names), 0)
        asker.check()
        story.append(effect)
    return story


def make(count: int, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(24) for _ in range(count)]


differences = st.tuples(
    st.integers(0, 60), st.integers(0, 60), st.integers(0, 400), st.integers(0, 9999)
)


@settings(max_examples=examples(150), deadline=None)
@given(differences, st.booleans(), st.booleans())
def test_d26_any_difference_is_found_and_repaired(
    shape: tuple[int, int, int, int], estimate: bool, sketches: bool
) -> None:
    """D26: 0, 1, 2, k random differences, an empty server, an empty client, swapped ids."""
    only_client, only_server, common, seed = shape
    ids = make(only_client + only_server + common, seed)
    client = set(ids[: only_client + common])
    server = set(ids[only_client:])
    side = Side(server, estimate=estimate, sketches=sketches)
    story = reconcile(client, side)
    assert isinstance(story[-1], Agreed)
    assert side.ids == client


@pytest.mark.parametrize("which", ["first", "last", "both ends", "adjacent"])
@pytest.mark.parametrize("sketches", [True, False])
def test_d26_differences_at_the_edges(which: str, sketches: bool) -> None:
    """D26: at the smallest and the largest id, adjacent ones; by hash order, which is what counts here."""
    ids = sorted(make(3_000, 5), key=xxhash.xxh3_128_intdigest)
    gone = {
        "first": ids[:1],
        "last": ids[-1:],
        "both ends": [ids[0], ids[-1]],
        "adjacent": ids[700:705],
    }
    side = Side(set(ids) - set(gone[which]), sketches=sketches)
    assert isinstance(reconcile(set(ids), side)[-1], Agreed)
    assert side.ids == set(ids)
    side = Side(set(ids), sketches=sketches)
    assert isinstance(reconcile(set(ids) - set(gone[which]), side)[-1], Agreed)


def test_equal_sets_cost_one_exchange_and_48_bytes() -> None:
    ids = set(make(1_000, 1))
    side = Side(set(ids), estimate=False)
    assert len(reconcile(ids, side)) == 2
    assert side.bytes == 48


def test_everything_lost_costs_48_bytes_to_find_out() -> None:
    """D19: the server has nothing left."""
    ids = set(make(1_000, 2))
    side = Side(set(), estimate=False)
    story = reconcile(ids, side)
    assert side.ids == ids
    assert side.bytes == 2 * 48 - 48 or side.bytes == 48
    assert isinstance(story[1], Repair)


@pytest.mark.parametrize("mix", [(10, 0), (0, 10), (5, 5)])
def test_ten_differences_cost_less_than_a_kilobyte(mix: tuple[int, int]) -> None:
    ids = make(20_000, 3)
    side = Side(set(ids[mix[0] :]))
    story = reconcile(set(ids[: len(ids) - mix[1]]), side)
    assert [type(effect) for effect in story] == [AskVerify, Repair, Agreed]
    assert side.bytes + 8 * mix[1] < 1_024


@pytest.mark.parametrize("sketches", [True, False])
def test_a_set_that_never_settles_is_given_up(sketches: bool) -> None:
    """Without sketches by one walk after the other: none of them has anything left of the one before (Z3)."""
    ids = make(500, 4)

    class Restless(Side):
        def answer(self, effect: Effect, asker: IdSet, names: list[bytes]) -> Event:
            answer = super().answer(effect, asker, names)
            self.ids.add(random.Random(self.rounds).randbytes(24))
            if isinstance(answer, Repaired):
                return Repaired(hashed(sorted(self.ids)).digest())
            return answer

    side = Restless(set(ids[5:]), sketches=sketches)
    assert isinstance(reconcile(set(ids), side)[-1], GiveUp)


@pytest.mark.parametrize(
    ("ours", "theirs"), [(5, 10), (499, 1_000), (500, 1_000), (501, 1_000), (0, 0), (1, 1)]
)
def test_d27_the_full_list_is_chosen_by_cost(ours: int, theirs: int) -> None:
    """D27: around |c-s|/max = 0.5 the list is sent wherever the seed's rule would ask for it."""
    own, other = Digest(ours, b"a" * 16), Digest(theirs, b"b" * 16)
    mode, cells = sketch_or_list(own, other, abs(ours - theirs), 0)
    by_seed = max(ours, theirs) > 0 and abs(ours - theirs) / max(ours, theirs) > 0.5
    if ours == 0:
        assert mode is Mode.EMPTY
    elif by_seed:
        assert mode is Mode.LIST
    if mode is Mode.SKETCH:
        assert sketch_bytes(cells) < ours * LISTED_BYTES


# --- the parts ------------------------------------------------------------------------------------


def words(count: int, seed: int) -> Words:
    return np.random.default_rng(seed).integers(0, 1 << 64, count, dtype=np.uint64)


def test_every_fold_is_the_sketch_of_that_size() -> None:
    high = words(2_000, 1)
    full = Sketch(SALT, CELLS_FULL)
    full.toggle(high)
    # Every partition holds every value once.
    sums = np.bitwise_xor.reduce(full.words, axis=1)
    assert (sums == sums[0]).all()
    for cells in DIVISORS[-20:]:
        direct = Sketch(SALT, cells)
        direct.toggle(high)
        assert bytes(full.folded(cells)) == bytes(direct)
    full.toggle(high)
    assert not full.words.any()


def test_a_sketch_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="has not 23 bytes"):
        Sketch.parse(SALT, 1, bytes(23))
    with pytest.raises(ValueError, match="448 bytes"):
        Estimate.parse(SALT, b"")


def test_another_salt_is_another_sketch() -> None:
    one, other = Sketch(SALT, 60), Sketch(Salt(bytes(16)), 60)
    one.toggle(words(100, 1))
    other.toggle(words(100, 1))
    assert bytes(one) != bytes(other)


@pytest.mark.parametrize("count", [1, 3, 10, 30, 100, 300, 1_000, 3_000])
def test_the_size_that_is_chosen_decodes_nearly_always(count: int) -> None:
    decoded = 0
    for seed in range(60):
        sketch = Sketch(SALT, cells_for(count))
        sketch.toggle(words(count, seed))
        found = sketch.difference(Sketch(SALT, sketch.cells))
        if found is not None:
            decoded += 1
            assert set(found.tolist()) == set((words(count, seed) >> np.uint64(16)).tolist())
    assert decoded >= 56


@pytest.mark.parametrize("count", [0, 1, 10, 200, 5_000, 200_000])
def test_the_estimate_is_near(count: int) -> None:
    estimate, nothing = Estimate(SALT), Estimate(SALT)
    estimate.toggle(words(count, 9))
    found = Estimate.parse(SALT, bytes(estimate)).differences(nothing)
    assert abs(found - count) <= max(2, 0.4 * count)


def test_the_document_draws_the_moves_of_the_map() -> None:
    document = (Path(__file__).parents[3] / "docs/design/reconciliation.md").read_text()
    for move in diagram(Asker).splitlines()[1:]:
        assert move.strip() in document


@pytest.mark.slow
def test_ranges_that_all_hold_very_many_do_not_fill_our_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each answer says that every range differs and is full: without a bound they would be 16 times as many
    after each."""
    bound = 1_000
    monkeypatch.setattr("moorline.core.sets.asker.WALKED_RANGES_MAX", bound)
    asker = Asker("client", hashed(make(100, 6)), SALT)
    asker.handle(Begin(), 0)
    (effect,) = asker.handle(Answered(Digest(1 << 40, b"x" * 16), Mode.EQUAL), 0)
    widest = 0
    while isinstance(effect, AskRanges):
        widest = max(widest, len(effect.prefixes))
        (effect,) = asker.handle(
            RangesAnswered([RangeDigest(1 << 40, 1)] * len(effect.prefixes)), 0
        )
        asker.check()
    assert bound < widest < bound + 16
    assert isinstance(effect, AskLists)
    (effect,) = asker.handle(ListsAnswered([np.empty(0, np.uint64)] * len(effect.prefixes)), 0)
    assert isinstance(effect, Repair)
    assert len(effect.missing) == 100, "what is listed in place of divided is compared all the same"


@pytest.mark.parametrize("broken", ["Z1", "Z2", "Z3", "Z4"])
@pytest.mark.parametrize("state", [Asking.WALKING, Asking.LISTING])
def test_a_broken_state_is_found_and_tells_the_story(broken: str, state: Asking) -> None:
    asker = Asker("client", hashed(make(100, 6)), SALT)
    asker.handle(Begin(), 0)
    asker.handle(Answered(Digest(100, b"x" * 16), Mode.EQUAL), 0)
    if state is Asking.LISTING:
        asker.handle(RangesAnswered([RangeDigest(1, 1)] * len(asker._asked)), 0)
    assert asker.state is state
    asker.check()
    match broken:
        case "Z1":
            asker._digest = Digest.empty()
        case "Z2":
            asker._tries = TRIES_MAX + 1
        case "Z3":
            asker._leaves += [Prefix(8, 7), Prefix(12, 7 << 4)]
        case _:
            asker._asked, asker._leaves = [], []
    with pytest.raises(AssertionError, match=broken) as caught:
        asker.check()
    assert "story of client" in str(caught.value)


def test_a_common_end_of_ids_does_no_harm() -> None:
    """Ids of one home end alike. Buckets and short ids are of the hash, so they are spread as any others."""
    chance = random.Random(41)
    ids = [chance.randbytes(20) + b"home" for _ in range(20_000)]
    mine, theirs = hashed(ids[:-300]), hashed(ids[300:])
    buckets = np.bincount((mine.high >> np.uint64(56)).astype(np.int64), minlength=256)
    assert 40 < buckets.min() <= buckets.max() < 130
    assert len({int(high) >> 16 for high in mine.high}) == len(ids) - 300
    cells = cells_for(600)
    found = mine.sketch(SALT, cells).difference(theirs.sketch(SALT, cells))
    assert found is not None
    assert len(found) == 600
