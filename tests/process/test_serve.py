"""`moor serve` as a user meets it: real processes, real signals, real mistakes."""

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from tests.process.nodes import MOOR, NodeProcess, clean_environment, processes_in, run_moor
from tests.waiting import eventually

import moorline
from moorline.limits import STOP_MS_MAX
from moorline.node.folder import held

pytestmark = pytest.mark.process


async def echo(address: str) -> bytes:
    async with moorline.connect(address, reconnect=False) as moor:
        return await moor.echo(b"hello")


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def one_line(text: str) -> str:
    """The single line of an error, never a traceback."""
    lines = [line for line in text.splitlines() if line.startswith("moor:")]
    assert "Traceback" not in text
    assert len(lines) == 1, text
    return lines[0]


def test_it_gets_ready_answers_and_stops_with_its_postgres(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", is_first_start=True) as node:
        assert node.ready_line.startswith("moor: node-1 ready: tcp://127.0.0.1:")
        assert f"pid={node.process.pid}" in node.ready_line
        assert asyncio.run(echo(node.address)) == b"hello"
        assert len(processes_in(tmp_path / "data")) > 1
        assert node.stop() == 0
    assert processes_in(tmp_path / "data") == []
    assert not (tmp_path / "data" / "node.json").exists()


def test_health_and_metrics_are_on_the_http_port(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        status, body = fetch(f"{node.http}/healthz")
        assert (status, json.loads(body)["ok"]) == (200, True)
        status, body = fetch(f"{node.http}/metrics")
        assert status == 200
        assert "moorline_connections 0.0" in body
        assert 'moorline_node_info{node="node-1"' in body
        assert fetch(f"{node.http}/nothing")[0] == 404


def test_status_finds_the_node_and_speaks_json(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", "--node=harbour") as node:
        shown = run_moor("status", f"--data={tmp_path / 'data'}")
        assert shown.returncode == 0, shown.stderr
        assert "harbour" in shown.stdout
        facts = json.loads(run_moor("status", f"--address={node.address}", "--json").stdout)
        assert facts["node"] == "harbour"
        assert facts["roles"] == ["resolver", "broker", "records", "console"]
        assert facts["process"] == node.process.pid


def test_status_without_a_node_says_so() -> None:
    shown = run_moor("status", "--address=tcp://127.0.0.1:1")
    assert shown.returncode == moorline.Unreachable.exit_code
    assert "is the node running" in one_line(shown.stderr)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_in_bounded_time(tmp_path: Path, number: signal.Signals) -> None:
    with NodeProcess(tmp_path / "data") as node:
        node.signal(number)
        assert node.process.wait(STOP_MS_MAX / 1_000 + 2) == 0


def test_a_signal_during_the_start_ends_it_too(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", wait=False, is_first_start=True) as node:
        eventually(lambda: (tmp_path / "data" / "lock").exists())
        node.signal(signal.SIGTERM)
        assert node.process.wait(STOP_MS_MAX / 1_000 + 2) in {0, -signal.SIGTERM}
    eventually(lambda: processes_in(tmp_path / "data") == [])


def test_clients_connected_do_not_delay_the_stop(tmp_path: Path) -> None:
    async def scenario(node: NodeProcess) -> str:
        async with moorline.connect(node.address, reconnect=False) as moor:
            await moor.echo(b"hello")
            node.signal(signal.SIGTERM)
            try:
                while True:
                    await moor.echo(b"again")
            except moorline.ConnectionLost as error:
                return str(error)

    with NodeProcess(tmp_path / "data") as node:
        assert "STOPPING" in asyncio.run(scenario(node))
        assert node.process.wait(STOP_MS_MAX / 1_000 + 2) == 0


def test_open_http_connections_neither_delay_the_stop_nor_trouble_the_log(tmp_path: Path) -> None:
    """One that says nothing, one in the middle of its head, one that was served: none is our mistake."""
    with NodeProcess(tmp_path / "data") as node, contextlib.ExitStack() as stack:
        found = urllib.parse.urlsplit(node.http)
        assert found.hostname is not None
        assert found.port is not None
        for said in (
            b"",
            b"GET /metrics HTTP/1.1\r\nHost: n",
            b"GET / HTTP/1.1\r\nHost: n\r\n\r\n",
        ):
            client = stack.enter_context(socket.create_connection((found.hostname, found.port), 10))
            client.sendall(said)
        # The last is answered, so the node has taken all three.
        assert client.recv(1_024).startswith(b"HTTP/1.1 200")
        assert node.stop() == 0
        assert "Exception" not in node.errors
        assert "Traceback" not in node.errors
        assert "ERROR" not in node.errors.upper()


def test_a_bad_certificate_is_one_line_that_names_the_file(tmp_path: Path) -> None:
    shown = run_moor(
        "serve",
        f"--data={tmp_path / 'data'}",
        "--listen=tls://127.0.0.1:0",
        f"--tls-certificate={tmp_path / 'none.pem'}",
        f"--tls-key={tmp_path / 'none.key'}",
    )
    assert shown.returncode == 3
    line = one_line(shown.stderr)
    assert f"tls_certificate: '{tmp_path / 'none.pem'}': there is no such file" in line


def test_after_kill_9_the_next_start_recovers_by_itself(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for _ in range(3):
        with NodeProcess(data) as node:
            assert asyncio.run(echo(node.address)) == b"hello"
            node.kill()
    with NodeProcess(data) as node:
        assert asyncio.run(echo(node.address)) == b"hello"
        assert node.stop() == 0


def test_its_postgres_goes_with_a_killed_node(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        node.kill()
    eventually(lambda: processes_in(tmp_path / "data") == [])


def test_a_node_whose_postgres_is_killed_ends_with_a_clear_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodeProcess(data) as node:
        postmaster = int((data / "catalog" / "postmaster.pid").read_text().splitlines()[0])
        os.kill(postmaster, signal.SIGKILL)
        assert node.process.wait(30) == 7
        assert "Postgres" in one_line(node.errors)
    with NodeProcess(data) as node:
        assert asyncio.run(echo(node.address)) == b"hello"


def test_a_second_node_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        second = run_moor("serve", f"--data={tmp_path / 'data'}", "--listen=tcp://127.0.0.1:0")
        assert second.returncode == 4
        assert f"process {node.process.pid}" in one_line(second.stderr)
        assert asyncio.run(echo(node.address)) == b"hello"


@pytest.mark.parametrize(
    ("flag", "remedy"),
    [
        ("--listen=tcp://127.0.0.1:{}", "give --listen tcp://127.0.0.1:0 for"),
        ("--http=127.0.0.1:{}", "give --http off, or --http 127.0.0.1:0 for"),
    ],
)
def test_a_taken_port_is_named_and_the_flag_that_takes_another(
    tmp_path: Path, flag: str, remedy: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        flags = {"--listen": "tcp://127.0.0.1:0", "--http": "127.0.0.1:0"}
        flags |= dict([flag.format(port).split("=")])
        shown = run_moor(
            "serve", f"--data={tmp_path / 'data'}", *(f"{k}={v}" for k, v in flags.items())
        )
    assert shown.returncode == 5
    assert f"127.0.0.1:{port} is taken" in one_line(shown.stderr)
    assert remedy in shown.stderr
    assert processes_in(tmp_path / "data") == []


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--set", "colour=red"], "colour"),
        (["--log-format=xml"], "log_format"),
        (["--listen=tcp://0.0.0.0:0"], "anonymous"),
        (["--roles=cook"], "cook"),
    ],
)
def test_a_bad_configuration_is_refused_by_name(
    tmp_path: Path, flags: list[str], text: str
) -> None:
    shown = run_moor("serve", f"--data={tmp_path / 'data'}", *flags)
    assert shown.returncode == 3
    assert text in one_line(shown.stderr)
    assert not (tmp_path / "data").exists()


def test_a_folder_that_is_a_file_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("I am a file")
    shown = run_moor("serve", f"--data={tmp_path / 'data'}")
    assert shown.returncode == 6
    assert "cannot be used" in one_line(shown.stderr)


def test_a_folder_without_rights_is_unusable(tmp_path: Path) -> None:
    """Root may do everything, so a root runs this as nobody."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    command = [*MOOR, "serve", f"--data={folder / 'data'}"]
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all", *command]
        os.chmod(tmp_path, 0o755)
    shown = subprocess.run(
        command, capture_output=True, text=True, env=clean_environment(), check=False
    )
    if "can't open file" in shown.stderr or "No module named" in shown.stderr:
        pytest.skip("this Python is not readable for nobody")
    assert shown.returncode == 6, shown.stderr
    assert "Permission denied" in one_line(shown.stderr)


@pytest.mark.parametrize(
    "catalog",
    ["postgresql://someone:secret@127.0.0.1:1/none", "postgresql://nobody@/x?host=/nowhere"],
)
def test_an_unreachable_catalog_is_named_without_its_password(tmp_path: Path, catalog: str) -> None:
    data, file = f"--data={tmp_path / 'data'}", tmp_path / "address"
    file.write_text(f"{catalog}\n")
    for flags, variables in (
        ([f"--catalog-file={file}"], None),
        ([], {"MOOR_CATALOG": catalog}),
    ):
        shown = run_moor("serve", data, *flags, variables=variables)
        assert shown.returncode == 7
        assert "secret" not in shown.stderr
        one_line(shown.stderr)


def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare on this machine")
    folder = tmp_path / "small"
    folder.mkdir()
    rights = ["-m"] if os.geteuid() == 0 else ["-rm"]
    script = f"mount -t tmpfs -o size=8m small {folder} && exec {' '.join(MOOR)} serve --data={folder}/data"
    shown = subprocess.run(
        [unshare, *rights, "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
        check=False,
    )
    if "permission denied" in shown.stderr.lower() or "not permitted" in shown.stderr.lower():
        pytest.skip("this machine lets nobody mount a small disk")
    assert shown.returncode == 9, shown.stderr
    assert "choose another --data" in one_line(shown.stderr)


def test_a_command_that_looks_at_the_lock_keeps_no_node_from_starting(tmp_path: Path) -> None:
    """`moor status --data` asks the lock whether a node runs, and holds it for a moment."""
    data = tmp_path / "data"
    data.mkdir()
    with (data / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        given_back = threading.Timer(0.04, fcntl.flock, [lock, fcntl.LOCK_UN])
        given_back.start()
        with held(data):
            assert given_back.finished.is_set()
        given_back.join()


def test_a_root_in_name_only_starts_its_postgres(tmp_path: Path) -> None:
    """`unshare -r`: to itself the node is root, and there is no other account to run Postgres as."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-r", "true"], check=False).returncode:
        pytest.skip("this machine gives no user namespaces")
    with NodeProcess(tmp_path / "data", before=[unshare, "-r"], is_first_start=True) as node:
        assert node.stop() == 0
    assert not processes_in(tmp_path)


def test_logs_are_json_lines_when_asked(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", "--log-format=json") as node:
        assert node.stop() == 0
        entries = [json.loads(line) for line in node.errors.splitlines()]
    assert {"ready", "stopping"} <= {entry["event"] for entry in entries}
    assert all({"ts", "level", "room"} <= entry.keys() for entry in entries)
