"""Which node a command reaches: the one that was meant, or none."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import proving
from tests.process.nodes import MOOR, NodeProcess, clean_environment, run_moor

pytestmark = pytest.mark.process

UNREACHABLE = 10
USAGE = 2
CONFIG = 3


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("reach") / "data") as running:
        yield running


def moor(
    *arguments: str, folder: Path, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command in a folder of its own, with these variables."""
    return run_moor(*arguments, cwd=folder, variables=variables)


def reached(done: subprocess.CompletedProcess[str]) -> bool:
    assert done.returncode == 0, done.stderr
    return "uptime" in done.stdout


def refused(code: int, done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a command that reached nobody."""
    assert (done.returncode, done.stdout) == (code, ""), done.stdout
    (line,) = done.stderr.splitlines()
    return line


def test_a_node_is_reached_by_flag_variable_and_file(node: NodeProcess, tmp_path: Path) -> None:
    data = str(node.data)
    assert reached(moor("status", f"--address={node.address}", folder=tmp_path))
    assert reached(moor("status", f"--data={data}", folder=tmp_path))
    assert reached(moor("status", folder=tmp_path, variables={"MOOR_DATA": data}))
    assert reached(moor("status", folder=tmp_path, variables={"MOOR_ADDRESS": node.address}))
    (tmp_path / "moorline.toml").write_text(f"data = {data!r}\n")
    assert reached(moor("status", folder=tmp_path))
    (tmp_path / "moorline.toml").rename(tmp_path / "other.toml")
    assert reached(moor("status", "--config=other.toml", folder=tmp_path))


@pytest.mark.parametrize(
    "command",
    [("grant", "list"), ("audit", "show"), ("grant", "check", "s", "/topics"), ("ls", "/")],
)
def test_a_path_of_the_tree_is_no_folder_to_read_in_place_of_a_node(
    node: NodeProcess, tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = moor(*command, folder=tmp_path, variables={"MOOR_DATA": str(node.data)})
    assert done.returncode == 0, done.stderr


def test_a_folder_that_is_named_and_has_no_node_is_an_error(
    node: NodeProcess, tmp_path: Path
) -> None:
    """Never another node that happens to listen at the default address, or where a killed one did."""
    lost = tmp_path / "lost"
    with NodeProcess(lost) as killed:
        killed.kill()
    (lost / "node.json").write_bytes((node.data / "node.json").read_bytes())
    for folder in (tmp_path / "typo", lost):
        line = refused(UNREACHABLE, moor("queue", "create", f"--data={folder}", folder=tmp_path))
        assert f"no node runs on the data folder {folder} (from flag)" in line
        variables = {"MOOR_DATA": str(folder)}
        line = refused(UNREACHABLE, moor("queue", "create", folder=tmp_path, variables=variables))
        assert "(from environment MOOR_DATA)" in line
        (tmp_path / "moorline.toml").write_text(f"data = {str(folder)!r}\n")
        line = refused(UNREACHABLE, moor("queue", "create", folder=tmp_path))
        assert "(from file moorline.toml)" in line
        (tmp_path / "moorline.toml").unlink()


def test_a_node_that_hangs_is_still_the_one_that_is_meant(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        node.signal(signal.SIGSTOP)
        done = moor("status", f"--data={node.data}", folder=tmp_path)
        assert node.address in refused(UNREACHABLE, done)
        node.signal(signal.SIGCONT)


def test_two_names_for_a_node_are_refused(node: NodeProcess, tmp_path: Path) -> None:
    flags = (f"--address={node.address}", f"--data={node.data}")
    assert "give one of them" in refused(USAGE, moor("status", *flags, folder=tmp_path))


def test_a_flag_beats_a_variable(node: NodeProcess, tmp_path: Path) -> None:
    nowhere = {"MOOR_ADDRESS": "tcp://127.0.0.1:1", "MOOR_DATA": "/nowhere"}
    for flag in (f"--address={node.address}", f"--data={node.data}"):
        assert reached(moor("status", flag, folder=tmp_path, variables=nowhere))


def test_an_unknown_variable_is_named(node: NodeProcess, tmp_path: Path) -> None:
    variables = {"MOOR_ADRESS": node.address}
    line = refused(CONFIG, moor("status", folder=tmp_path, variables=variables))
    assert "MOOR_ADRESS is unknown, did you mean MOOR_ADDRESS?" in line


def test_a_host_that_is_unknown_is_named() -> None:
    line = refused(UNREACHABLE, run_moor("status", "--address=tcp://no-such-host.invalid:7411"))
    assert "no-such-host.invalid: " in line
    assert "is the name right?" in line


def test_a_tls_port_without_tls_is_hinted_at(tmp_path: Path) -> None:
    with proving(tmp_path, "billing") as proven:
        address = proven.address.replace("tls://", "tcp://")
        line = refused(UNREACHABLE, moor("status", f"--address={address}", folder=tmp_path))
    assert "is it a tls:// port" in line


def test_a_folder_of_another_user_is_not_taken_for_one_without_a_node(node: NodeProcess) -> None:
    """Who may not look into the folder is told to ask by address, not that nothing runs."""
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all", *MOOR]
        probe = subprocess.run([*command, "--version"], capture_output=True, check=False)
        if probe.returncode:
            pytest.skip("this Python is not readable for nobody")
    else:
        node.data.chmod(0o000)
        command = MOOR
    try:
        done = subprocess.run(
            [*command, "status", f"--data={node.data}"],
            capture_output=True,
            text=True,
            timeout=60,
            cwd="/",
            env=clean_environment(),
            check=False,
        )
    finally:
        node.data.chmod(0o700)
    if os.geteuid() == 0:
        assert "does not tell where its node listens" in refused(UNREACHABLE, done)
    else:
        assert "is not readable" in refused(USAGE, done)
