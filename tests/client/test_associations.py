"""The client's list in an SQLite file: its digest is that of the list, whatever happens between."""

import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.core.sets.test_hashing import sets, vectors

from moorline.client import associations
from moorline.client.associations import Associations
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.errors import FolderUnusable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "service.sqlite"


@pytest.fixture
def listed(path: Path) -> Iterator[Associations]:
    made = Associations(path)
    yield made
    made.close()


def make(count: int, seed: int = 1) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(24) for _ in range(count)]


def check(listed: Associations, wanted: set[bytes]) -> None:
    assert listed.digest() == listed.recomputed() == Digest.of(wanted)
    assert len(listed) == len(wanted)


def test_d01_what_is_stored_holds_the_vectors(path: Path, listed: Associations) -> None:
    """D01: the halves in the rows, and the digest in the same file."""
    listed.add([vector.data for vector in vectors()])
    rows = sqlite3.connect(path).execute("select queue, high, low from association").fetchall()
    stored = {
        queue: high.to_bytes(8, "big", signed=True) + low.to_bytes(8, "big", signed=True)
        for queue, high, low in rows
    }
    assert stored == {vector.data: vector.hash for vector in vectors()}
    listed.remove([vector.data for vector in vectors()])
    for one in sets():
        assert listed.add(one.ids) == one.digest.count
        assert listed.digest() == listed.recomputed() == one.digest
        assert listed.remove(one.ids) == one.digest.count
        assert listed.digest() == Digest.empty()


def test_d02_adding_what_is_there_changes_nothing(listed: Associations) -> None:
    """D02: nor does removing what is not, nor one id twice in a call."""
    queues = make(20)
    assert listed.add(queues) == 20
    assert listed.add(queues) == 0
    check(listed, set(queues))
    fresh = make(3, seed=2)
    assert listed.add([*fresh, *queues, *fresh]) == 3
    check(listed, {*queues, *fresh})
    assert listed.remove([*fresh, *make(5, seed=3), *fresh]) == 3
    assert listed.remove(fresh) == 0
    check(listed, set(queues))
    assert queues[0] in listed
    assert fresh[0] not in listed
    assert listed.add([]) == listed.remove([]) == 0


def test_d03_after_every_change_and_failure_the_digest_is_that_of_the_list(path: Path) -> None:
    """D03: on this side; a third of the changes fail in the middle, and the file is opened anew."""
    chance = random.Random(3)
    pool, truth = make(60, seed=3), set[bytes]()
    listed = Associations(path)
    failures = 0
    for _ in range(200):
        chosen = chance.sample(pool, chance.randint(1, 12))
        is_added = chance.random() < 0.6
        change = listed.add if is_added else listed.remove
        if chance.random() < 0.3:
            failures += fails(change, chosen, chance.randrange(len(chosen)))
        else:
            change(chosen)
            truth = truth | set(chosen) if is_added else truth - set(chosen)
        if chance.random() < 0.1:
            listed.close()
            listed = Associations(path)
        check(listed, truth)
    listed.close()
    assert failures > 20


def fails(change: Callable[[list[bytes]], int], queues: list[bytes], place: int) -> bool:
    """The change meets an id that SQLite cannot take, after some that it could."""
    broken = [*queues[:place], Unbindable(b"u" * 24), *queues[place:]]
    with pytest.raises(FolderUnusable, match=r"service\.sqlite .*: .*"):
        change(broken)
    return True


class Unbindable(bytes):
    """Bytes to the hash, and nothing that SQLite knows."""

    def __conform__(self, _: object) -> object:
        raise sqlite3.IntegrityError("not today")


def test_a_change_of_many_fails_batch_by_batch_and_stays_true(
    listed: Associations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed before the failure stays, with its digest."""
    monkeypatch.setattr(associations, "_BATCH", 10)
    queues = make(25)
    fails(listed.add, queues, 17)
    check(listed, set(queues[:10]))
    assert listed.add(queues) == 15
    check(listed, set(queues))


def test_d17_what_was_written_before_the_end_of_the_process_is_there_after_it(path: Path) -> None:
    """D17: intent is on disk before the node is asked; another process finds it."""
    first = Associations(path)
    queues = make(3_000)
    first.add(queues)
    # Not closed: as after kill -9.
    second = Associations(path)
    check(second, set(queues))
    second.close()
    first.close()


@pytest.mark.parametrize("count", [0, 1, 30, 2_500])
def test_the_hashes_lead_back_to_the_queues(listed: Associations, count: int) -> None:
    """D31: what a repair found missing is named by the high halves of its hashes."""
    queues = make(2_500)
    listed.add(queues)
    hashes = listed.id_set()
    wanted = set(random.Random(4).sample(queues, count))
    highs = hash_ids(sorted(wanted))[:, 0]
    found = [queue for some in listed.queues_of(hashes, highs) for queue in some]
    assert len(found) == count
    assert set(found) == wanted
    # The index that this made changes nothing about the list.
    listed.remove(queues[:100])
    check(listed, set(queues[100:]))


def test_a_file_that_cannot_be_the_list_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FolderUnusable, match=r"nowhere/list\.sqlite cannot be used as the list"):
        Associations(tmp_path / "nowhere" / "list.sqlite")
    odd = tmp_path / "odd.sqlite"
    odd.write_bytes(b"this is no database, it only has its name" * 100)
    with pytest.raises(FolderUnusable, match="cannot be used as the list"):
        Associations(odd)


@pytest.mark.slow
def test_what_sqlite_says_is_said_in_our_words(path: Path, listed: Associations) -> None:
    """Whatever is called on a list that is closed or in other hands, no error of SQLite's own comes out."""
    listed.add(make(10))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin exclusive")
    with pytest.raises(FolderUnusable, match="locked"):
        listed.add(make(10, seed=2))
    other.execute("rollback")
    other.close()
    check(listed, set(make(10)))
    hashes = listed.id_set()
    pages = iter(listed.queues_of(hashes, hashes.high[:3]))
    listed.close()
    calls: list[Callable[[], object]] = [
        lambda: listed.add(make(1)),
        lambda: listed.remove(make(1)),
        lambda: make(1)[0] in listed,
        lambda: next(pages),
        listed.digest,
        listed.id_set,
        listed.recomputed,
    ]
    for call in calls:
        with pytest.raises(FolderUnusable, match="closed"):
            call()
