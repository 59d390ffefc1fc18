"""Runs of the pipeline: told by their own processes, kept in the catalog, shown to who may see them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.catalog.databases import new_database
from tests.process.nodes import NodeProcess, run_moor

import moorline
from moorline.catalog import Catalog, EmbeddedPostgres
from moorline.catalog.pipeline_runs import RunRows
from moorline.cli.endpoint import Endpoint
from moorline.cli.told_run import told_run
from moorline.errors import Denied, NotAuthorized
from moorline.limits import PIPELINE_RUNS_KEPT
from moorline.wire.pipeline_run import TellRun

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


def endpoint(node: NodeProcess, address: str = "") -> Endpoint:
    return Endpoint(address or node.address, None, None, None)


async def test_a_run_is_seen_with_its_progress_and_its_proof(node: NodeProcess) -> None:
    seen: list[tuple[int, int]] = []
    with told_run(endpoint(node), "verify", "./archive") as run:
        run.hears(lambda done, total: seen.append((done, total)))(3, 8)
        run.proves("8 of 8 streams are proven equal", is_proven=True)
    assert seen == [(3, 8)]
    async with moorline.connect(node.address) as moor:
        (found,) = await moor.pipeline_runs.newest(1)
    assert (found.kind, found.what, found.state) == ("verify", "./archive", "done")
    assert (found.done, found.total, found.is_proven) == (3, 8, True)
    assert found.proof == "8 of 8 streams are proven equal"
    assert found.principal
    assert 0 < found.started_us <= found.told_us
    printed = run_moor("pipeline", "runs", "--address", node.address, "--json")
    assert "proven equal" in printed.stdout


async def test_a_run_that_fails_says_why(node: NodeProcess) -> None:
    with pytest.raises(ValueError, match="no room"), told_run(endpoint(node), "archive", "a"):
        raise ValueError("no room")
    async with moorline.connect(node.address) as moor:
        (found,) = await moor.pipeline_runs.newest(1)
    assert (found.state, found.why, found.is_proven) == ("failed", "no room", None)


def test_a_job_goes_on_where_no_node_hears_of_it(node: NodeProcess) -> None:
    with told_run(endpoint(node, "tcp://127.0.0.1:1"), "archive", "a") as run:
        run.proves("done", is_proven=None)


async def test_only_who_may_write_there_tells_and_only_who_may_list_sees(
    node: NodeProcess, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_bytes(b"swordfish")
    secret.chmod(0o600)
    async with moorline.connect(node.address) as moor:
        await moor.access.add_user("vera", b"swordfish")
        await moor.pipeline_runs.tell(TellRun(0, "of-another", "verify", "a", "running"))
    async with moorline.connect(node.address, user="vera", password_file=secret) as vera:
        with pytest.raises(Denied):
            await vera.pipeline_runs.tell(TellRun(0, "mine", "verify", "a", "running"))
        with pytest.raises(Denied):
            await vera.pipeline_runs.newest(1)
        async with moorline.connect(node.address) as moor:
            await moor.access.add_grant("/pipeline/runs", "vera", "wl")
        await vera.pipeline_runs.tell(TellRun(0, "mine", "verify", "a", "done"))
        with pytest.raises(NotAuthorized, match="another principal's, or has ended"):
            await vera.pipeline_runs.tell(TellRun(0, "of-another", "verify", "a", "failed"))
        # What it said at its end stays.
        with pytest.raises(NotAuthorized):
            await vera.pipeline_runs.tell(TellRun(0, "mine", "verify", "a", "running"))
        with pytest.raises(NotAuthorized, match="does not say of itself"):
            await vera.pipeline_runs.tell(TellRun(0, "other", "verify", "a", "silent"))
        names = {one.run: one.state for one in await vera.pipeline_runs.newest(10)}
    assert (names["mine"], names["of-another"]) == ("done", "running")


async def test_the_newest_are_kept_and_a_silent_one_is_called_so(
    postgres: EmbeddedPostgres,
) -> None:
    async with Catalog.open(await new_database(postgres)) as catalog:
        rows = RunRows(catalog)
        for number in range(PIPELINE_RUNS_KEPT + 5):
            assert await rows.tell(
                *(f"run-{number}", "archive", "a", "running", 0, 0, None, "", "", "vera")
            )
        newest = f"run-{PIPELINE_RUNS_KEPT + 4}"
        await catalog.execute(
            "update moorline.pipeline_run set told_at = told_at - interval '1 minute' "
            f"where run <> '{newest}'"
        )
        found = await rows.list(0, PIPELINE_RUNS_KEPT * 2)
        assert len(found) == PIPELINE_RUNS_KEPT
        assert (found[0]["run"], found[0]["state"]) == (newest, "running")
        assert {row["state"] for row in found[1:]} == {"silent"}
        (older,) = await rows.list(found[0]["started_us"], 1)
        assert older["run"] == f"run-{PIPELINE_RUNS_KEPT + 3}"
