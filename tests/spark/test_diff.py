"""`diff` on a real Spark: what is missing on either side, and digests equal to those of core."""

import random
import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.core.sets.test_hashing import joined, vectors

from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.errors import CatalogUnreachable, ConfigError, DriftFound
from moorline.spark.id_sets import Side, hashed
from moorline.spark.jobs.diff import check, check_before, diff, digest_of
from moorline.spark.jobs.failures import explained


def ids(count: int, seed: int = 1) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(24) for _ in range(count)]


def parquet(path: Path, values: list[bytes]) -> Side:
    pq.write_table(pa.table({"id": pa.array(values, pa.binary())}), path, row_group_size=1_000)
    return Side.of(str(path))


def test_a_side_is_named_by_a_text() -> None:
    assert Side.of("a/b.parquet") == Side("parquet", "a/b.parquet", "")
    assert Side.of("a.csv#queue") == Side("csv", "a.csv", "queue")
    assert Side.of("service.sqlite") == Side("sqlite", "service.sqlite", "")
    assert Side.of("parquet:a#b#id") == Side("parquet", "a#b", "id")
    side = Side.of("catalog:postgresql://me@host/db?sslmode=require#billing")
    assert side == Side("catalog", "postgresql://me@host/db?sslmode=require", "billing")
    assert side.label == "catalog:postgresql://me@host/db#billing"
    assert Side.of("catalog-file:/etc/a#billing") == Side("catalog-file", "/etc/a", "billing")
    for wrong in ("catalog:postgresql://me:secret@host/db", "", "#id"):
        with pytest.raises(ConfigError, match="is no set of ids; accepted:") as caught:
            Side.of(wrong)
        assert "secret" not in str(caught.value)


def test_hashes_are_those_of_core() -> None:
    several = [b"", b"a", *ids(50)]
    assert (hashed(pa.array(several, pa.binary())) == hash_ids(several)).all()
    # A slice of a larger array begins in the middle of its buffers.
    middle = pa.array(several, pa.binary()).slice(7, 20)
    assert (hashed(middle) == hash_ids(several[7:27])).all()
    # And those are the published vectors.
    data = pa.array([vector.data for vector in vectors()], pa.binary())
    assert joined(hashed(data)) == [vector.hash for vector in vectors()]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_differences_are_found_between_any_two_kinds(spark: SparkSession, tmp_path: Path) -> None:
    both = ids(5_000)
    left = parquet(tmp_path / "left.parquet", both[:-5])
    right = parquet(tmp_path / "right.parquet", both[7:])
    assert digest_of(spark, left) == Digest.of(both[:-5])
    found = diff(spark, left, right, tasks=3, limit=100, out=str(tmp_path / "out"))
    assert (found.only_left, found.only_right, found.has_repeats) == (7, 5, False)
    assert {one for one, side in found.ids if side == "left"} == set(both[:7])
    assert {one for one, side in found.ids if side == "right"} == set(both[-5:])
    assert found.comparison.buckets_differing <= 12
    stored = pq.read_table(tmp_path / "out")
    assert {(row["id"], row["only"]) for row in stored.to_pylist()} == set(found.ids)

    # The list that a client keeps, against the same ids twice: the same sets, and not equal.
    with sqlite3.connect(tmp_path / "list.sqlite") as database:
        database.execute("create table association (queue blob primary key, high, low)")
        database.executemany(
            "insert into association values (?, 0, 0)", [(one,) for one in both[:-5]]
        )
    client = Side.of(str(tmp_path / "list.sqlite"))
    assert diff(spark, left, client, tasks=2, limit=10).is_equal
    twice = parquet(tmp_path / "twice.parquet", [*both[:-5], both[0]])
    assert diff(spark, twice, client, tasks=2, limit=10).has_repeats


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_repeats_never_make_two_sides_equal(spark: SparkSession, tmp_path: Path) -> None:
    """An id twice on one side and another twice on the other vanish from an XOR, and count the same."""
    chance = random.Random(7)
    # Of one bucket: the first two bytes of the hashes are the same.
    drawn = ids(120_000, seed=3)
    hashes = hash_ids(drawn)[:, 0] >> np.uint64(48)
    order = np.argsort(hashes, kind="stable")
    at = int(np.flatnonzero(np.diff(hashes[order]) == 0)[0])
    one, other = drawn[order[at]], drawn[order[at + 1]]
    rest = [two for two in drawn[:200] if two not in (one, other)]
    left = parquet(tmp_path / "left.parquet", [*rest, one, one])
    right = parquet(tmp_path / "right.parquet", [*rest, other, other])
    found = diff(spark, left, right, tasks=2, limit=10)
    assert sorted(found.ids) == sorted([(one, "left"), (other, "right")])
    for number in range(5):
        # The same distinct ids, and repeats of some of them in any way: told as what it is.
        sides = [
            parquet(
                tmp_path / f"{side}-{number}.parquet",
                [*rest, *(chance.choice(rest) for _ in range(6))],
            )
            for side in ("left", "right")
        ]
        again = [sorted(pq.read_table(side.where)["id"].to_pylist()) for side in sides]
        found = diff(spark, *sides, tasks=2, limit=10)
        assert found.is_equal == (again[0] == again[1])
        assert (found.only_left, found.only_right) == (0, 0)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_csv_ids_are_texts_and_mistakes_are_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,id\nx,007\ny,8\nz,9\n")
    (tmp_path / "b.csv").write_text("id\n7\n8\n9\n")
    left, right = Side.of(f"{tmp_path}/a.csv#id"), Side.of(f"{tmp_path}/b.csv")
    found = diff(spark, left, right, tasks=1, limit=10)
    assert sorted(found.ids) == [(b"007", "left"), (b"7", "right")]
    with pytest.raises(ConfigError, match="has no column 'nope'; there are name, id"), explained():
        digest_of(spark, Side.of(f"{tmp_path}/a.csv#nope"))
    with pytest.raises(ConfigError, match="no parquet files there"):
        digest_of(spark, Side.of(str(tmp_path)))
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ConfigError, match=r"bad\.parquet cannot be read as Parquet"):
        digest_of(spark, Side.of(f"{tmp_path}/bad.parquet"))
    nowhere = Side.of("catalog:postgresql://me@127.0.0.1:1/db#billing")
    with pytest.raises(CatalogUnreachable), explained():
        digest_of(spark, nowhere)


