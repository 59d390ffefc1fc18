"""`moor context`: names for clusters, in a file without secrets, and which node a command then reaches."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.process.nodes import NodeProcess, run_moor

pytestmark = pytest.mark.process

UNREACHABLE = 10
USAGE = 2
CONFIG = 3


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, NodeProcess]]:
    folder = tmp_path_factory.mktemp("contexts")
    with NodeProcess(folder / "a") as a, NodeProcess(folder / "b") as b:
        yield a, b


class Said(NamedTuple):
    code: int
    out: str
    err: str


class Person:
    """Somebody with a home of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.file = home / "contexts.toml"

    def __call__(self, *arguments: str, **variables: str) -> Said:
        given = {"MOOR_CONTEXTS": str(self.file), **variables}
        done = run_moor(*arguments, cwd=self.home, variables=given)
        return Said(done.returncode, done.stdout, done.stderr)

    def process_of(self, *flags: str, **variables: str) -> int:
        """Which node answers, by its process."""
        said = self("status", "--json", *flags, **variables)
        assert said.code == 0, said.err
        return int(json.loads(said.out)["process"])


@pytest.fixture
def moor(tmp_path: Path) -> Person:
    return Person(tmp_path)


def test_commands_reach_the_chosen_cluster(
    nodes: tuple[NodeProcess, NodeProcess], moor: Person
) -> None:
    a, b = nodes
    assert moor("context", "add", "one", "--address", a.address).code == 0
    assert moor("context", "add", "two", "--address", b.address, "--use").code == 0
    assert moor.process_of() == b.process.pid
    assert moor.process_of("--context=one") == a.process.pid
    assert moor.process_of(MOOR_CONTEXT="one") == a.process.pid
    assert moor.process_of("--address", a.address) == a.process.pid
    assert moor.process_of(MOOR_ADDRESS=a.address) == a.process.pid
    assert moor.process_of("--data", str(a.data)) == a.process.pid
    assert moor("context", "use", "one").out == "commands reach one now\n"
    assert moor.process_of() == a.process.pid
    listed = [json.loads(line) for line in moor("context", "list", "--json").out.splitlines()]
    assert [(one["context"], one["is_current"]) for one in listed] == [
        ("one", True),
        ("two", False),
    ]
    assert moor("context", "remove", "one").code == 0
    assert "no context is chosen" in moor("context", "use").out


def test_never_another_node_than_the_one_that_was_meant(
    nodes: tuple[NodeProcess, NodeProcess], moor: Person
) -> None:
    a, b = nodes
    moor("context", "add", "far", "--address", a.address, "--use")
    (moor.home / "moorline-data").symlink_to(b.data)
    said = moor("status")
    assert said.code == USAGE
    assert "the context far is chosen" in said.err
    assert moor.process_of("--context=far") == a.process.pid
    assert moor.process_of("--data=moorline-data") == b.process.pid
    for flags in (
        ("--context=far", f"--address={b.address}"),
        ("--context=far", f"--data={b.data}"),
    ):
        said = moor("status", *flags)
        assert said.code == USAGE
        assert "give one of them" in said.err
    said = moor("status", MOOR_CONTEXT="far", MOOR_ADDRESS=b.address)
    assert "MOOR_ADDRESS and MOOR_CONTEXT" in said.err
    said = moor("status", "--context=fra")
    assert said.code == CONFIG
    assert "there is no context fra: there are: far" in said.err
    moor("context", "add", "gone", "--address", "tcp://127.0.0.1:1", "--use")
    assert moor("queue", "create", "--context=gone").code == UNREACHABLE


def test_it_keeps_files_by_their_paths_and_no_secret(moor: Person) -> None:
    (moor.home / "a.token").write_text("do not tell\n")
    flags = ("--address", "tls://h.example:1", "--ca", "ca.pem", "--token-file", "a.token")
    assert moor("context", "add", "h", *flags).code == 0
    text = moor.file.read_text()
    assert "do not tell" not in text
    shown = json.loads(moor("context", "show", "h", "--json").out)
    assert shown["ca"] == str(moor.home / "ca.pem")
    assert shown["token_file"] == str(moor.home / "a.token")
    # Who says on the command line who they are is not the one of the context.
    said = moor("status", "--context=h", "--user=me", "--token-file=b.token")
    assert "--user and --token-file each say who we are" in said.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("add", "A B", "--address=tcp://127.0.0.1:1"), "a name has"),
        (("add", "a"), "where is it?"),
        (("add", "a", "--data=x", "--address=tcp://127.0.0.1:1"), "give the address"),
        (("add", "a", "--address=tcp://127.0.0.1:1", "--ca=ca.pem"), "is not TLS"),
        (("use", "none"), "there is no context none"),
        (("remove", "none"), "there is no context none"),
        (("show", "none"), "there is no context none"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(
    moor: Person, words: tuple[str, ...], told: str
) -> None:
    said = moor("context", *words)
    assert said.code in {USAGE, CONFIG}
    assert told in said.err
    assert said.err.count("\n") == 1
    assert not moor.file.exists()


@pytest.mark.parametrize(
    "text", ["current = ", 'current = "none"\n', "[contexts.a]\nsecret = 1\n", "[contexts.a]\n"]
)
def test_a_file_that_is_wrong_is_told_and_never_passed_over(moor: Person, text: str) -> None:
    moor.file.write_text(text)
    said = moor("status")
    assert said.code == CONFIG
    assert "contexts.toml" in said.err
    assert moor.file.read_text() == text
