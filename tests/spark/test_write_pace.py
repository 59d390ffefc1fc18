"""A write of Spark by a principal with rates: it waits, and every row comes once and in its order."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.process.nodes import NodeProcess

import moorline
from moorline.errors import OverQuota
from moorline.spark.options import endpoint_of
from moorline.spark.rows import Columns
from moorline.spark.writer import Destination, Staged, commit, stage

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(120)]

ROWS = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("paced") / "data") as one:
        yield one


async def destination(node: NodeProcess, name: str, folder: Path, **quotas: int) -> Destination:
    """Where a user of that name, with these quotas, writes to its own topics."""
    token_file = folder / f"{name}.token"
    async with moorline.connect(node.address) as operator:
        await operator.access.add_user(name)
        token_file.write_text((await operator.access.add_token(name, "spark")).token)
        token_file.chmod(0o600)
        for quota, bound in quotas.items():
            await operator.access.set_quota(name, quota, bound)
    endpoint = endpoint_of({"address": node.address, "tokenFile": str(token_file)})
    return Destination(endpoint, Columns(("value",), topic=f"{name}/rows"))


def rows(size: int = 1) -> pa.RecordBatch:
    bodies = [b"%d" % number + bytes(size) for number in range(ROWS)]
    return pa.RecordBatch.from_arrays([pa.array(bodies, pa.binary())], ["value"])


async def written(to: Destination, batch: pa.RecordBatch) -> Staged:
    staged = await asyncio.to_thread(stage, to, "q", 1, iter([batch]), 0)
    await asyncio.to_thread(commit, to, "q", 1, [staged])
    return staged


@pytest.mark.parametrize(
    ("name", "quotas", "size"),
    [("rows", {"messages_per_s": 25}, 1), ("bytes", {"bytes_per_s": 30_000}, 1_000)],
)
async def test_a_write_keeps_to_the_rates_of_its_principal(
    node: NodeProcess, tmp_path: Path, name: str, quotas: dict[str, int], size: int
) -> None:
    """A30: what is refused for a while comes again, before what is behind it."""
    to = await destination(node, name, tmp_path, **quotas)
    assert (await written(to, rows(size))).count == ROWS
    async with moorline.connect(node.address) as reader:
        subscription = await reader.subscribe(f"{name}/rows", start="beginning")
        async with asyncio.timeout(30):
            got = [(await anext(subscription)).body or b"" for _ in range(ROWS)]
    assert got == rows(size).column(0).to_pylist()


async def test_a_row_that_is_more_than_a_second_allows_is_refused(
    node: NodeProcess, tmp_path: Path
) -> None:
    """A30: to wait for it would be to no end."""
    to = await destination(node, "large", tmp_path, bytes_per_s=500)
    with pytest.raises(OverQuota, match="bytes_per_s is 500"):
        await written(to, rows(1_000))
