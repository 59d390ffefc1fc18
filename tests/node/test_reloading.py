"""SIGHUP: what a reload takes, what it leaves for a start, and what a wrong file does not do."""

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess, run_moor
from tests.waiting import eventually

from moorline.config.keys import keys_of
from moorline.config.load import load
from moorline.config.settings import Config
from moorline.errors import ConfigError
from moorline.node.reloading import LIVE, Reloading


class Files:
    """A configuration that is read again, and what was taken of it."""

    def __init__(self, file: Path, text: str) -> None:
        self.file = file
        self.taken: list[Config] = []
        self.write(text)
        self.reloading = Reloading(self.read(), self.read, self.taken.append)

    def write(self, text: str) -> None:
        self.file.write_text(text)

    def read(self) -> Config:
        return load({}, {}, self.file).config


def test_every_live_setting_is_one() -> None:
    assert not LIVE - keys_of(Config).keys()


async def test_what_can_change_is_taken_and_the_rest_waits(tmp_path: Path) -> None:
    files = Files(tmp_path / "m.toml", 'log_level = "info"\n')
    files.write(
        'log_level = "debug"\nconnections_max = 100\n[streams]\nretention_s = 60\nshards = 2\n'
    )
    await files.reloading.read()
    (taken,) = files.taken
    assert (taken.log_level, taken.streams.retention_s) == ("debug", 60)
    assert taken.connections_max == Config().connections_max
    assert taken.streams.shards == Config().streams.shards
    assert files.reloading.status() == (
        "ready; settings that wait for a start: connections_max, streams.shards"
    )
    assert files.reloading.problem() == ""


async def test_a_file_that_is_wrong_in_one_place_changes_nothing(tmp_path: Path) -> None:
    files = Files(tmp_path / "m.toml", 'log_level = "info"\n')
    for wrong in ('log_level = "debug"\nnothing = 1\n', "log_level = ", 'log_level = "loud"\n'):
        files.write(wrong)
        await files.reloading.read()
        assert files.taken == []
        assert files.reloading.config.log_level == "info"
        assert "the one before it stays" in files.reloading.problem()
    files.file.unlink()
    await files.reloading.read()
    assert "does not exist" in files.reloading.problem()
    files.write('log_level = "debug"\n')
    await files.reloading.read()
    assert files.reloading.problem() == ""
    assert [one.log_level for one in files.taken] == ["debug"]


async def test_what_waits_is_told_until_it_is_taken_back(tmp_path: Path) -> None:
    files = Files(tmp_path / "m.toml", "")
    files.write("connections_max = 100\n")
    await files.reloading.read()
    assert "connections_max" in files.reloading.status()
    files.write("")
    await files.reloading.read()
    assert files.reloading.status() == "ready"


def test_a_configuration_is_read_again_with_the_same_flags(tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    file.write_text('log_level = "info"\n')
    flags: dict[str, object] = {"node": "harbour"}
    loaded = load(flags, {"MOOR_LOG_FORMAT": "json"}, file)
    flags.clear()
    file.write_text('log_level = "debug"\nnode = "other"\n')
    config = loaded.read_again().config
    assert (config.node, config.log_format, config.log_level) == ("harbour", "json", "debug")
    file.write_text("wrong")
    with pytest.raises(ConfigError):
        loaded.read_again()


def _health(node: NodeProcess) -> str:
    try:
        with urllib.request.urlopen(f"{node.http}/healthz", timeout=10) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


@pytest.mark.process
def test_a_node_takes_a_quota_at_sighup_and_keeps_it_behind_a_wrong_file(tmp_path: Path) -> None:
    file = tmp_path / "moorline.toml"
    file.write_text("")
    with NodeProcess(tmp_path / "data", f"--config={file}") as node:
        where = f"--address={node.address}"
        assert run_moor("queue", "create", where).returncode == 0
        file.write_text('log_level = "debug"\n[access]\nquotas = ["anonymous queues 1"]\n')
        node.signal(signal.SIGHUP)
        eventually(lambda: "the configuration is loaded" in node.errors)
        assert "taken=log_level,access.quotas" in node.errors
        refused = run_moor("queue", "create", where)
        assert "OVER_QUOTA" in refused.stderr or "quota" in refused.stderr, refused.stderr
        file.write_text("[access]\nquotas = 7\n")
        node.signal(signal.SIGHUP)
        eventually(lambda: "the configuration is not taken" in node.errors)
        assert "access.quotas" in json.loads(_health(node))["problems"][0]
        assert run_moor("queue", "create", where).returncode == refused.returncode != 0
        file.write_text("")
        node.signal(signal.SIGHUP)
        eventually(lambda: json.loads(_health(node))["ok"])
        assert run_moor("queue", "create", where).returncode == 0
        assert node.stop() == 0
