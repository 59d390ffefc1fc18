"""All commands of `moor` alike: what every one of them takes, and what its help says."""

import pty
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from tests.process.nodes import MOOR, clean_environment

from moorline.cli.every_command import commands

NO_JSON = {
    "serve": "it prints one line when it is ready; its log is JSON by --log-format",
}
"""Commands that take no --json, and why."""

CANNOT_BE_UNDONE = {
    "queue delete",
    "queue off",
    "queue purge",
    "topic delete",
    "group delete",
    "client kick",
    "user remove",
    "user revoke",
    "owner map",
    "cert revoke",
    "records remove",
}
"""These ask on a terminal, and want --yes where nobody can answer."""


ALL = {words: (command, context) for words, command, context in commands()}


def flags_of(words: str) -> dict[str, Any]:
    command, _ = ALL[words]
    return {flag: one for one in command.params for flag in one.opts if flag.startswith("-")}


def test_there_are_commands() -> None:
    assert len(ALL) > 100
    assert {"serve", "queue send", "records watch"} <= ALL.keys()


def test_a_command_has_json_help_and_an_example() -> None:
    assert [lack for words in sorted(ALL) for lack in lacking(words)] == []


def lacking(words: str) -> Iterator[str]:
    command, context = ALL[words]
    flags = flags_of(words)
    if words not in NO_JSON and "--json" not in flags:
        yield f"moor {words} has no --json"
    if context.help_option_names != ["-h", "--help"]:
        yield f"moor {words} has no -h"
    if not command.help:
        yield f"moor {words} does not say what it does"
    example = command.epilog or ""
    if not example.startswith(("Example: ", "Examples: ")) or f"moor {words}" not in example:
        yield f"moor {words} has no example"
    for flag, one in flags.items():
        if not (getattr(one, "help", "given") or one.hidden):
            yield f"moor {words} {flag} says nothing"


def test_one_word_for_one_thing() -> None:
    """What describes one of something is `show` everywhere, and what lists them `list`."""
    assert not {words for words in ALL if words.split()[-1] in {"info", "describe", "get-all"}}


@pytest.mark.parametrize("words", sorted(CANNOT_BE_UNDONE))
def test_what_cannot_be_undone_takes_yes(words: str) -> None:
    assert "--yes" in flags_of(words)


def test_nobody_else_takes_yes_but_who_means_something_by_it() -> None:
    asking = {words for words in ALL if "--yes" in flags_of(words)}
    # A measurement puts load on everybody who is there.
    assert asking - CANNOT_BE_UNDONE <= {"pipeline clean", "bench"}


def asked(answer: bytes, *arguments: str) -> tuple[int, bytes]:
    """A command on a terminal of its own, where somebody answers."""
    here, there = pty.openpty()
    with subprocess.Popen(
        [*MOOR, *arguments], stdin=there, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=clean_environment(),
    ) as running:  # fmt: skip
        with open(there, "rb", closefd=True), open(here, "wb", closefd=True, buffering=0) as typed:
            typed.write(answer)
            _, said = running.communicate(timeout=60)
        return running.returncode, said


QUEUE = "kSsqroOpEYoU-kz--gZLxtPiR4HrPhRV"


@pytest.mark.process
def test_a_no_ends_it_before_the_node_hears_of_it() -> None:
    address = "--address=tcp://127.0.0.1:1"
    code, said = asked(b"n\n", "queue", "delete", QUEUE, address)
    assert code == 1
    assert b"Delete" in said
    assert b"stopped" in said
    code, said = asked(b"y\n", "queue", "delete", QUEUE, address)
    assert code == 10, said  # it was meant, and nobody listens there


@pytest.mark.process
def test_a_script_says_yes_or_is_told_to() -> None:
    done = subprocess.run(
        [*MOOR, "queue", "delete", QUEUE, "--address=tcp://127.0.0.1:1"],
        stdin=subprocess.DEVNULL, capture_output=True, env=clean_environment(), timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert b"nobody is there to ask: give --yes" in done.stderr
