"""A materialized table as a release left it is read by this one.

It was made by two runs of `moor pipeline materialize --buckets 2`, over a table of which `ROWS` is the last
state, and is never made anew.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from moorline.core.sets.digest import Digest
from moorline.errors import DriftFound
from moorline.spark.jobs.materialized import TABLE_VERSION, MaterializedTable, materialized

FILES = sorted((Path(__file__).parents[1] / "vectors").glob("table-*.tar.xz"))
DIGEST = "00000000000000070aaed36c5108a36faeb067f881b06bdd"


def row(number: int, workspace: int | None, state: str, note: str = "n") -> dict[str, Any]:
    return {"id": number, "note": note, "state": state, "workspace_id": workspace}


ROWS = {
    ("4",): (4, row(4, 1, "NEW")),
    ("5",): (5, row(5, 2, "NEW")),
    ("6",): (6, row(6, 0, "NEW")),
    ("7",): (7, row(7, 1, "NEW")),
    ("1",): (9, row(1, 1, "DONE")),
    ("2",): (10, row(2, 2, "DONE")),
    ("-1",): (14, row(-1, None, "DONE", "0.9126739980794196")),
}


@pytest.fixture(params=FILES, ids=lambda file: file.name)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as packed:
        packed.extractall(tmp_path)  # ours; older Pythons have no filter
    return tmp_path / "table"


def test_its_state_and_files_are_as_they_were_written(where: Path) -> None:
    table = MaterializedTable(str(where))
    state = table.latest()
    assert state is not None
    assert (state.number, state.table, state.buckets, state.rows) == (2, "things", 2, len(ROWS))
    assert state.digest() == Digest.from_bytes(bytes.fromhex(DIGEST))
    assert [table.problem_of(file) for file in state.files] == [None, None]
    found = {}
    for file in state.files:
        for one in pq.read_table(where / file.path, partitioning=None).to_pylist():
            found[tuple(json.loads(one["key"]))] = one["seq"], json.loads(one["row"])
    assert found == ROWS


@pytest.mark.slow
@pytest.mark.process
def test_spark_reads_it(where: Path, spark: SparkSession) -> None:
    rows = materialized(spark, str(where)).collect()
    assert {tuple(json.loads(one.key)): (one.seq, json.loads(one.row)) for one in rows} == ROWS


def test_what_was_altered_in_it_is_found(where: Path) -> None:
    (newest,) = where.glob("_moorline/states/0000000002.json")
    written = newest.read_bytes()
    newest.write_bytes(written.replace(b'"buckets":2', b'"buckets":3'))
    with pytest.raises(DriftFound):
        MaterializedTable(str(where)).latest()


def test_one_of_this_version_is_among_them() -> None:
    versions = set()
    for file in FILES:
        with tarfile.open(file) as packed:
            (member,) = [one for one in packed.getmembers() if one.name.endswith("02.json")]
            opened = packed.extractfile(member)
            assert opened is not None
            versions.add(json.loads(opened.read())["value"]["version"])
    assert TABLE_VERSION in versions
