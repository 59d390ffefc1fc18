"""`moor queue` against a real node, as a person and as a script."""

import asyncio
import base64
import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import Commands, check_example, guide, proving, running
from tests.journal.queues.stores import filled
from tests.process.nodes import MOOR, NodeProcess, clean_environment, run_moor

from moorline.client.connecting import connect
from moorline.journal.disk import FileDisk

pytestmark = pytest.mark.process

COMMANDS = ["create", "send", "read", "list", "show", "delete", "off", "block", "unblock"]
COMMANDS += ["check", "repair", "purge"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    yield from running(tmp_path_factory, "queue")


class Moor(Commands):
    noun = "queue"

    def texts(self, queue: str, *flags: str) -> list[str]:
        return [str(one["text"]) for one in self.json("read", queue, "--json", *flags)]


@pytest.fixture
def moor(node: NodeProcess) -> Moor:
    return Moor(node)


@pytest.fixture
def queue(moor: Moor) -> str:
    (made,) = moor.lines("create")
    return made


def test_a_message_goes_in_and_out_once(moor: Moor, queue: str) -> None:
    (message,) = moor.lines("send", queue, "ahoy")
    assert moor.lines("read", queue, "--no-ack")[0].startswith(f"{message}  20")
    (line,) = moor.lines("read", queue)
    assert line.split("  ")[0] == message
    assert line.endswith("  ahoy")
    assert moor.lines("read", queue) == []


def test_create_makes_as_many_as_are_asked_for(moor: Moor) -> None:
    made = moor.lines("create", "--count", "300")
    assert len(set(made)) == 300
    assert {len(one) for one in made} == {32}


def test_send_takes_files_stdin_and_lines(moor: Moor, queue: str, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"from a file")
    moor.lines("send", queue, "--file", str(tmp_path / "body"))
    moor.lines("send", queue, "-", stdin=b"all of stdin")
    assert len(moor.lines("send", queue, "-", "--lines", stdin=b"one\r\n\ntwo")) == 3
    expected = ["from a file", "all of stdin", "one", "", "two"]
    assert moor.texts(queue) == expected


def test_count_stops_and_acknowledges_no_more(moor: Moor, queue: str) -> None:
    moor.lines("send", queue, "-", "--lines", stdin=b"".join(b"%d\n" % n for n in range(100)))
    assert moor.texts(queue, "--count", "1") == ["0"]
    assert moor.texts(queue, "--count", "3", "--no-ack") == ["1", "2", "3"]
    assert moor.texts(queue, "--count", "70") == [str(n) for n in range(1, 71)]
    assert moor.texts(queue) == [str(n) for n in range(71, 100)]


def test_json_has_the_bytes_and_the_text_if_it_is_text(moor: Moor, queue: str) -> None:
    moor.lines("send", queue, "-", stdin=b"\x00\xff")
    moor.lines("send", queue, "grüße")
    binary, text = (json.loads(line) for line in moor.lines("read", queue, "--json"))
    assert base64.b64decode(binary["body"]) == b"\x00\xff"
    assert "text" not in binary
    assert text["text"] == base64.b64decode(text["body"]).decode() == "grüße"
    assert binary["message"] < text["message"]
    assert binary["is_quota_marker"] is False


def test_a_message_cannot_steer_the_terminal(moor: Moor, queue: str) -> None:
    moor.lines("send", queue, "-", stdin=b"\x1b[2J\nforged line")
    (line,) = moor.lines("read", queue, "--no-ack")
    assert "\x1b" not in line
    assert line.endswith("(16 bytes: --json shows them)")
    moor.lines("send", queue, "\u202eturned")
    assert "\u202e" not in "".join(moor.lines("read", queue))


def test_quota_is_named_with_its_line_and_the_marker_is_shown(moor: Moor, queue: str) -> None:
    """J04: the sender is refused, the recipient sees where."""
    lines = b"x\n" * 130
    done = moor("send", queue, "-", "--lines", stdin=lines)
    assert done.returncode == 12
    assert len(done.stdout.splitlines()) == 128
    assert done.stderr.startswith(b"moor: line 129: the queue is full")
    shown = moor.lines("read", queue)
    assert len(shown) == 129
    assert "quota marker" in shown[-1]
    moor.lines("send", queue, "again")


def test_list_pages_through_all(moor: Moor, queue: str) -> None:
    moor.lines("send", queue, "ahoy")
    rows = [json.loads(line) for line in moor.lines("list", "--json")]
    assert {"queue": queue, "waiting": 1} in rows
    ids = [row["queue"] for row in rows]
    assert len(set(ids)) == len(ids)
    head, *plain = moor.lines("list")
    assert head.split() == ["queue", "waiting"]
    assert [line.split()[0] for line in plain] == ids
    assert len(moor.lines("list", "--json", "--limit", "1")) == 1


def test_info_says_what_a_queue_is(moor: Moor, queue: str) -> None:
    moor.lines("send", queue, "ahoy")
    moor.lines("off", queue, "--yes")
    facts = json.loads("".join(moor.lines("show", queue, "--json")))
    assert facts["queue"] == queue
    assert (facts["waiting"], facts["is_suspended"], facts["is_blocked"]) == (1, True, False)
    shown = dict(line.split(maxsplit=1) for line in moor.lines("show", queue))
    assert (facts["owner"], shown["owner"]) == ("", "nobody")
    assert shown["suspended"] == "yes"


def test_close_and_open(moor: Moor, queue: str) -> None:
    moor.lines("close", queue)
    assert json.loads("".join(moor.lines("show", queue, "--json")))["is_closed"]
    # Whoever is on this machine is granted it, as at everything.
    moor.lines("send", queue, "granted")
    moor.lines("open", queue)
    shown = dict(line.split(maxsplit=1) for line in moor.lines("show", queue))
    assert shown["closed"] == "no"


def test_off_block_and_delete(moor: Moor, queue: str) -> None:
    moor.lines("send", queue, "before")
    moor.lines("off", queue, "--yes")
    assert "takes no more" in moor.error(12, "send", queue, "after")
    moor.lines("block", queue)
    assert "blocked" in moor.error(12, "read", queue)
    moor.lines("unblock", queue)
    assert moor.texts(queue) == ["before"]
    moor.lines("delete", queue, "--yes")
    told = moor.error(12, "show", queue)
    assert told == "moor: there is no queue of that id: moor queue list shows those there are"
    assert "no queue of that id" in moor.error(12, "send", queue, "x")


def test_an_empty_queue_is_read_and_one_that_is_not_there_is_not(moor: Moor, queue: str) -> None:
    for flags in ([], ["--count", "1"], ["--count", "5"], ["--no-ack"], ["--json"]):
        assert moor.lines("read", queue, *flags) == []
        assert "no queue of that id" in moor.error(12, "read", "A" * 32, *flags)
    moor.lines("block", queue)
    for flags in ([], ["--count", "1"], ["--no-ack"]):
        assert "blocked" in moor.error(12, "read", queue, *flags)


def test_an_empty_queue_of_another_is_not_read(tmp_path: Path) -> None:
    """Whoever may look at all queues, and read none."""
    with proving(tmp_path, "olga") as proven:

        async def created() -> str:
            async with connect(
                proven.address, ca=proven.ca, certificate=proven.certificates
            ) as olga:
                return str(await olga.create_queue())

        queue = asyncio.run(created())
        denied = ["grant", "add", "/queues", "@loopback", "s", "--deny"]
        assert run_moor(*denied, f"--address={proven.node.address}").returncode == 0
        stranger = Moor(proven.node)
        assert stranger.lines("show", queue)
        for flags in ([], ["--count", "1"], ["--no-ack"], ["--follow"]):
            assert "s (subscribe) is not granted" in stranger.error(12, "read", queue, *flags)


class Journal(Commands):
    noun = "journal"


def test_a_damaged_queue_is_checked_and_repaired_while_the_node_runs(
    moor: Moor, node: NodeProcess, queue: str
) -> None:
    """And the checkpoint that brings its messages into its files is asked for, not waited for."""
    journal = Journal(node)
    moor.lines("send", queue, "-", "--lines", stdin=b"first\nsecond\nthird\n")
    (done,) = journal.json("checkpoint", "--json")
    assert done["log_bytes_left"] == 0
    assert int(str(done["queues"])) >= 1
    assert "the log had" in journal.lines("checkpoint")[0]
    assert moor.lines("check", queue) == ["3 messages: nothing is wrong"]
    folder = node.data / "queues" / "messages"
    (file,) = [path for path in folder.rglob("messages.*.log") if b"second" in path.read_bytes()]
    file.write_bytes(file.read_bytes().replace(b"second", b"secOnd"))
    assert "`moor queue repair" in moor.error(15, "check", queue)
    assert "damaged" in moor.error(12, "read", queue)
    moor.error(12, "send", queue, "refused")
    (found,) = json.loads(moor("check", queue, "--json").stdout)["problems"]
    assert found["kind"] == "quarantine"
    (repaired,) = moor.json("repair", queue, "--json")
    assert (repaired["is_clean"], repaired["saved"], repaired["lost"]) == (True, 2, 1)
    assert moor.lines("check", queue) == ["2 messages: nothing is wrong"]
    moor.lines("send", queue, "fourth")
    assert moor.texts(queue) == ["first", "third", "fourth"]
    journal.check_help("checkpoint")


class Clock(Commands):
    noun = "clock"


def test_a_clock_that_has_not_jumped_needs_no_confirmation(node: NodeProcess) -> None:
    clock = Clock(node)
    assert clock.lines("confirm") == ["the clock had not jumped: nothing to confirm"]
    (said,) = clock.json("confirm", "--json")
    assert said == {"was_held": False, "jump_ms": 0}
    clock.check_help("confirm")


def test_a_message_may_begin_with_a_dash(moor: Moor, queue: str) -> None:
    texts = ["-5", "-0.5e3", "- an item", "-5 --lines"]
    for text in texts:
        moor.lines("send", queue, text)
    moor.lines("send", "--", queue, "--lines")
    assert moor.texts(queue) == [*texts, "--lines"]
    for slip in ("-x", "--line", "--fil"):
        assert "No such option" in moor.error(2, "send", queue, slip)
        assert "unexpected extra argument" in moor.error(2, "send", queue, "-5", slip)
    assert moor.lines("read", queue) == []


def test_mistakes_are_one_line(moor: Moor, queue: str, tmp_path: Path) -> None:
    assert "is not an id" in moor.error(2, "read", "nonsense")
    assert "give the message" in moor.error(2, "send", queue)
    assert "give the message" in moor.error(2, "send", queue, "x", "--file", "y")
    assert "cannot be read" in moor.error(2, "send", queue, "--file", str(tmp_path / "none"))
    (tmp_path / "large").write_bytes(bytes(2 << 20))
    assert "no node takes that" in moor.error(12, "send", queue, "--file", str(tmp_path / "large"))
    assert "at most 16384" in moor.error(12, "send", queue, "-", stdin=bytes(16_385))


def test_follow_waits_for_more_until_it_is_stopped(moor: Moor, queue: str) -> None:
    process = subprocess.Popen(
        [*MOOR, "queue", "read", queue, "--follow", "--json", f"--address={moor.node.address}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )
    assert process.stdout is not None
    for text in ("one", "two"):
        moor.lines("send", queue, text)
        assert json.loads(process.stdout.readline())["text"] == text
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"Traceback" not in errors


def test_lines_are_sent_as_they_come(moor: Moor, queue: str) -> None:
    """`tail -f | moor queue send - --lines` does not wait for a batch to be full."""
    process = subprocess.Popen(
        [*MOOR, "queue", "send", queue, "-", "--lines", f"--address={moor.node.address}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for text in (b"one\n", b"two\n"):
        process.stdin.write(text)
        process.stdin.flush()
        assert int(process.stdout.readline())
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(20) == 130
    process.communicate()
    assert moor.texts(queue) == ["one", "two"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_ends_with_an_example(moor: Moor, command: str) -> None:
    moor.check_help(command)


GUIDE, EXAMPLES = guide("queues.md")


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_python_of_the_guide_works(node: NodeProcess, example: str) -> None:
    check_example(node, example)


def test_the_commands_of_the_guide_work(node: NodeProcess, tmp_path: Path) -> None:
    """Those of `moor queue` on a node, then those of `moor journal` on a folder."""
    filled(FileDisk(tmp_path / "moorline-data" / "queues"))
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
    assert len(blocks) == 6
    for block in blocks:
        script = f'set -eo pipefail\nmoor() {{ {shlex.join(MOOR)} "$@"; }}\n{block}'
        done = subprocess.run(
            ["bash", "-c", script],
            capture_output=True,
            timeout=60,
            cwd=tmp_path,
            env={**clean_environment(), "MOOR_ADDRESS": node.address},
            check=False,
        )
        assert done.returncode == 0, (block, done.stderr)


def test_purge_empties_a_full_queue_and_leaves_it(moor: Moor, queue: str) -> None:
    full = moor("send", queue, "-", "--lines", stdin=b"line\n" * 200)
    assert full.returncode == 12, full.stderr
    waiting = moor.json("show", queue, "--json")[0]["waiting"]
    assert waiting == 129, "with the mark of the quota"
    assert "--yes" in moor.error(2, "purge", queue)
    assert moor.json("purge", queue, "--yes", "--json") == [{"queue": queue, "purged": 129}]
    assert moor.json("purge", queue, "--yes", "--json") == [{"queue": queue, "purged": 0}]
    moor.lines("send", queue, "fresh")
    assert moor.texts(queue) == ["fresh"]
