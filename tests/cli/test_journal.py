"""`moor journal` as an operator meets it: on real folders, with exit codes and in pipes."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.journal.queues.stores import (
    OPTIONS,
    contents,
    filled,
    flip,
    folder_of,
    killed_checkpoints,
    message_file,
    tree,
)
from tests.process.nodes import MOOR, clean_environment

from moorline.cli.main import run
from moorline.ids import text_of
from moorline.journal.disk import FileDisk
from moorline.node.folder import held


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MOOR_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    filled(FileDisk(tmp_path / "data" / "queues"))
    return tmp_path / "data"


def queues(data: Path) -> FileDisk:
    return FileDisk(data / "queues")


def damage(data: Path) -> str:
    """A bad record in one queue; its id."""
    victim = min(contents(queues(data)))
    flip(message_file(folder_of(data / "queues", victim)), 300)
    return text_of(victim)


def test_check_says_that_nothing_is_wrong(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["journal", "check", f"--data={data}"]) == 0
    assert capsys.readouterr().out == "4 queues, 20 messages: nothing is wrong\n"


@pytest.mark.parametrize("name", ["manifest", "00000001.seg"])
def test_check_names_what_stands_in_the_place_of_a_file_of_streams(
    data: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (data / "streams" / "000" / name).mkdir(parents=True)
    assert run(["journal", "check", f"--data={data}"]) == 6
    assert f"Is a directory: 000/{name}" in capsys.readouterr().err.replace(f"{data}/streams/", "")


def test_check_names_the_damage_and_changes_nothing(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = damage(data)
    before = tree(data / "queues")
    assert run(["journal", "check", f"--data={data}"]) == 15
    out, err = capsys.readouterr()
    assert out.splitlines()[1].startswith(victim)
    assert "the check is wrong; 4 messages can be read, 1 are lost" in out
    assert out.splitlines()[-1].endswith("4 messages of damaged queues can be saved, 1 are lost")
    assert err == "moor: 1 problem was found: `moor journal check --repair` puts it right\n"
    assert tree(data / "queues") == before


def test_repair_puts_it_right(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    victim = damage(data)
    assert run(["journal", "check", "--json", f"--data={data}"]) == 15
    found = json.loads(capsys.readouterr().out)
    assert (found["is_clean"], found["saved"], found["lost"]) == (False, 4, 1)
    assert found["problems"][0]["queue"] == victim
    assert run(["journal", "check", "--repair", "--json", f"--data={data}"]) == 0
    repaired = json.loads(capsys.readouterr().out)
    (kept,) = repaired["kept"]
    assert repaired == {
        **found,
        "is_clean": True,
        "is_lossless": True,
        "left": [],
        "kept": [kept],
    }
    assert run(["journal", "check", f"--data={data}"]) == 0
    told = capsys.readouterr().out
    assert told.endswith(f"nothing is wrong\nset aside, remove it when nobody needs it: {kept}\n")
    assert sum(map(len, contents(queues(data)).values())) == 19


def test_what_a_kill_in_the_middle_of_a_checkpoint_leaves_is_no_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed, count = next(killed_checkpoints("none", has_problems=True))
    for path, content in killed.files().items():
        target = tmp_path / "killed" / "queues" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    data = f"--data={tmp_path / 'killed'}"
    assert run(["journal", "check", data]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "a crash leaves this: nothing is lost, and the next start puts it right"
    assert run(["journal", "check", "--json", data]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["is_clean"], found["is_lossless"], found["lost"]) == (False, True, 0)
    assert found["messages"] == count


def test_changes_that_a_damaged_log_has_lost_are_told(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The messages of its only batch were answered: that none is lost would be a lie."""
    segment = max((data / "queues" / "wal").iterdir())
    flip(segment, segment.stat().st_size - 3)
    assert run(["journal", "check", f"--data={data}"]) == 15
    out = capsys.readouterr().out
    assert out.splitlines()[-1].endswith("up to 4 changes of the log are lost")
    assert "0 are lost" not in out
    assert run(["journal", "check", "--json", f"--data={data}"]) == 15
    found = json.loads(capsys.readouterr().out)
    assert (found["lost"], found["lost_changes"], found["is_loss_unknown"]) == (0, 4, False)
    assert found["problems"][0]["lost_changes"] == 4
    assert run(["journal", "check", "--repair", f"--data={data}"]) == 0


@pytest.mark.parametrize("state", [b"", b"read_file=abc", b"bad\nbad\n"])
def test_a_torn_only_state_line_is_mended(
    data: Path, capsys: pytest.CaptureFixture[str], state: bytes
) -> None:
    """For good: the repair ends with 0, and a check after it finds nothing."""
    before = contents(queues(data))
    victim = min(before)
    (folder_of(data / "queues", victim) / "queue.log").write_bytes(state)
    assert run(["journal", "check", "--repair", "--json", f"--data={data}"]) == 0
    repaired = json.loads(capsys.readouterr().out)
    assert (repaired["is_clean"], repaired["left"], repaired["lost"]) == (True, [], 0)
    assert repaired["problems"]
    assert run(["journal", "check", f"--data={data}"]) == 0
    assert contents(queues(data)) == before


