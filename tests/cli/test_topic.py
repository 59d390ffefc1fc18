"""`moor topic` against a real node, as a person and as a script."""

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
from tests.cli.commands import Commands, check_example, guide, running
from tests.process.nodes import MOOR, NodeProcess, clean_environment

from moorline.cli.start import start_of

pytestmark = pytest.mark.process

COMMANDS = ["publish", "tail", "list", "show", "delete"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    yield from running(tmp_path_factory, "topic")


class Moor(Commands):
    noun = "topic"

    def tail(self, filter_text: str, count: int, *flags: str) -> list[dict[str, object]]:
        flags = flags or ("--start=beginning",)
        return self.json("tail", filter_text, "--count", str(count), "--json", *flags)

    def texts(self, filter_text: str, count: int, *flags: str) -> list[object]:
        return [message["text"] for message in self.tail(filter_text, count, *flags)]


@pytest.fixture
def moor(node: NodeProcess) -> Moor:
    return Moor(node)


def test_a_message_is_stored_and_seen(moor: Moor) -> None:
    (first,) = moor.lines("publish", "seen/eu", "ahoy", "-k", "42", "--header", "a=b=c")
    assert re.fullmatch(r"shard \d, offset \d+", first)
    (line,) = moor.lines("tail", "seen/#", "--start", "beginning", "--count", "1")
    assert re.fullmatch(r"20\S+\+00:00  seen/eu  42  ahoy", line)
    (facts,) = moor.tail("seen/+", 1)
    assert facts["headers"] == [["a", base64.b64encode(b"b=c").decode()]]
    assert facts["key"] == base64.b64encode(b"42").decode()
    assert facts["text"] == "ahoy"
    assert (facts["deliveries"], facts["is_retained"]) == (1, False)
    stored = json.loads("".join(moor.lines("publish", "seen/eu", "-5", "--json", "-k", "42")))
    assert stored["offset"] == facts["offset"] + 1  # type: ignore[operator]
    assert f"node-1/{stored['shard']}/1" == facts["stream"]


def test_a_tombstone_is_published_and_shown(moor: Moor) -> None:
    moor.lines("publish", "graves", "", "-k", "42")
    moor.lines("publish", "graves", "--tombstone", "-k", "42")
    empty, gone = moor.tail("graves", 2)
    assert (empty["body"], empty["text"]) == ("", "")
    assert gone["body"] is None
    assert "text" not in gone
    shown = moor.lines("tail", "graves", "--start", "beginning", "--count", "2")
    assert shown[1].endswith("graves  42  (tombstone)")
    assert "a tombstone has no message" in moor.error(2, "publish", "graves", "x", "--tombstone")


def test_files_of_tls_are_refused_where_there_is_none(moor: Moor) -> None:
    told = moor.error(2, "publish", "sure/eu", "ahoy", "--key", "42")
    address = moor.node.address
    assert f"--key is the private key of a TLS certificate, and {address} is not TLS" in told
    assert "; the key of a message is --message-key" in told
    told = moor.error(2, "list", "--key", "42")
    assert f"and {address} is not TLS: give --address tls://HOST:PORT" in told
    assert "--message-key" not in told
    for flag in ("--ca", "--certificate"):
        assert f"{flag} is " in moor.error(2, "publish", "sure/eu", "ahoy", flag, "x.pem")
    assert moor.lines("list", "sure/#") == ["messages  topic"], "nothing was published"


def test_the_example_of_publish_gives_messages_a_key(moor: Moor) -> None:
    assert "--lines --message-key 42" in " ".join(
        "\n".join(moor.lines("publish", "--help")).split()
    )


def test_publish_takes_files_stdin_and_lines(moor: Moor, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"from a file")
    moor.lines("publish", "sources", "--file", str(tmp_path / "body"))
    moor.lines("publish", "sources", "-", stdin=b"all of stdin")
    assert moor.lines("publish", "sources", "-", "--lines", stdin=b"one\r\n\ntwo") == [
        "3 messages stored"
    ]
    assert moor.texts("sources", 5) == ["from a file", "all of stdin", "one", "", "two"]


def test_many_lines_keep_their_order(moor: Moor) -> None:
    stdin = b"".join(b"%d\n" % number for number in range(20_000))
    (said,) = moor.lines("publish", "many", "-", "--lines", "--json", stdin=stdin)
    assert json.loads(said) == {"stored": 20_000, "duplicates": 0}
    assert moor.texts("many", 20_000) == [str(number) for number in range(20_000)]


def test_what_is_repeated_is_stored_once(moor: Moor) -> None:
    again = ("--producer", "till 7", "--sequence", "100")
    moor.lines("publish", "once", "-", "--lines", *again, stdin=b"one\ntwo\n")
    assert moor.lines("publish", "once", "-", "--lines", *again, stdin=b"one\ntwo\nthree\n") == [
        "1 messages stored, 2 were there already"
    ]
    assert moor.lines("publish", "once", "two", "--producer", "till 7", "--sequence", "101") == [
        "stored before: nothing to do"
    ]
    assert moor.texts("once", 3) == ["one", "two", "three"]


def test_a_refused_batch_is_named_with_its_lines(moor: Moor) -> None:
    stdin = b"x\n" * 1_000 + b"y" * 300_000 + b"\n"
    done = moor("publish", "refused", "-", "--lines", stdin=stdin)
    assert done.returncode == 12
    assert done.stdout == b"1,000 messages stored\n"
    assert re.match(rb"moor: lines \d+ to 1001: a message of 300000 bytes", done.stderr)


def test_a_retained_message_comes_to_new_readers(moor: Moor) -> None:
    moor.lines("publish", "lamp/1", "on", "--retain")
    moor.lines("publish", "lamp/1", "off")
    (facts,) = moor.tail("lamp/#", 1, "--start=now")
    assert (facts["text"], facts["is_retained"], facts["stream"]) == ("on", True, None)


def test_expired_messages_are_not_delivered(moor: Moor) -> None:
    moor.lines("publish", "short", "gone", "--ttl", "1")
    moor.lines("publish", "short", "here")
    while moor.texts("short", 1) == ["gone"]:  # until its second is over
        pass
    assert moor.texts("short", 1) == ["here"]


def test_starts(moor: Moor) -> None:
    for text in ("one", "two", "three"):
        moor.lines("publish", "starts", text)
    first, second, _ = moor.tail("starts", 3)
    assert moor.texts("starts", 2, f"--start=offset:{second['offset']}") == ["two", "three"]
    time_us = first["time_us"]
    assert isinstance(time_us, int)
    assert moor.texts("starts", 3, "--start=2026-01-01") == ["one", "two", "three"]
    assert "accepted: now, beginning, a time" in moor.error(2, "tail", "x", "--start", "soon")
    assert "before 1970" in moor.error(2, "tail", "x", "--start", "1969-01-01")


def test_a_time_without_a_zone_is_utc() -> None:
    assert start_of("2026-11-15T22:15") == start_of("time:2026-11-15T23:15+01:00")


def test_a_group_goes_on_where_it_was(moor: Moor) -> None:
    moor.lines("publish", "shared/x", "-", "--lines", stdin=b"one\ntwo\nthree\n")
    first = moor.texts("shared/#", 1, "--group=readers", "--start=beginning")
    rest = moor.texts("$shared/readers/shared/#", 2)
    assert [*first, *rest] == ["one", "two", "three"]
    assert "without /" in moor.error(2, "tail", "x", "--group", "a/b")


def test_bytes_and_controls_cannot_steer_the_terminal(moor: Moor) -> None:
    moor.lines("publish", "hostile/\u202e", "-", "-k", "\x1b[2J", stdin=b"\x1b[2J\nforged")
    (line,) = moor.lines("tail", "hostile/#", "--start", "beginning", "--count", "1")
    assert line.isprintable()
    assert line.endswith("(11 bytes: --json shows them)")
    (facts,) = moor.tail("hostile/#", 1)
    assert base64.b64decode(str(facts["body"])) == b"\x1b[2J\nforged"
    assert "text" not in facts
    for shown in moor.lines("list", "hostile/#"):
        assert shown.isprintable()


def test_list_has_the_topics_that_match(moor: Moor) -> None:
    for topic in ("listed/a", "listed/a", "listed/b", "$sys/listed"):
        moor.lines("publish", topic, "x")
    assert moor.lines("list", "listed/#") == [
        "messages  topic",
        "       2  listed/a",
        "       1  listed/b",
    ]
    every = [json.loads(line) for line in moor.lines("list", "--json")]
    assert {"topic": "listed/a", "messages": 2} in every
    assert "$sys/listed" not in {one["topic"] for one in every}
    assert len(moor.lines("list", "--json", "--limit", "1")) == 1


def test_info_shows_streams_and_totals(moor: Moor) -> None:
    stored = json.loads("".join(moor.lines("publish", "described", "x", "--json")))
    facts = json.loads("".join(moor.lines("show", "--json")))
    assert len(facts["streams"]) == 8
    assert facts["messages"] == sum(one["messages"] for one in facts["streams"]) > 0
    assert (facts["dropped"], facts["lost"]) == (0, 0)
    one = json.loads("".join(moor.lines("show", "described", "--json")))
    assert (one["topic_messages"], one["shard"]) == (1, stored["shard"])
    assert [stream["stream"] for stream in one["streams"]] == [f"node-1/{stored['shard']}/1"]
    head = moor.lines("show", "described")[0]
    assert head.split("  ")[0] == "stream"
    assert head.endswith("digest")


def test_sealed_streams_have_a_digest_and_lost_messages_are_told(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", "--roles=broker", "--set=streams.shards=1") as node:
        Moor(node).lines("publish", "ledger", "-", "--lines", stdin=b"one\ntwo\nthree\n")
    segment = tmp_path / "data" / "streams" / "000" / "00000001.seg"
    content = bytearray(segment.read_bytes())
    content[content.index(b"ledgertwo") + 7] ^= 1
    segment.write_bytes(content)
    (segment.with_suffix(".snapshot")).unlink()
    with NodeProcess(
        tmp_path / "data",
        "--roles=broker",
        "--set=streams.shards=1",
        "--set=streams.generation_bytes_max=4096",
    ) as node:
        moor = Moor(node)
        done = moor("tail", "ledger", "--start=beginning", "--count=2")
        assert [line.split()[-1] for line in done.stdout.splitlines()] == [b"one", b"three"]
        assert done.stderr == b"moor: messages lost: at most 1 of node-1/0, from 1 on: DAMAGE\n"
        moor.lines("publish", "ledger", "x" * 5_000)
        moor.lines("publish", "ledger", "next")
        facts = json.loads("".join(moor.lines("show", "--json")))
        while facts["streams"][0]["digest"] is None:  # a moment after the next generation has begun
            facts = json.loads("".join(moor.lines("show", "--json")))
        assert facts["lost"] == 1
        first, second = facts["streams"]
        assert (first["is_sealed"], second["digest"]) == (True, None)
        assert re.fullmatch("0{15}3[0-9a-f]{32}", first["digest"])


def test_what_a_topic_had_is_gone_for_every_reader(moor: Moor) -> None:
    for topic, body in (("gone/a", "1"), ("gone/b", "2"), ("gone/a", "3")):
        moor.lines("publish", topic, body, "--retain")
    group = ("--group=late", "--start=beginning", "--count=1", "--json")
    assert moor.json("tail", "gone/#", *group)[0]["text"] in {"1", "2"}
    assert "--yes" in moor.error(2, "delete", "gone/a")
    assert moor.lines("delete", "gone/a", "--yes") == ["gone/a is deleted: 2 messages"]
    assert moor.lines("list", "gone/#") == ["messages  topic", "       1  gone/b"]
    (retained,) = moor.tail("gone/#", 1, "--start=now")
    assert (retained["topic"], retained["is_retained"]) == ("gone/b", True)
    moor.lines("publish", "gone/a", "4")
    texts = [one["text"] for one in moor.tail("gone/#", 3) if not one["is_retained"]]
    assert sorted(map(str, texts)) == ["2", "4"]
    assert json.loads(moor.lines("show", "gone/a", "--json")[0])["topic_messages"] == 1
    told = moor.json("delete", "gone/a", "--yes", "--json")
    assert told == [{"topic": "gone/a", "deleted": 1, "left": {}}]
    assert "(administer) is not granted" in moor.error(12, "delete", "$SYS/audit/x", "--yes")


def test_tail_follows_until_it_is_stopped(moor: Moor) -> None:
    process = subprocess.Popen(
        [*MOOR, "topic", "tail", "followed", "--start=beginning", f"--address={moor.node.address}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )
    assert process.stdout is not None
    for text in (b"one", b"two"):
        moor.lines("publish", "followed", text.decode())
        assert process.stdout.readline().endswith(b"  followed  -  " + text + b"\n")
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (130, b"")


def test_a_node_that_goes_away_is_one_line(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", "--roles=broker") as node:
        process = subprocess.Popen(
            [*MOOR, "topic", "publish", "x", "-", "--lines", f"--address={node.address}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment(),
        )
        assert process.stdin is not None
        process.stdin.write(b"line\n" * 50_000)
        process.stdin.flush()
        node.kill()
        said, errors = process.communicate(b"line\n" * 50_000, timeout=60)
    assert process.returncode == 10, errors
    assert re.fullmatch(rb"[\d,]+ messages stored\n", said)
    (line,) = errors.splitlines()
    assert line.startswith(b"moor: ")


def test_mistakes_are_one_line(moor: Moor) -> None:
    assert "give the message" in moor.error(2, "publish", "x")
    assert "go together" in moor.error(2, "publish", "x", "y", "--producer", "p")
    assert "NAME=VALUE" in moor.error(2, "publish", "x", "y", "--header", "nothing")
    assert "has a wildcard" in moor.error(12, "publish", "orders/#", "y")
    assert "1 to 1024 bytes" in moor.error(12, "publish", "x" * 2_000, "y")
    assert "at most 1024 bytes" in moor.error(2, "publish", "x", "y", "-k", "k" * 2_000)
    assert "stands alone" in moor.error(12, "tail", "a#")
    assert "stands alone" in moor.error(12, "list", "a+")
    assert "this node takes 262144" in moor.error(12, "publish", "x", "-", stdin=bytes(262_145))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_ends_with_an_example(moor: Moor, command: str) -> None:
    moor.check_help(command)


GUIDE, EXAMPLES = guide("topics.md")


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_python_of_the_guide_works(node: NodeProcess, example: str) -> None:
    check_example(node, example)


@pytest.mark.parametrize("block", re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL))
def test_the_commands_of_the_guide_work(node: NodeProcess, block: str) -> None:
    script = f'set -eo pipefail\nmoor() {{ {shlex.join(MOOR)} "$@"; }}\n{block}'
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        timeout=60,
        env={**clean_environment(), "MOOR_ADDRESS": node.address},
        check=False,
    )
    assert done.returncode == 0, (block, done.stderr)
