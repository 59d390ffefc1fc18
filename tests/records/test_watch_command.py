"""`moor records watch`, the example, and a copy whose node is killed: real processes over a real Postgres."""

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.catalog.databases import new_database
from tests.process.nodes import MOOR, NodeProcess, clean_environment, run_moor
from tests.records.relay import NOWHERE, Relay
from tests.test_examples import PRINTED_OF_RECORDS, example

import moorline
from moorline.catalog import Catalog, EmbeddedPostgres
from moorline.cli.records_watch import parse_where
from moorline.errors import BadFilter

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

SOON = moorline.RecordSettings(return_ms=50, return_ms_max=500)
PATIENCE_S = 60.0
TABLE = """
create table experiments (id bigint primary key, workspace_id integer, state text);
insert into experiments values (1, 1, 'NEW'), (2, 1, 'NEW'), (3, 2, 'NEW');
"""


@pytest.fixture
async def dsn(postgres: EmbeddedPostgres) -> str:
    dsn = await new_database(postgres)
    async with Catalog.open(dsn):
        pass
    await execute(dsn, TABLE)
    added = await asyncio.to_thread(
        run_moor,
        *("records", "add", "experiments", "--key=id", "--filter=workspace_id,state"),
        f"--database={dsn}",
    )
    assert added.returncode == 0, added.stderr
    return dsn


async def execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
def node(dsn: str, tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path / "one", f"--catalog={dsn}", "--node=one") as node:
        yield node


async def moor(node: NodeProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    given = ("records", "watch", f"--address={node.address}", *arguments)
    return await asyncio.to_thread(run_moor, *given)


async def test_once_prints_the_rows_and_ends(node: NodeProcess) -> None:
    shown = await moor(node, "experiments", "--once", "--where", "workspace_id=1")
    assert shown.returncode == 0, shown.stderr
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["id", "workspace_id", "state"],
        ["1", "1", "NEW"],
        ["2", "1", "NEW"],
    ]
    told = await moor(node, "experiments", "--once", "--json", "--columns=state")
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    assert [(row["key"], row["row"]) for row in rows] == [
        (key, {"id": key, "state": "NEW"}) for key in (1, 2, 3)
    ]


async def test_what_is_wrong_ends_in_one_line(node: NodeProcess) -> None:
    for arguments, text in (
        (("nothing", "--once"), "nothing"),
        (("experiments", "--once", "--where", "workspace_id"), "COLUMN=VALUE"),
        (("experiments", "--once", "--where", "size=1"), "size"),
        (("experiments", "--once", "--columns", "size"), "size"),
    ):
        done = await moor(node, *arguments)
        assert done.returncode == 12, done.stderr
        (line,) = done.stderr.splitlines()
        assert text in line
    helped = await asyncio.to_thread(run_moor, "records", "watch", "--help")
    assert "Example: moor records watch experiments" in " ".join(helped.stdout.split())


