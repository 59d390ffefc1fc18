"""`moor audit` asked of a node over the wire: by whoever has the right to it, and as it goes on."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import Proven, proving
from tests.process.nodes import clean_environment
from tests.process.warm import run_warm

pytestmark = pytest.mark.process

DENIED = 12
USAGE = 2


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proven]:
    with proving(tmp_path_factory.mktemp("audit"), "alice") as found:
        yield found


def moor(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return run_warm(list(arguments), clean_environment(), timeout_s=60)


def refused(proven: Proven, topic: str) -> None:
    """A line of the trail about alice."""
    done = moor("topic", "publish", topic, "text", *proven.flags)
    assert done.returncode == DENIED, done.stderr


def found(*flags: str) -> list[dict[str, str]]:
    done = moor("audit", "show", "--json", *flags)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_whoever_has_the_right_reads_what_is_in_the_folder(proven: Proven) -> None:
    refused(proven, "a/secret")
    chosen = ("--principal=alice", "--kind=refusal", "--path=/topics/a/secret")
    local = f"--address={proven.node.address}"
    # Lines are gathered for a moment before they are written.
    while not (there := found(f"--data={proven.node.data}", *chosen)):
        pass
    assert found(local, *chosen) == there
    assert [line["act"] for line in there] == ["Publish"]
    assert found(local, "--principal=nobody") == []
    table = moor("audit", "show", local, *chosen).stdout.decode()
    assert "/topics/a/secret" in table


def test_whoever_has_not_is_refused_until_it_is_granted(proven: Proven) -> None:
    asked = ("audit", "show", "--json", *proven.flags)
    done = moor(*asked)
    assert (done.returncode, done.stdout) == (DENIED, b"")
    assert b"/admin/audit" in done.stderr
    local = f"--address={proven.node.address}"
    assert moor("grant", "add", "/admin/audit", "alice", "l", local).returncode == 0
    assert "Login" in {line["act"] for line in found(*proven.flags)}
    assert moor("grant", "remove", "/admin/audit", "alice", local).returncode == 0


def test_follow_prints_what_is_written_meanwhile(proven: Proven) -> None:
    command = [sys.executable, "-m", "moorline.cli.main", "audit", "show", "--follow", "--json"]
    chosen = ["--since=1h", "--principal=alice", "--path=/topics/b"]
    with subprocess.Popen(
        [*command, *chosen, f"--address={proven.node.address}"],
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    ) as process:
        assert process.stdout is not None
        for topic in ("b/one", "b/two"):
            refused(proven, topic)
            assert json.loads(process.stdout.readline())["path"] == f"/topics/{topic}"
        process.terminate()


def test_flags_of_a_node_need_one(proven: Proven) -> None:
    done = moor("audit", "show", f"--data={proven.node.data}", "--user=alice")
    assert done.returncode == USAGE
    assert b"--user is for a node: name it with --address" in done.stderr
    both = moor("audit", "show", f"--data={Path('x')}", f"--address={proven.node.address}")
    assert both.returncode == USAGE
