"""Hashes and digests against known vectors; the same file is read by every other implementation."""

import json
import random
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.core.sets.id_set import digest_of
from moorline.core.sets.sketch import Words

VECTORS = Path(__file__).parents[2] / "vectors" / "xxh3_128.json"

PUBLISHED = {
    0: "99aa06d3014798d86001c324468d497f",
    1: "a6cd5e9392000f6ac44bdff4074eecdb",
    24: "0ce966e4678d37611e7044d28b1b901d",
    222: "337e09641b948717f1aebd597cec6b3a",
    403: "1b6de21e332dd73dcdeb804d65c6dea4",
    512: "18d2d110dcc9bca1617e49599013cb6b",
}
"""From the table of xxHash's own sanity check: that these hold, no implementation of ours decides."""


class Vector(NamedTuple):
    data: bytes
    hash: bytes
    is_published: bool


class SetVector(NamedTuple):
    name: str
    ids: list[bytes]
    digest: Digest
    text: str


def vectors() -> list[Vector]:
    return [
        Vector(bytes.fromhex(row["input"]), bytes.fromhex(row["hash"]), row["published"])
        for row in json.loads(VECTORS.read_text())["hashes"]
    ]


def sets() -> list[SetVector]:
    return [
        SetVector(
            row["name"],
            [bytes.fromhex(one) for one in row["ids"]],
            Digest(row["count"], bytes.fromhex(row["hash"])),
            row["digest"],
        )
        for row in json.loads(VECTORS.read_text())["sets"]
    ]


def joined(hashes: Words) -> list[bytes]:
    """Each pair of halves as the sixteen bytes that it stands for."""
    return [row.astype(">u8").tobytes() for row in hashes]


def test_d01_the_vectors_have_every_length_and_are_the_published_ones() -> None:
    """D01: 0, 1, 16, 17, 24, 128, 129, 240, 241 and 1,000 bytes; each is another path of XXH3."""
    lengths = {len(vector.data) for vector in vectors()}
    assert lengths >= {0, 1, 16, 17, 24, 128, 129, 240, 241, 1_000}
    marked = {len(vector.data): vector.hash.hex() for vector in vectors() if vector.is_published}
    assert marked == PUBLISHED


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: f"{len(vector.data)} bytes")
def test_d01_the_scalar_path_holds_the_vectors(vector: Vector) -> None:
    """D01: by Digest, whose hash of one item is the item's, and by `hash_ids` of a few."""
    assert Digest.of([vector.data]) == Digest(1, vector.hash)
    assert Digest.empty().add(vector.data) == Digest(1, vector.hash)
    assert joined(hash_ids([vector.data])) == [vector.hash]


def test_d01_many_at_once_hold_the_vectors() -> None:
    """D01: all lengths together, in order, and inside a crowd."""
    wanted = [vector.hash for vector in vectors()]
    data = [vector.data for vector in vectors()]
    chance = random.Random(1)
    crowd = [chance.randbytes(24) for _ in range(2_000)]
    many = hash_ids([*data, *crowd])
    assert joined(many[: len(data)]) == wanted
    assert (many[len(data) :] == hash_ids(crowd)).all()


@pytest.mark.parametrize("count", [0, 1, 2, 2_001])
def test_d01_many_at_once_are_hashed_as_one_by_one(count: int) -> None:
    """D01: with ids that only chance picked, and the shape that all callers count on."""
    chance = random.Random(count)
    ids = [chance.randbytes(chance.choice([0, 1, 16, 17, 24, 129, 241])) for _ in range(count)]
    found = hash_ids(ids)
    assert found.shape == (count, 2)
    assert found.dtype == np.uint64
    assert joined(found) == [Digest.of([one]).hash for one in ids]


@pytest.mark.parametrize("one", sets(), ids=lambda one: one.name)
def test_d01_digests_of_sets_hold_the_vectors(one: SetVector) -> None:
    """D01: all at once, one by one, merged of two parts, over arrays, and as text."""
    assert Digest.of(one.ids) == one.digest
    added = Digest.empty()
    for item in one.ids:
        added = added.add(item)
    assert added == one.digest
    half = len(one.ids) // 2
    assert Digest.of(one.ids[:half]).merge(Digest.of(one.ids[half:])) == one.digest
    hashes = hash_ids(one.ids)
    assert digest_of(hashes[:, 0], hashes[:, 1]) == one.digest
    assert str(one.digest) == one.text
    assert Digest.from_bytes(bytes.fromhex(one.text)) == one.digest


def test_d01_order_does_not_matter_and_removing_undoes_adding() -> None:
    """D01: the same for any order; add then remove is the identity; empty is zeros."""
    chance = random.Random(2)
    ids = [chance.randbytes(24) for _ in range(50)]
    whole = Digest.of(ids)
    for _ in range(20):
        chance.shuffle(ids)
        assert Digest.of(ids) == whole
    for one in ids:
        assert whole.remove(one).add(one) == whole
        assert whole.remove(one) != whole
    left = whole
    for one in ids:
        left = left.remove(one)
    assert left == Digest.empty() == Digest(0, bytes(16))
    assert bytes(left) == bytes(24)


def test_d02_a_digest_alone_cannot_know_that_an_id_is_there() -> None:
    """D02: why membership decides: XOR takes out what it puts in, only the count tells."""
    twice = Digest.of([b"a"]).add(b"a")
    assert twice.hash == bytes(16)
    assert twice.count == 2
    with pytest.raises(AssertionError, match="nothing is left to remove"):
        Digest.empty().remove(b"a")
