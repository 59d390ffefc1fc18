"""Room: cli. The one question before something that cannot be undone.

    def delete(endpoint: Endpoint, queue: QueueName, yes: Yes = False) -> None:
        confirm(f"Delete {queue} and all messages in it?", yes=yes)

It is asked on a terminal alone. Where nobody can answer, in a pipe or a script, --yes must say it.
"""

import sys
from typing import Annotated

import typer

from moorline.config.shown import escaped

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


def confirm(question: str, *, yes: bool) -> None:
    """Returns if it is to be done. Nothing was done if it does not."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("this cannot be undone, and nobody is there to ask: give --yes")
    typer.confirm(escaped(question), abort=True, err=True)
