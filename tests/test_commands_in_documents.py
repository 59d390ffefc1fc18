"""Every command of `moor` that a document or an alert names is there, with the options that it shows."""

import re
from pathlib import Path
from typing import Any

from moorline.cli.every_command import commands, is_noun, nouns_and_commands

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(path for path in ROOT.glob("docs/**/*.md") if path.parent.name != "reference"),
    *(path for path in ROOT.glob("deploy/**/*") if path.is_file() and path.suffix != ".json"),
]
COMMAND = re.compile(r"(?:^|[`\s(/])moor ([a-z][a-z-]*)((?: [a-z][a-z-]*)?)([^`\n]*)")
FLAG = re.compile(r"(?<=\s)--([a-z][a-z-]+)")
EVERYWHERE = {"help", "version"}
WORDS_OF_PROSE = frozenset(
    {"has", "is", "and", "in", "on", "does", "as", "to", "with", "calls", "reaches", "are", "of"}
)
"""What follows the program's name in a sentence about it."""

ALL: dict[str, Any] = {words: command for words, command, _ in commands()}
NOUNS = {words for words, command, _ in nouns_and_commands() if is_noun(command)}


def wrong_in(text: str) -> list[str]:
    wrong: list[str] = []
    # A command that goes on behind a backslash is one.
    for first, second, rest in COMMAND.findall(text.replace("\\\n", " ")):
        if first in WORDS_OF_PROSE:
            continue
        words = f"{first}{second}" if first in NOUNS else first
        if words in NOUNS:
            continue  # it speaks of all of them
        if words not in ALL:
            wrong.append(f"moor {words}")
            continue
        options = {flag for one in ALL[words].params for flag in (*one.opts, *one.secondary_opts)}
        given = re.split(r"[|;#&)]| -- ", second + rest if first not in NOUNS else rest)[0]
        wrong += [
            f"moor {words} --{flag}"
            for flag in FLAG.findall(given)
            if flag not in EVERYWHERE and f"--{flag}" not in options
        ]
    return wrong


def test_every_command_that_a_document_names_is_there() -> None:
    now = [
        path for path in DOCUMENTS if path.name != "CHANGELOG.md"
    ]  # it tells of commands that are gone
    wrong = {
        str(path.relative_to(ROOT)): wrong_in(path.read_text(encoding="utf-8")) for path in now
    }
    assert {path: found for path, found in wrong.items() if found} == {}


def test_a_command_that_is_not_there_is_found() -> None:
    text = "`moor queue info`, `moor queue send Q --nothing`\n$ .venv/bin/moor serv\n`moor queue`"
    assert wrong_in(text) == ["moor queue info", "moor queue send --nothing", "moor serv"]
