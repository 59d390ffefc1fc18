"""Parts of reading live values, without Spark: what waits for a batch, types, denied paths, lost batches."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType
from tests.resolver.server import ResolverServer

from moorline.client.values.publisher import Publisher
from moorline.core.access.principal import LOOPBACK
from moorline.core.access.right import EVERYTHING
from moorline.core.access.row import Row
from moorline.errors import BadValue, Denied
from moorline.spark.gathered import Gathered, ValueRow
from moorline.spark.options import Endpoint
from moorline.spark.value_reader import ValueOptions, named, taken
from moorline.spark.value_stream import UpdatesPartition, ValueStreamReader
from moorline.spark.value_types import TYPES, converted


def row(path: str, value: Any, *, is_first: bool = False) -> ValueRow:
    return ValueRow(path, value, "", 0, is_first)


def test_what_waits_is_bounded_and_never_out_of_order() -> None:
    gathered = Gathered(4)
    gathered.add(row("/a", 0, is_first=True))
    for number in range(1, 101):
        gathered.add(row("/b", number))
        assert len(gathered) <= 4
    gathered.add(row("/a", 1))
    found = gathered.take(10)
    seen = [one.value for one in found if one.path == "/b"]
    assert seen == sorted(seen)
    assert seen[-1] == 100
    assert found[-1].value == 1
    assert len(found) + gathered.conflated == 102, "what is not given is counted"
    assert any(one.is_first for one in found if one.path == "/a")
    assert len(gathered) == 0


def test_more_paths_than_are_kept_all_have_their_latest_value() -> None:
    gathered = Gathered(4)
    for number in range(3):
        for path in range(10):
            gathered.add(row(f"/{path}", number))
    found = gathered.take(7) + gathered.take(100)
    assert {one.path: one.value for one in found} == {f"/{path}": 2 for path in range(10)}


@pytest.mark.parametrize(
    ("name", "fits", "misfits"),
    [
        ("json", [(True, "true"), ([b"a"], '["YQ=="]')], []),
        ("string", [("a", "a")], [1, b"a", True]),
        ("double", [(1.5, 1.5), (1 << 53, float(1 << 53))], [(1 << 53) + 1, True, "1"]),
        ("long", [(-(1 << 63), -(1 << 63))], [1 << 63, 1.0, False]),
        ("boolean", [(False, False)], [0, "false"]),
        ("binary", [(b"a", b"a")], ["a"]),
        ("timestamp", [(datetime(2026, 1, 1, tzinfo=UTC),) * 2], ["2026-01-01"]),
    ],
)
def test_a_value_fits_its_type_or_is_named(
    name: str, fits: list[tuple[Any, Any]], misfits: list[Any]
) -> None:
    assert name in TYPES
    for value, wanted in [*fits, (None, None)]:
        found, count = converted(name, [("/a", value)], fail_on_misfit=True)
        assert (found, type(found[0]), count) == ([wanted], type(wanted), 0)
    for value in misfits:
        assert converted(name, [("/a", value)], fail_on_misfit=False) == ([None], 1)
        with pytest.raises(BadValue, match=f"/a: .* is no {name}: choose another"):
            converted(name, [("/a", value)], fail_on_misfit=True)


async def test_a_denied_path_is_an_error_by_its_name() -> None:
    async with ResolverServer.open() as server, Publisher(server.address) as publisher:
        publisher.publish_all((f"/a/{number}", number) for number in range(4))
        await publisher.replicated(10)
        paths = [f"/a/{number}" for number in range(4)]
        endpoint = Endpoint(server.address)
        rows, gone = await taken(endpoint, [*paths, "/a/gone"])
        assert [(one.path, one.value) for one in rows] == [(f"/a/{n}", n) for n in range(4)]
        assert gone == ["/a/gone"]
        await server.change_rights(
            *(Row(f"/a/{number}", LOOPBACK, denies=EVERYTHING) for number in (1, 2))
        )
        with pytest.raises(Denied, match=r"^/a/1: .*\(/a/1, /a/2\)$"):
            await taken(endpoint, paths)


def test_a_batch_of_another_process_has_no_rows(caplog: pytest.LogCaptureFixture) -> None:
    options = ValueOptions("/a/*", Endpoint(), "json", 0, True, False)
    reader = ValueStreamReader(options, StructType([StructField("path", StringType())]))
    (part,) = reader.partitions({"n": 40}, {"n": 57})
    assert isinstance(part, UpdatesPartition)
    assert part.rows == []
    assert "the batch of 17 updates before 57 went with the process" in caplog.text


def test_names_are_few() -> None:
    assert named(["/a", "/b"]) == "/a, /b"
    assert named([f"/{n}" for n in range(10)]) == "/0, /1, /2 and 7 more"