REFUSED = {
    "double": pa.array([1.5]),
    "struct<a: int64>": pa.array([{"a": 1}]),
    "list<element: binary>": pa.array([[b"a"]], pa.list_(pa.binary())),
    "bool": pa.array([True]),
    "timestamp[us]": pa.array([1], pa.timestamp("us")),
    "decimal128(5, 2)": pa.array([1], pa.decimal128(5, 2)),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_column_that_holds_no_ids_is_refused_before_a_job_begins(
    tmp_path: Path, kind: str
) -> None:
    good = parquet(tmp_path / "good.parquet", ids(3))
    pq.write_table(pa.table({"id": ["a"], "x": REFUSED[kind]}), tmp_path / "bad.parquet")
    bad = Side.of(f"{tmp_path}/bad.parquet#x")
    for sides in ((good, bad), (bad, good)):
        with pytest.raises(ConfigError) as caught:
            check_before(*sides, "")
        text = f"column 'x' is {kind}: ids are binary, string, whole numbers"
        assert str(caught.value).endswith(text)
    check_before(good, Side.of(f"{tmp_path}/bad.parquet#id"), "")


def test_what_could_only_fail_is_refused_before_a_job_begins(tmp_path: Path) -> None:
    good = parquet(tmp_path / "good.parquet", ids(3))
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "some.csv").write_text("id\na\n")
    (tmp_path / "no.sqlite").write_text("a text")
    (tmp_path / "out").mkdir()
    for side, text in (
        (f"{tmp_path}/good.parquet#nope", "has no column 'nope'; there are id"),
        (f"{tmp_path}/some.csv#nope", "has no column 'nope'; there are id"),
        (f"{tmp_path}/empty.csv", "empty.csv cannot be read as CSV"),
        (f"{tmp_path}/no.sqlite", "no.sqlite is not the list of a client"),
        (f"{tmp_path}/nowhere.parquet", "no parquet files there"),
    ):
        with pytest.raises(ConfigError, match=text):
            check_before(good, Side.of(side), "")
    with pytest.raises(CatalogUnreachable):
        check_before(good, Side.of("catalog:postgresql://me@127.0.0.1:1/db#billing"), "")
    for out, text in (
        (tmp_path / "out", "is there already: name a folder that is not"),
        (tmp_path / "some.csv" / "below", "is no folder that can be written to"),
    ):
        with pytest.raises(ConfigError, match=text):
            check_before(good, good, str(out))
    check_before(good, good, str(tmp_path / "new" / "folders"))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_row_without_an_id_is_left_out_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('name,id\nx,1\nempty,\nquoted,""\ny,2\n')
    table = pa.table({"id": pa.array(["2", None, "1", ""]).dictionary_encode()})
    pq.write_table(table, tmp_path / "b.parquet")
    pq.write_table(pa.table({"id": pa.array([1, None, 2])}), tmp_path / "c.parquet")
    text = Side.of(f"{tmp_path}/a.csv#id")
    found = diff(spark, text, Side.of(f"{tmp_path}/b.parquet"), tasks=2, limit=10)
    assert found.is_equal
    assert (found.comparison.left.count, found.comparison.right.count) == (2, 2)
    assert (found.comparison.without_left, found.comparison.without_right) == (2, 2)
    found = diff(spark, Side.of(f"{tmp_path}/c.parquet"), text, tasks=2, limit=10)
    assert found.is_equal
    assert (found.comparison.without_left, found.comparison.without_right) == (1, 2)
    # Nothing on both sides is no proof that they are equal.
    (tmp_path / "d.csv").write_text("id,name\n,x\n")
    nothing = Side.of(f"{tmp_path}/d.csv")
    with pytest.raises(DriftFound, match="nothing was compared: neither side has an id"):
        check(diff(spark, nothing, nothing, tasks=2, limit=10))