class Program:
    """One that goes on, and whose lines are read as they come."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), PATIENCE_S)).decode()

    async def json(self) -> Any:
        return json.loads(await self.line())


@pytest.fixture
async def watching(node: NodeProcess) -> AsyncIterator[Program]:
    arguments = ["records", "watch", f"--address={node.address}", "experiments", "--json"]
    process = await asyncio.create_subprocess_exec(
        *MOOR, *arguments, stdout=asyncio.subprocess.PIPE, env=clean_environment()
    )
    yield Program(process)
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 130


async def test_json_lines_go_on_as_rows_change(dsn: str, watching: Program) -> None:
    rows = [await watching.json() for _ in range(3)]
    assert sorted(row["key"] for row in rows) == [1, 2, 3]
    synced = await watching.json()
    assert (synced["kind"], synced["rows"]) == ("synced", 3)
    await execute(dsn, "update experiments set state = 'DONE' where id = 2")
    change = await watching.json()
    assert (change["kind"], change["key"], change["how"]) == ("record", 2, "live")
    assert change["row"] == {"id": 2, "workspace_id": 1, "state": "DONE"}
    await execute(dsn, "delete from experiments where id = 3")
    assert await watching.json() == {"kind": "deletion", "key": 3, "how": "live"}


async def test_the_example_prints_what_it_should(
    dsn: str, node: NodeProcess, tmp_path: Path
) -> None:
    code = example("records").replace("tcp://127.0.0.1:7411", node.address)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=clean_environment(),
        cwd=tmp_path,
    )
    program = Program(process)
    printed = await program.line() + await program.line()
    await execute(dsn, "update experiments set state = 'DONE' where id = 1")
    rest, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert errors == b""
    assert process.returncode == 0
    assert re.fullmatch(PRINTED_OF_RECORDS["records"], printed + rest.decode())
    assert (tmp_path / "experiments.cache").exists()


async def test_a_node_that_is_killed_and_another_one_that_goes_on(
    dsn: str, node: NodeProcess, tmp_path: Path
) -> None:
    with NodeProcess(tmp_path / "two", f"--catalog={dsn}", "--node=two") as second:
        async with Relay().open() as relay:
            relay.lead_to(node.address)
            async with (
                moorline.connect(relay.address) as moor,
                moor.records("experiments", cache=tmp_path / "cache", settings=SOON) as table,
            ):
                changes = table.changes()
                relay.target = NOWHERE
                node.process.kill()
                await kind_of(changes, "disconnected")
                await execute(
                    dsn,
                    "update experiments set state = 'AWAY' where id = 1;"
                    "delete from experiments where id = 2;"
                    "insert into experiments values (4, 1, 'NEW')",
                )
                relay.lead_to(second.address)
                assert (await kind_of(changes, "synced")).how == "replay"
                states = {key: table.rows[key]["state"] for key in table.rows}
                assert states == {1: "AWAY", 3: "NEW", 4: "NEW"}


async def kind_of(changes: Any, kind: str) -> moorline.RecordChange:
    async with asyncio.timeout(PATIENCE_S):
        async for change in changes:
            if change.kind.value == kind:
                return change  # type: ignore[no-any-return]
    raise AssertionError(f"no {kind} came")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ([], {}),
        (["a=1"], {"a": 1}),
        (["a=x y"], {"a": "x y"}),
        (['a="1"'], {"a": "1"}),
        (["a=null"], {"a": None}),
        (["a="], {"a": ""}),
        (["a=1", "a=2", "a=null"], {"a": [1, 2, None]}),
        (["a>=1", "a<2.5"], {"a": {">=": 1, "<": 2.5}}),
        (["a=b=c"], {"a": "b=c"}),
    ],
)
def test_terms_of_a_filter(given: list[str], meant: dict[str, Any]) -> None:
    assert parse_where(given) == meant


@pytest.mark.parametrize(
    "given", [["a"], ["=1"], ["a=1", "a>2"], ["a>2", "a=1"], ["a>1", "a>2"], ["a=[1]"], ["a={}"]]
)
def test_terms_that_are_none(given: list[str]) -> None:
    with pytest.raises(BadFilter):
        parse_where(given)


async def test_on_a_terminal_it_is_a_live_table(dsn: str, node: NodeProcess) -> None:
    near, far = pty.openpty()
    arguments = ["records", "watch", f"--address={node.address}", "experiments"]
    environment = clean_environment() | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    process = await asyncio.create_subprocess_exec(
        *MOOR, *arguments, stdin=far, stdout=far, stderr=far, env=environment
    )
    os.close(far)
    os.set_blocking(near, False)
    try:
        await shown(near, "3 rows · live")
        await execute(dsn, "update experiments set state = E'ev\\x1bil' where id = 3")
        drawn = await shown(near, "ev\\x1bil")
        assert "\x1bil" not in drawn, "what a row has does not steer a terminal"
        await execute(dsn, "delete from experiments where id = 3")
        await shown(near, "2 rows · live")
    finally:
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.wait(), PATIENCE_S)
        os.close(near)


async def shown(terminal: int, text: str) -> str:
    """All that was drawn until that text is there."""
    drawn = ""
    async with asyncio.timeout(PATIENCE_S):
        while text not in drawn:
            try:
                drawn += os.read(terminal, 65_536).decode(errors="replace")
            except BlockingIOError:
                await asyncio.sleep(0.02)
    return drawn
