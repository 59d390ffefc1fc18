"""`moor audit`: the trail in a data folder, as a table and as JSON, beside a node or without one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from moorline.cli import main
from moorline.cli.main import run
from moorline.core.access.audit import (
    Act,
    AuditProof,
    Detail,
    Kind,
    Verdict,
    encoded,
    line_of,
)
from moorline.journal.audit import FOLDER, AuditFiles, name_of
from moorline.journal.disk import FileDisk
from moorline.net.clock import wall_ms

HOUR_MS = 3_600_000


def line(principal: str, verdict: Verdict, age_ms: int = 0, path: str = "/topics/a") -> bytes:
    act = Act(
        Kind.REFUSAL if verdict is Verdict.DENIED else Kind.OPERATOR,
        principal,
        AuditProof.CERTIFICATE,
        "10.0.0.1:5",
        "Publish",
        path,
        verdict,
        Detail(reason="DENIED", letters="w"),
    )
    return encoded(line_of(act, wall_ms() - age_ms), "node-1")


class Trail:
    """Of a data folder."""

    def __init__(self, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.data = data
        self.files = AuditFiles(FileDisk(data / FOLDER), sync=False)
        self.files.open()
        self._capsys = capsys

    def add(self, *lines: bytes) -> None:
        self.files.append(list(lines), durable=False)

    def show(self, *flags: str) -> tuple[list[str], str]:
        """What it printed, and what it said on stderr."""
        assert run(["audit", "show", f"--data={self.data}", *flags]) == 0
        printed = self._capsys.readouterr()
        return printed.out.splitlines(), printed.err

    def principals(self, *flags: str) -> list[str]:
        lines, _ = self.show("--json", *flags)
        return [json.loads(line)["principal"] for line in lines]


@pytest.fixture
def trail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Trail:
    for name in [name for name in os.environ if name.startswith("MOOR_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    found = Trail(tmp_path / "data", capsys)
    found.add(
        line("old", Verdict.DENIED, 5 * HOUR_MS),
        line("mallory", Verdict.DENIED),
        line("olga", Verdict.GRANTED, path="/queues/x"),
    )
    return found


def test_a_table_shows_who_did_what(trail: Trail) -> None:
    lines, _ = trail.show()
    assert lines[0].split()[:4] == ["time", "kind", "principal", "verdict"]
    assert [row.split()[2:6] for row in lines[1:]] == [
        ["old", "denied", "Publish", "/topics/a"],
        ["mallory", "denied", "Publish", "/topics/a"],
        ["olga", "granted", "Publish", "/queues/x"],
    ]
    assert lines[1].endswith("DENIED w")


@pytest.mark.parametrize(
    ("flags", "principals"),
    [
        ((), ["old", "mallory", "olga"]),
        (("--since=1h",), ["mallory", "olga"]),
        (("--since=2020-01-01",), ["old", "mallory", "olga"]),
        (("--principal=mallory",), ["mallory"]),
        (("--verdict=granted",), ["olga"]),
        (("--kind=refusal",), ["old", "mallory"]),
        (("--path=/queues",), ["olga"]),
        (("--verdict=denied", "--since=90m"), ["mallory"]),
        (("--principal=nobody",), []),
    ],
)
def test_lines_are_chosen(trail: Trail, flags: tuple[str, ...], principals: list[str]) -> None:
    assert trail.principals(*flags) == principals


def test_a_limit_keeps_the_newest_and_says_so(trail: Trail) -> None:
    lines, said = trail.show("--limit=1")
    assert "olga" in lines[1]
    assert len(lines) == 2
    assert "2 older lines" in said


def test_a_torn_line_is_told_and_ends_nothing(trail: Trail) -> None:
    with (trail.data / FOLDER / name_of(1)).open("ab") as file:
        file.write(b'{"time": "torn\n' + line("after", Verdict.DENIED))
    lines, said = trail.show("--json")
    assert json.loads(lines[-1])["principal"] == "after"
    assert "1 line could not be read" in said


def test_what_another_hand_wrote_does_not_steer_the_terminal(trail: Trail) -> None:
    forged = line("mallory", Verdict.DENIED).replace(b"mallory", "m\u009b31m\u202ey".encode())
    with (trail.data / FOLDER / name_of(1)).open("ab") as file:
        file.write(forged)
    for flags in ((), ("--json",)):
        lines, _ = trail.show(*flags)
        assert not set("".join(lines)) & {"\u009b", "\u202e"}


@pytest.mark.parametrize("since", ["yesterday", "99999999d", "1y"])
def test_a_time_that_is_none_is_refused(
    trail: Trail, since: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", "show", f"--data={trail.data}", f"--since={since}"]) == 2
    assert "an age as 30m" in capsys.readouterr().err


def test_a_folder_without_a_trail_is_refused_and_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", "show", f"--data={tmp_path / 'none'}"]) == 6
    assert "--data" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.process
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_follow_prints_lines_as_they_are_written(trail: Trail, flags: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "moorline.cli.main", "audit", "follow", "--since=1h"]
    environment = {**os.environ, "PYTHONPATH": str(Path(main.__file__).parents[2])}
    with subprocess.Popen(
        [*command, f"--data={trail.data}", *flags],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert "mallory" in process.stdout.readline()
        assert "olga" in process.stdout.readline()
        trail.add(line("later", Verdict.DENIED))
        assert "later" in process.stdout.readline()
        process.terminate()
