"""`moor records`, as a person and as a script run it, against a real Postgres."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from tests.catalog.databases import empty_database
from tests.process.nodes import NodeProcess, clean_environment
from tests.process.warm import run_warm
from tests.records.bed import THINGS
from tests.records.older_form import register_as_0_2_0

from moorline.catalog import EmbeddedPostgres

pytestmark = pytest.mark.process

COMMANDS = ("add", "remove", "list", "check", "renew", "types")


@pytest.fixture
async def dsn(postgres: EmbeddedPostgres) -> str:
    return await empty_database(postgres)


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "create table experiments (id bigint primary key, workspace_id integer not null, state "
        "text, n numeric,"
        ' "odd name" jsonb, "with,comma" integer)'
    )
    try:
        yield connection
    finally:
        await connection.close()


async def moor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    given = clean_environment() | environment
    return await asyncio.to_thread(run_warm, ["records", *arguments], given, timeout_s=60)


async def done(*arguments: str) -> str:
    found = await moor(*arguments)
    assert found.returncode == 0, found.stderr
    return found.stdout.decode()


async def refused(code: int, *arguments: str) -> str:
    found = await moor(*arguments)
    (line,) = found.stderr.decode().splitlines()
    assert found.returncode == code, line
    return line


async def test_the_life_of_a_registration(connection: asyncpg.Connection, dsn: str) -> None:
    at = f"--database={dsn}"
    arguments = [
        "experiments",
        "--key=id",
        "--owner=workspace_id",
        '--filter=workspace_id,state,"with,comma"',
    ]
    sql = await done("add", *arguments, at, "--dry-run")
    assert "create trigger zzz_moorline_stamp" in sql
    assert json.loads(await done("list", at, "--json")) == []
    assert json.loads(await done("add", *arguments, at, "--json")) == {
        "name": "experiments",
        "capture": "log",
    }
    (row,) = json.loads(await done("list", at, "--json"))
    assert row == {
        "name": "experiments",
        "table": '"public"."experiments"',
        "key": ["id"],
        "owner": "workspace_id",
        "filters": ["workspace_id", "state", "with,comma"],
        "capture": "log",
        "is_dropped": False,
        "topic": None,
        "home": None,
        "published_by": None,
        "problem": "",
    }
    assert "as it should be" in await done("check", "experiments", at)
    assert await done("types", "experiments", at) == (
        "/** A row of experiments, as Moorline sends it. */\n"
        "export interface Experiments {\n"
        "  id: number | string;\n"
        "  workspace_id: number;\n"
        "  state: string | null;\n"
        "  n: string | null;\n"
        '  "odd name": unknown | null;\n'
        '  "with,comma": number | null;\n'
        "}\n"
    )
    await connection.execute("alter table experiments disable trigger zzz_moorline_stamp")
    found = await moor("check", "experiments", at, "--json")
    assert found.returncode == 24
    assert [fault["code"] for fault in json.loads(found.stdout)["faults"]] == ["bypassed"]
    assert "new epoch" in await done("renew", "experiments", "--touch", at)
    assert "drop column" in await done("remove", "experiments", "--dry-run", at)
    await done("remove", "experiments", "--yes", at)
    assert json.loads(await done("list", at, "--json")) == []


@pytest.mark.usefixtures("connection")
async def test_wrong_commands_are_refused_with_a_word(dsn: str, tmp_path: Path) -> None:
    at = f"--database={dsn}"
    assert "no column nothing" in await refused(24, "add", "experiments", "--key=nothing", at)
    assert "there is no table" in await refused(24, "add", "nothing", "--key=id", at)
    assert "accepted: log, notify" in await refused(
        3, "add", "experiments", "--key=id", "--capture=logical", at
    )
    assert "--owner-from" in await refused(
        24, "add", "experiments", "--key=id", "--owner=state", "--owner-from=a.b", at
    )
    for command in ("remove", "check", "renew", "types"):
        asked = ("--yes",) if command == "remove" else ()
        assert "registered as nothing" in await refused(24, command, "nothing", *asked, at)
    line = await refused(3, "list", "--database=postgresql://me:s3cret@host/db")
    assert "s3cret" not in line
    assert "--database-file" in line
    assert "there are: none" in await refused(3, "list", "--database=elsewhere")
    assert "two databases" in await refused(3, "list", at, f"--database-file={tmp_path}/x")
    line = await refused(7, "list", "--database=postgresql://nobody@127.0.0.1:1/db")
    assert "the database postgresql://nobody@127.0.0.1:1/db" in line
    secret = tmp_path / "address"
    secret.write_text("postgresql://nobody:s3cret@127.0.0.1:1/db\n")
    assert "s3cret" not in await refused(7, "list", f"--database-file={secret}")
    secret.write_text("s3cret\n")
    assert "s3cret" not in await refused(3, "list", f"--database-file={secret}")


@pytest.mark.usefixtures("connection")
async def test_a_database_of_the_settings_is_named_by_a_file(dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "address"
    file.write_text(dsn + "\n")
    setting = f"--set=records.databases=analytics={file}"
    await done("add", "experiments", "--key=id", "--database=analytics", setting)
    assert len(json.loads(await done("list", "--database=analytics", setting, "--json"))) == 1
    line = await refused(
        3, "list", f"--set=records.databases=a={dsn.replace('postgres@', 'me:s3cret@')}"
    )
    assert "s3cret" not in line


async def test_without_a_name_it_is_the_catalog_of_the_node(tmp_path: Path) -> None:
    line = await refused(7, "list", f"--data={tmp_path / 'data'}")
    assert "no node with an embedded catalog runs" in line
    with NodeProcess(tmp_path / "data"):
        assert json.loads(await done("list", f"--data={tmp_path / 'data'}", "--json")) == []


@pytest.mark.parametrize("command", COMMANDS)
async def test_help_ends_with_an_example(command: str) -> None:
    lines = [line for line in (await done(command, "--help")).splitlines() if line.strip()]
    assert f"Example: moor records {command}" in lines[-1]


async def test_a_table_of_an_older_version_is_told_and_is_no_failure(
    connection: asyncpg.Connection, dsn: str
) -> None:
    await connection.execute(THINGS)
    await register_as_0_2_0(connection)
    told = await done("check", "things", f"--database={dsn}")
    assert told.startswith("form: its triggers are of an older version")
    assert told.endswith("things is as it should be\n")
