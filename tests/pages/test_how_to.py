"""README, how-tos and guides are followed word by word; those that start Spark in `test_how_to_spark.py`."""

from pathlib import Path

import pytest
from tests.catalog.databases import empty_database
from tests.kerberos.realm import SEARCHED, missing
from tests.pages.following import ROOT, Reader, needs
from tests.pages.reading import Command

from moorline.catalog import EmbeddedPostgres

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

HOW_TO = ROOT / "docs" / "how-to"
BY_ITSELF = (
    "queue-worker",
    "shared-group",
    "table-in-a-browser",
    "backup",
    "sync",
    "write-a-client",
)


@pytest.mark.parametrize("page", BY_ITSELF)
def test_a_page_that_needs_nothing_else(page: str, tmp_path: Path) -> None:
    text = (HOW_TO / f"{page}.md").read_text()
    typed = [program for program in ("curl", "psql") if f"{program} " in text]
    if gone := needs(*typed):
        pytest.skip(f"no {gone} here")
    with Reader(tmp_path / "clone") as reader:
        reader.follow(HOW_TO / f"{page}.md")


@pytest.mark.parametrize("page", ["README.md", "docs/values.md", "docs/cluster.md"])
def test_a_page_that_is_no_how_to(page: str, tmp_path: Path) -> None:
    with Reader(tmp_path / "clone") as reader:
        reader.follow(ROOT / page)


@pytest.mark.parametrize("page", ["security.md", "configuration.md"])
def test_a_page_for_a_node_that_is_there(page: str, tmp_path: Path) -> None:
    """It calls the program `moor`, as whoever has it in the PATH."""
    kept = {"MOOR_CONTEXTS": str(tmp_path / "contexts.toml")}
    with Reader(tmp_path / "clone", kept) as reader:
        reader.do(Command(".venv/bin/moor serve", [], "ready:"))
        reader.do(Command("export PATH=$PWD/.venv/bin:$PATH", []))
        reader.follow(ROOT / "docs" / page)


def test_mqtt(tmp_path: Path) -> None:
    if gone := needs("mosquitto_pub", "mosquitto_sub"):
        pytest.skip(f"no {gone} here: tools/setup system installs it")
    with Reader(tmp_path / "clone") as reader:
        reader.follow(ROOT / "docs" / "mqtt.md")


def test_an_upgrade_and_the_way_back(tmp_path: Path) -> None:
    """With one program in both places: what becomes of older data is tested in `tests/process`."""
    if gone := needs("curl"):
        pytest.skip(f"no {gone} here")
    with Reader(tmp_path / "clone") as reader:
        for name in ("old", "new"):
            (tmp_path / "clone" / name).symlink_to(".venv")
        reader.follow(HOW_TO / "upgrade.md")


async def test_a_cluster(tmp_path: Path, postgres: EmbeddedPostgres) -> None:
    dsn = await empty_database(postgres)
    with Reader(tmp_path / "clone") as reader:
        address = tmp_path / "clone" / "catalog.address"
        address.write_text(dsn)
        address.chmod(0o600)
        reader.follow(HOW_TO / "cluster.md")


async def test_a_cluster_that_is_restored(tmp_path: Path, postgres: EmbeddedPostgres) -> None:
    with Reader(tmp_path / "clone") as reader:
        for name in ("catalog.address", "fresh.address"):
            address = tmp_path / "clone" / name
            address.write_text(await empty_database(postgres))
            address.chmod(0o600)
        reader.follow(HOW_TO / "restore-a-cluster.md")


def test_kerberos(tmp_path: Path) -> None:
    if why := missing():
        pytest.skip(why)
    with Reader(tmp_path / "clone", {"PATH": SEARCHED}) as reader:
        reader.follow(HOW_TO / "kerberos.md")