@pytest.mark.parametrize(
    "command",
    [
        ["check"],
        ["check", "--repair"],
        ["migrate", "--levels=3"],
        ["export", "x.jsonl"],
        ["import", "-"],
    ],
)
def test_a_running_node_keeps_tools_out(
    data: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with held(data):
        assert run(["journal", *command, f"--data={data}"]) == 4
    told = capsys.readouterr().err
    assert told.startswith(f"moor: a node (process {os.getpid()}) runs on {data}: stop it")
    assert not Path("x.jsonl").exists()


def test_a_folder_without_queues_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["journal", "check", "--data=elsewhere"]) == 6
    assert "there are no queues in elsewhere" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()


def test_migrate_says_what_to_set(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """J13, from the command line."""
    before = contents(queues(data))
    assert run(["journal", "migrate", "--levels=3", f"--data={data}"]) == 0
    assert capsys.readouterr().out == "4 folders moved; now set queues.folder_levels = 3\n"
    assert contents(queues(data)) == before
    assert run(["journal", "migrate", "--levels=9", f"--data={data}"]) == 2


@pytest.mark.slow
def test_export_and_import(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """J11, from the command line, in both formats and through a pipe."""
    assert run(["journal", "export", "q.jsonl", "--json", f"--data={data}"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary == {"queues": 4, "messages": 20, "digest": summary["digest"]}
    assert len(summary["digest"]) == 48
    assert run(["journal", "export", "q.parquet", f"--data={data}"]) == 0
    text = capsys.readouterr().out
    assert text == f"exported 4 queues, 20 messages, digest {summary['digest']}\n"
    for source in ("q.jsonl", "q.parquet"):
        other = f"--data=from-{source}"
        assert run(["journal", "import", source, other]) == 0
        assert capsys.readouterr().out == text.replace("exported", "imported")
        assert run(["journal", "export", "again.jsonl", other]) == 0
        capsys.readouterr()
        assert Path("again.jsonl").read_bytes() == Path("q.jsonl").read_bytes()
    piped = subprocess.run(
        [*MOOR, "journal", "export", "-", f"--data={data}"],
        capture_output=True,
        env=clean_environment(),
        check=True,
    )
    assert piped.stdout == Path("q.jsonl").read_bytes()
    assert piped.stderr.decode() == text
    taken = subprocess.run(
        [*MOOR, "journal", "import", "-", "--data=piped"],
        input=piped.stdout,
        capture_output=True,
        env=clean_environment(),
        check=True,
    )
    assert taken.stdout.decode() == text.replace("exported", "imported")
    assert contents(queues(Path("piped"))) == contents(queues(data))


def test_a_bad_import_is_one_line_and_18(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["journal", "export", "q.jsonl", f"--data={data}"]) == 0
    Path("bad.jsonl").write_text(Path("q.jsonl").read_text() + "\x1b[31m\n")
    capsys.readouterr()
    assert run(["journal", "import", "bad.jsonl", "--data=new"]) == 18
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("moor: line 27: JSON is malformed")
    assert run(["journal", "import", "q.jsonl", f"--data={data}"]) == 18
    assert "is in the store already" in capsys.readouterr().err
    assert run(["journal", "import", "missing.jsonl", "--data=new"]) == 2
    assert run(["journal", "import", "q.csv", "--data=new"]) == 3
    assert run(["journal", "export", "none/q.jsonl", f"--data={data}"]) == 2
    assert run(["journal", "export", "q.csv", f"--data={data}"]) == 3


def test_the_levels_of_the_store_count_not_those_of_the_settings(data: Path) -> None:
    assert OPTIONS.levels == 2
    assert run(["journal", "check", f"--data={data}", "--set", "queues.folder_levels=4"]) == 0


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(data: Path) -> None:
    command = " ".join(
        [*MOOR, "journal", "export", "-", f"--data={data}", "2>err", "|", "head", "-c1"]
    )
    subprocess.run(["bash", "-c", command], env=clean_environment(), check=True)
    assert "Traceback" not in Path("err").read_text()


@pytest.mark.parametrize("command", ["check", "migrate", "export", "import"])
def test_every_help_ends_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["journal", command, "--help"]) == 0
    assert f"Example: moor journal {command}" in capsys.readouterr().out.strip().splitlines()[-1]


@pytest.mark.slow
def test_a_terminal_gets_a_progress_bar(data: Path) -> None:
    """On stderr; stdout stays as it is in a pipe."""
    ours, theirs = os.openpty()
    done = subprocess.run(
        [*MOOR, "journal", "check", f"--data={data}"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**clean_environment(), "TERM": "xterm", "COLUMNS": "80"},
        check=True,
    )
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.stdout == b"4 queues, 20 messages: nothing is wrong\n"
    assert "checking" in shown
    assert "4/4" in shown
