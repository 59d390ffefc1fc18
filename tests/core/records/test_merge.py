"""The merge of a table's topic: against the plain rule of docs/records.md, in every order and cut."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.records.merge import Begun, Merged, Position, Told, merge, read_message
from moorline.core.records.table import Key

KEYS = [("1",), ("2",), ("3",), ("a", "b")]


@st.composite
def histories(draw: st.DrawFn) -> list[Told]:
    """As a publication makes them: numbered, snapshots rising, seqs in any order."""
    found: list[Told] = []
    snapshot = 1
    for sequence in range(draw(st.integers(0, 30))):
        snapshot += draw(st.sampled_from((0, 0, 0, 0, 1)))
        key = draw(st.sampled_from(KEYS))
        is_deletion = draw(st.booleans())
        seq = draw(st.integers(0, 50))
        row = None if is_deletion else b"{}"
        found.append(Told(key, Position(snapshot, sequence), seq, row, is_deletion))
    return found


def replayed(history: list[Told]) -> dict[Key, Told]:
    """The rule of the docs, by which a consumer applies messages in their order."""
    rows: dict[Key, Told] = {}
    snapshot = 0
    for one in history:
        if one.position.snapshot > snapshot:
            snapshot = one.position.snapshot
            rows.clear()
        if one.is_deletion:
            rows.pop(one.key, None)
        else:
            rows[one.key] = one
    return rows


def applied(rows: dict[Key, Told], told: list[Told], snapshot: int) -> dict[Key, Told]:
    held = list(rows.values())
    done = merge([(one.key, one.position) for one in held], told, snapshot)
    found = [*(held[place] for place in done.kept), *done.put]
    assert len({one.key for one in found}) == len(found), "a key is there once"
    return {one.key: one for one in found}


@given(histories(), st.randoms(use_true_random=False))
def test_any_order_and_any_repetition_give_the_newest_state(
    history: list[Told], rng: random.Random
) -> None:
    shuffled = history + rng.choices(history, k=len(history)) if history else []
    rng.shuffle(shuffled)
    snapshot = max((one.position.snapshot for one in history), default=0)
    assert applied({}, shuffled, snapshot) == replayed(history)


@given(histories(), st.data())
def test_in_parts_it_is_the_same_and_a_part_again_changes_nothing(
    history: list[Told], data: st.DataObject
) -> None:
    rows: dict[Key, Told] = {}
    at = snapshot = 0
    while at < len(history):
        upto = data.draw(st.integers(at + 1, len(history)))
        # From an offset of before: what is behind a crash is read again.
        since = data.draw(st.integers(0, at))
        part = history[since:upto]
        snapshot = max(snapshot, *(one.position.snapshot for one in part))
        rows = applied(rows, part, snapshot)
        at = upto
        assert rows == replayed(history[:at])


def test_a_lower_seq_that_came_later_wins() -> None:
    """An insertion drew 5, then waited for the deletion of the row that had been updated to 6."""
    key = ("1",)
    history = [
        Told(key, Position(1, 1), 6, b'{"a":6}', False),
        Told(key, Position(1, 2), 6, None, True),
        Told(key, Position(1, 3), 5, b'{"a":5}', False),
    ]
    assert merge([], reversed(history), 1) == Merged([], [history[2]])
    # The control: by seq, the row of before would have won.
    assert max(history, key=lambda one: one.seq).row == b'{"a":6}'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'{"kind":"record"}',
        b'{"kind":"record","key":[],"seq":1,"snapshot":1,"row":{}}',
        b'{"kind":"record","key":["1"],"seq":-1,"snapshot":1,"row":{}}',
        b'{"kind":"record","key":["1"],"seq":1,"snapshot":1,"row":[1]}',
        b'{"kind":"snapshot","snapshot":1}',
        b'{"kind":"else","key":["1"],"seq":1,"snapshot":1}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_what_others_write_to_the_topic_is_none_of_ours(body: bytes) -> None:
    assert read_message(body, 1) is None


def test_messages_as_they_are_published() -> None:
    record = b'{"kind":"record","key":["5"],"seq":91,"snapshot":17,"row":{"id":5}}'
    assert read_message(record, 3) == Told(("5",), Position(17, 3), 91, b'{"id":5}', False)
    large = b'{"kind":"record","key":["6"],"seq":92,"snapshot":17,"row":null,"bytes":700000}'
    assert read_message(large, 4) == Told(("6",), Position(17, 4), 92, None, False)
    gone = b'{"kind":"deletion","key":["5"],"seq":91,"snapshot":17}'
    assert read_message(gone, 5) == Told(("5",), Position(17, 5), 91, None, True)
    marker = b'{"kind":"snapshot","snapshot":17,"table":"experiments"}'
    assert read_message(marker, 0) == Begun(17, "experiments")
