"""Room: cli. Every command of `moor` by its words, for its reference and for tests of all of them."""

from collections.abc import Iterator
from typing import Any

import typer


def nouns_and_commands() -> Iterator[tuple[str, Any, Any]]:
    """Words, command and context; of a noun too, right before its commands, all in the order of help."""
    from moorline.cli.main import app

    root: Any = typer.main.get_command(app)
    context = typer.Context(root, info_name="moor", **root.context_settings)
    yield from _below((), root, context)


def commands() -> Iterator[tuple[str, Any, Any]]:
    """The commands alone."""
    for words, command, context in nouns_and_commands():
        if not is_noun(command):
            yield words, command, context


def is_noun(command: Any) -> bool:
    return hasattr(command, "list_commands")


def _below(words: tuple[str, ...], command: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    if words:
        yield " ".join(words), command, context
    if not is_noun(command):
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        yield from _below((*words, name), below, typer.Context(below, context, name))
