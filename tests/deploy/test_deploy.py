"""What is in deploy/ fits the program: its commands, settings, exit codes and metrics."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.process.nodes import MOOR, NodeProcess, clean_environment

from moorline import errors
from moorline.config.keys import keys_of
from moorline.config.settings import Config
from moorline.limits import STOP_MS_MAX

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd/moorline.service"
METRIC = re.compile(r"\b(?:moorline|process)_[a-z_]+")
EXPOSURE = re.compile(r"exposure level for \S+: ([\d.]+)")


def unit() -> dict[str, list[str]]:
    """Its section [Service]; a key may stand there several times."""
    found: dict[str, list[str]] = {}
    inside = ""
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            inside = line
        elif inside == "[Service]" and line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def placed(command: str, data: Path, file: Path) -> list[str]:
    """The command of the unit, with our program and our paths in the places of those of a machine."""
    words = shlex.split(command)
    assert words[0] == "/opt/moorline/bin/moor"
    there = {"/etc/moorline/moorline.toml": str(file), "/var/lib/moorline": str(data)}
    return [*MOOR, *(there.get(word, word) for word in words[1:])]


def settings_file(folder: Path) -> Path:
    file = folder / "moorline.toml"
    subprocess.run([*MOOR, "config", "init", str(file)], check=True, env=clean_environment())
    # At its head: the rest of it stands in sections.
    own = 'listen = ["tcp://127.0.0.1:0"]\nhttp = "127.0.0.1:0"\nmqtt = []\n'
    file.write_text(own + file.read_text())
    return file


def test_systemd_takes_the_unit_and_finds_it_closed() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on this machine")
    said = subprocess.run(
        ["systemd-analyze", "verify", str(UNIT)], capture_output=True, text=True, check=False
    ).stderr
    wrong = [line for line in said.splitlines() if "moorline.service" in line]
    assert [line for line in wrong if "/opt/moorline/bin/moor" not in line] == []
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(UNIT)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    found = EXPOSURE.search(judged)
    assert found is not None, judged
    assert float(found[1]) <= 1.5


def test_the_unit_does_not_repeat_what_a_start_cannot_mend() -> None:
    codes = {int(code) for code in unit()["RestartPreventExitStatus"][0].split()}
    assert codes == {
        kind.exit_code
        for kind in (
            errors.ConfigError, errors.FolderInUse, errors.CatalogTooNew, errors.LogDamaged,
            errors.IdentityTaken, errors.FormatTooNew,
        )
    }  # fmt: skip
    assert int(unit()["TimeoutStopSec"][0]) * 1_000 > STOP_MS_MAX


@pytest.mark.process
def test_the_commands_of_the_unit_start_a_node_that_says_when_it_serves(tmp_path: Path) -> None:
    file, data = settings_file(tmp_path), tmp_path / "data"
    service = unit()
    checked = subprocess.run(
        placed(service["ExecStartPre"][0], data, file), env=clean_environment(), check=False
    )
    assert checked.returncode == 0
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(60)
        with (tmp_path / "log").open("wb") as log:
            node = subprocess.Popen(
                placed(service["ExecStart"][0], data, file),
                env={**clean_environment(), "NOTIFY_SOCKET": str(path)},
                stdout=log,
                stderr=log,
            )
        try:
            ready = manager.recv(4_096).decode().splitlines()
            assert ready[0] == "READY=1"
            assert f"MAINPID={node.pid}" in ready
            assert "ready: tcp://127.0.0.1:" in ready[1]
            node.terminate()
            assert manager.recv(4_096).decode().splitlines() == ["STOPPING=1", "STATUS=SIGTERM"]
            assert node.wait(30) == 0
        finally:
            if node.poll() is None:
                node.kill()
                node.wait()


@pytest.mark.process
def test_a_service_manager_that_is_gone_keeps_no_node(tmp_path: Path) -> None:
    previous = os.environ.get("NOTIFY_SOCKET")
    os.environ["NOTIFY_SOCKET"] = str(tmp_path / "nobody")
    try:
        with NodeProcess(tmp_path / "data") as node:
            assert node.stop() == 0
    finally:
        if previous is None:
            del os.environ["NOTIFY_SOCKET"]
        else:
            os.environ["NOTIFY_SOCKET"] = previous


def test_the_container_copies_what_is_there_and_starts_what_works() -> None:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", text, re.M)
    assert copied
    for source in (name for line in copied for name in line.split()):
        assert (ROOT / source).exists(), source
    variables = {key.variable for key in keys_of(Config).values()}
    assert set(re.findall(r"\b(MOOR_[A-Z_]+)=", text)) <= variables
    assert set(re.search(r"^EXPOSE (.*)$", text, re.M)[1].split()) == {"7411", "7412", "1883"}  # type: ignore[index]
    command = [
        *json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.M)[1]),  # type: ignore[index]
        *json.loads(re.search(r"^CMD (.*)$", text, re.M)[1]),  # type: ignore[index]
    ]
    assert command == ["moor", "serve"]


@pytest.mark.process
def test_the_check_of_the_container_finds_its_node_wherever_it_listens(tmp_path: Path) -> None:
    text = (DEPLOY / "Containerfile").read_text()
    probe = json.loads(re.search(r" CMD (\[.*\])$", text, re.M)[1])  # type: ignore[index]

    def code() -> int:
        told = {**clean_environment(), "MOOR_DATA": str(tmp_path / "data")}
        return subprocess.run(
            [sys.executable, *probe[1:]], env=told, capture_output=True, check=False
        ).returncode

    with NodeProcess(tmp_path / "data") as node:
        assert code() == 0
        node.stop()
    assert code() != 0


# --- metrics ----------------------------------------------------------------------------------------


def queries(tree: Any) -> Iterator[str]:
    """Every `expr` and `definition` below."""
    match tree:
        case dict():
            for key, value in tree.items():
                if key in {"expr", "definition"} and isinstance(value, str):
                    yield value
                else:
                    yield from queries(value)
        case list():
            for value in tree:
                yield from queries(value)


def load(name: str) -> Any:
    text = (DEPLOY / name).read_text()
    return json.loads(text) if name.endswith(".json") else yaml.safe_load(text)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The metrics of a node with all roles."""
    with NodeProcess(tmp_path_factory.mktemp("node") / "data") as node:
        with urllib.request.urlopen(f"{node.http}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        assert node.stop() == 0
    return {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}


@pytest.mark.parametrize("name", ["prometheus/alerts.yaml", "grafana/moorline.json"])
def test_every_metric_that_is_asked_for_is_shown(name: str, shown: set[str]) -> None:
    asked = {metric for query in queries(load(name)) for metric in METRIC.findall(query)}
    assert len(asked) > 15
    assert asked - shown == set()


def test_a_node_says_how_many_problems_it_has(shown: set[str]) -> None:
    assert {"moorline_problems", "moorline_problems_refusing", "moorline_problems_ending"} <= shown


def test_every_alert_says_what_it_means_and_what_to_do() -> None:
    rules = [rule for group in load("prometheus/alerts.yaml")["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in {"page", "ticket"}, rule["alert"]
        assert rule["annotations"].keys() == {"summary", "action"}, rule["alert"]
    scraped = load("prometheus/scrape.yaml")["scrape_configs"][0]
    assert scraped["metrics_path"] == "/metrics"
    assert Config().http in scraped["static_configs"][0]["targets"]


def test_the_dashboard_is_what_its_script_makes() -> None:
    source = importlib.util.spec_from_file_location("dashboard", ROOT / "tools/dashboard.py")
    assert source is not None
    assert source.loader is not None
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    assert (DEPLOY / "grafana/moorline.json").read_text() == module.text(), (
        "write it anew: python tools/dashboard.py deploy/grafana/moorline.json"
    )
