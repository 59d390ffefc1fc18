"""What a page has its reader do, in order: files to write, commands to type, and what they print.

A block is typed if it is of `console`; each line behind `$ ` is a command, and the lines below it are what it
prints. A block of another language is the file that the line before it names, as in "Write `worker.py`:" or
"This is `examples/queues.py`:"; one below `examples/` is there already, and is shown as it is. What a page
cannot say in words stands in a comment before the block, which no reader sees:

    <!-- goes on: TEXT -->      the command does not end; the next one is typed when it has printed TEXT
    <!-- typed until it prints: WHY -->   each command is typed again until it prints what the page shows
    <!-- ctrl-c: TEXT -->       the command that goes on, and has TEXT in it, is ended
    <!-- printed by: TEXT -->   the block is what that command prints, sooner or later
    <!-- not run: WHY -->       no test does this, or another one

A guide shows much that is to be read: of it only commands are steps, and files that it names.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

FENCE = re.compile(r"^```(.*)$")
COMMENT = re.compile(r"^<!-- (goes on|typed until it prints|ctrl-c|printed by|not run): (.*) -->$")
NAMED_FILE = re.compile(r"(?:[Ww]rite|This is|into) `([\w./-]+)`.*:$")


class Command(NamedTuple):
    text: str
    printed: list[str]
    goes_on_at: str = ""
    """What it has printed when it is ready; empty for a command that ends."""
    is_repeated: bool = False


class File(NamedTuple):
    name: str
    text: str


class Interrupt(NamedTuple):
    command: str


class Output(NamedTuple):
    command: str
    printed: list[str]


class NotRun(NamedTuple):
    why: str
    text: str


Step = Command | File | Interrupt | Output | NotRun


class BadPage(Exception):
    """A block of which nobody can tell what to do with it."""


def steps_of(page: str, *, is_guide: bool = False) -> Iterator[Step]:
    said, about = "", ""
    """The last comment, and what it says."""
    before = ""
    lines = iter(page.splitlines())
    for line in lines:
        if comment := COMMENT.match(line):
            said, about = comment.groups()
            if said == "ctrl-c":
                yield Interrupt(about)
                said = ""
        elif fence := FENCE.match(line):
            block = list(iter(lambda: next(lines, "```"), "```"))
            try:
                yield from _block(fence[1], block, said, about, before)
            except BadPage:
                if not is_guide or fence[1] == "console":
                    raise
            said = ""
        elif line.strip():
            before = line


def _block(language: str, lines: list[str], said: str, about: str, before: str) -> Iterator[Step]:
    text = "\n".join(lines) + "\n"
    named = NAMED_FILE.search(before)
    if said == "not run":
        yield NotRun(about, text)
    elif said == "printed by":
        yield Output(about, lines)
    elif language == "console":
        for command in commands_of(lines):
            yield command._replace(
                goes_on_at=about if said == "goes on" else "",
                is_repeated=said == "typed until it prints",
            )
    elif language and named:
        yield File(named[1], text)
    else:
        raise BadPage(f"what is to be done with this block of {language or 'no language'}?\n{text}")


def commands_of(lines: list[str]) -> Iterator[Command]:
    text, printed = "", list[str]()
    goes_on = False
    for line in lines:
        if goes_on:
            text += "\n" + line
        elif line.startswith("$ "):
            if text:
                yield Command(text, printed)
            text, printed = line[2:], []
        elif text:
            printed.append(line)
        else:
            raise BadPage(f"a block of `console` begins with a command: {line}")
        goes_on = (goes_on or line.startswith("$ ")) and line.endswith("\\")
    if text:
        yield Command(text, printed)
